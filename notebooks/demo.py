"""`make demo`: a model answers in the terminal, through the course's KV cache, attention and
generation, and then shows what the same answer costs without a cache.

    python notebooks/demo.py --prompt "Why is the sky blue?" --tokens 256
    python notebooks/demo.py --model toy --prompt "Mara was a baker." --seed 7

SmolLM2 chats (`demo_chat`), the toy model tells stories and needs no download (`demo_stories`).
"""

import argparse
import math
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

# Read when torch loads. On a busy machine, threads that spin while they wait for each other make a
# decode step ten times slower; on an idle one, sleeping costs next to nothing.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import jaxtyping
import torch
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))
jaxtyping.config.update("jaxtyping_disable", True)  # shape checks cost more than a decode step can

from demo_answers import Answer, Conversation, Sampling, TooLong, without_cache  # noqa: E402
from demo_chat import Chat  # noqa: E402
from demo_stories import Stories  # noqa: E402

from assignment.provided.models.smollm2 import ModelNotAvailable  # noqa: E402
from tests.grading.errors import SubmissionError  # noqa: E402
from tests.grading.submission import short  # noqa: E402

KINDS: dict[str, type[Conversation]] = {"smollm2": Chat, "toy": Stories}


def demo(arguments: argparse.Namespace, console: Console) -> None:
    kind = KINDS[arguments.model]
    with console.status(f"loading {kind.name} …"):
        conversation = kind()
        model = conversation.model
        model(torch.tensor([[0]]))  # reads the weights from disk, which no answer should wait for
    temperature = kind.temperature if arguments.temperature is None else arguments.temperature
    generator = torch.Generator().manual_seed(arguments.seed)

    def ask(text: str, typed: bool) -> Answer:
        sampling = Sampling(temperature, torch.rand(1, arguments.tokens, generator=generator))
        console.print(conversation.opening(text, typed), end="", soft_wrap=True)
        try:
            return conversation.ask(text, sampling, show)
        finally:  # also when it ends with an error or Ctrl-C
            console.print("\n")

    def show(text: str) -> None:
        console.out(text, end="", highlight=False)
        console.file.flush()

    def remark(answer: Answer) -> None:
        if line := conversation.remark(answer):
            console.print(f"{line}\n", highlight=False, markup=False)

    answer = ask((arguments.prompt or kind.prompt).strip(), typed=False)
    if len(answer.tokens) > 1:
        console.print("[dim]the same without a cache …[/]\n")  # a spinner would cost time here
        uncached, same = without_cache(model, answer, arguments.samples)
        console.print(comparison(answer, uncached))
        console.print(
            f"Without a cache: measured at {len(uncached.tokens)} tokens spread over the answer, "
            f"{same} of them the same as with it.\n",
            highlight=False,
        )
    remark(answer)
    while sys.stdin.isatty() and (text := ask_person(kind.invitation, console)):
        answer = ask(text, typed=True)
        console.print(
            f"[dim]{len(answer.prompt)} tokens fed, first token {duration(answer.first)}, "
            f"then {duration(answer.each)} each[/]\n",
            highlight=False,
        )
        remark(answer)


def ask_person(invitation: str, console: Console) -> str:
    try:
        return console.input(f"[bold]{invitation} (empty to end):[/] ").strip()
    except EOFError:
        return ""


def comparison(cached: Answer, uncached: Answer) -> Table:
    table = Table(title=f"{len(cached.prompt)} tokens of prompt, {len(cached.tokens)} of answer")
    table.add_column()
    for heading in ("with a KV cache", "without", "ratio"):
        table.add_column(heading, justify="right")

    def row(name: str, show: Callable[[Answer], str], ratio: float) -> None:
        table.add_row(name, show(cached), show(uncached), f"{ratio:.1f} ×")

    fed = len(cached.prompt) + len(cached.tokens) - 1  # the last token is never fed
    refed = sum(len(cached.prompt) + i for i in range(len(cached.tokens)))
    table.add_row("tokens through the model", f"{fed:,}", f"{refed:,}", f"{refed / fed:.1f} ×")
    speedup = uncached.each / cached.each
    row("first token (TTFT)", lambda answer: duration(answer.first), uncached.first / cached.first)
    row("each later token", lambda answer: duration(answer.each), speedup)
    row("tokens per second", lambda answer: f"{1 / answer.each:.1f}", speedup)
    return table


def duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{seconds * 1e3:.1f} ms"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="SmolLM2 chats, or the toy model tells stories: with a cache and without."
    )
    parser.add_argument("--model", choices=KINDS, default="smollm2", help="who answers (smollm2)")
    parser.add_argument("--prompt", default=os.environ.get("PROMPT"))
    parser.add_argument("--tokens", type=int, default=256, help="longest answer (256)")
    parser.add_argument("--temperature", type=float, help="0 is greedy (smollm2: 0, toy: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (0)")
    parser.add_argument("--samples", type=int, default=8, help="steps measured without a cache (8)")
    arguments = parser.parse_args()
    most = KINDS[arguments.model].capacity // 2
    if not (0 < arguments.tokens <= most and arguments.samples > 0):
        parser.error(f"--tokens must be 1 to {most}, --samples at least 1")
    if not (arguments.temperature is None or 0 <= arguments.temperature < math.inf):
        parser.error(f"--temperature must be 0 or more, got {arguments.temperature}")
    if not 0 <= arguments.seed < 2**63:
        parser.error(f"--seed must be 0 to 2**63 - 1, got {arguments.seed}")
    try:
        demo(arguments, Console())
    except (ImportError, ModelNotAvailable, SubmissionError, TooLong) as error:
        return fail(str(error))
    except NotImplementedError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{short(Path(frame.filename))}: `{frame.name}`"
        return fail(f"{place} is not written yet, and the demo runs on your own code")
    except KeyboardInterrupt:
        pass
    return 0


def fail(line: str) -> int:
    print(f"demo: {line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
