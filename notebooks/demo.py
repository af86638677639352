"""`make demo`: SmolLM2 answers in the terminal, through the course's KV cache, attention and
generation, and then shows what the same answer costs without a cache.

    python notebooks/demo.py --prompt "Why is the sky blue?" --tokens 256

In a full checkout the reference does the work, in a student's copy the student's own files.
"""

import argparse
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
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

import tests.grading.notebook  # noqa: E402, F401  (makes `submission` importable)
from assignment.provided.models import CachedSession, Llama  # noqa: E402
from assignment.provided.models.smollm2 import ModelNotAvailable, load_smollm2  # noqa: E402
from submission.attention.generate import generate, next_token_probs, sample  # noqa: E402
from submission.attention.grouped_query import grouped_query_attention  # noqa: E402
from submission.attention.kv_cache import KVCache  # noqa: E402
from tests.grading.errors import SubmissionError  # noqa: E402
from tests.grading.submission import short  # noqa: E402

PROMPT = "Explain to a student what a cache is, and why computers have several of them."
CAPACITY = 2048  # tokens of a conversation: 94 MB of keys and values


@dataclass
class Answer:
    """An answer, and when each of its tokens was chosen, in seconds from the question."""

    prompt: list[int]
    tokens: list[int]
    times: list[float]

    @property
    def first(self) -> float:
        """TTFT: seconds to the first token."""
        return self.times[0]

    @property
    def each(self) -> float:
        """Seconds for each later token."""
        return (self.times[-1] - self.times[0]) / max(1, len(self.times) - 1)


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; the random numbers are an argument, so an answer can be repeated."""

    temperature: float
    uniforms: torch.Tensor  # [1, most tokens of an answer]


class TooLong(Exception):
    """A question has more tokens than the cache has room for."""


class Conversation:
    """Questions and answers on one cache: each turn feeds only what is new."""

    def __init__(self, model: Llama, tokenizer, sampling: Sampling):
        self.tokenizer, self.sampling = tokenizer, sampling
        config = model.config
        shape = (1, CAPACITY, config.num_kv_heads, config.head_dim)
        caches = [KVCache(*shape) for _ in range(config.num_layers)]
        self.session = CachedSession(model, caches, grouped_query_attention)
        self.unfed: list[int] = []  # generate never feeds the last token of an answer

    def ask(self, question: str, show: Callable[[str], None]) -> Answer:
        """The answer; `show` gets its text piece by piece as it comes."""
        uniforms, stop = self.sampling.uniforms, self.tokenizer.stop_tokens
        prompt = self._prompt(question)
        if int(self.session.lengths) + len(prompt) + uniforms.shape[1] > CAPACITY:
            self.session.truncate(torch.tensor([0]))  # a new conversation in the same memory
            self.unfed = []
            prompt = self._prompt(question)
        if len(prompt) >= CAPACITY:
            raise TooLong(f"a question of {len(prompt)} tokens, and the cache holds {CAPACITY}")
        listener = Listener(self.session, self.tokenizer, show)
        (tokens,) = generate(
            listener,
            [prompt],
            uniforms.shape[1],
            temperature=self.sampling.temperature,
            uniforms=uniforms,
            stop_tokens=stop,
            max_length=CAPACITY - int(self.session.lengths),
        )
        listener.hear(tokens[-1])
        self.unfed = tokens[-1:] if tokens[-1] in stop else [*tokens[-1:], *stop]
        return Answer(prompt, tokens, listener.times)

    def _prompt(self, question: str) -> list[int]:
        if self.unfed:
            return self.unfed + self.tokenizer.chat_again(question)
        return self.tokenizer.chat(question)


class Listener:
    """The session as `generate` sees it, overheard: a token is known when it is fed back."""

    def __init__(self, session: CachedSession, tokenizer, show: Callable[[str], None]):
        self.session, self.tokenizer, self.show = session, tokenizer, show
        self.times: list[float] = []
        self._tokens: list[int] = []
        self._shown = ""
        self._start: float | None = None

    def __call__(self, tokens: torch.Tensor, num_tokens: torch.Tensor) -> torch.Tensor:
        if self._start is None:
            self._start = time.perf_counter()
        else:
            self.hear(int(tokens[0, 0]))
        return self.session(tokens, num_tokens)

    def hear(self, token: int) -> None:
        self.times.append(time.perf_counter() - self._start)
        self._tokens.append(token)
        text = self.tokenizer.decode(self._tokens)
        text = text.rstrip("\N{REPLACEMENT CHARACTER}")  # a character whose bytes are still coming
        self.show(text[len(self._shown) :])
        self._shown = text


@torch.no_grad()
def without_cache(
    model: Llama, answer: Answer, sampling: Sampling, samples: int
) -> tuple[Answer, int]:
    """The same answer with the whole sequence recomputed for every token.

    Measured at `samples` later steps spread evenly over the answer, as all would take minutes, and
    with logits of the last position only. Returns the measured steps as an answer whose times add
    up, and at how many of them the token is the cached answer's.
    """
    later = torch.linspace(1, len(answer.tokens) - 1, min(samples, len(answer.tokens) - 1))
    steps = [0, *later.round().int().tolist()]
    tokens, times = [], [0.0]
    for step in steps:
        sequence = torch.tensor([answer.prompt + answer.tokens[:step]])
        start = time.perf_counter()
        logits = model.logits(model.hidden(sequence)[:, -1:])
        probs = next_token_probs(logits[:, -1], sampling.temperature)
        tokens.append(int(sample(probs, sampling.uniforms[:, step])))
        times.append(times[-1] + time.perf_counter() - start)
    same = sum(token == answer.tokens[step] for token, step in zip(tokens, steps, strict=True))
    return Answer(answer.prompt, tokens, times[1:]), same


def comparison(cached: Answer, uncached: Answer) -> Table:
    table = Table(title=f"{len(cached.prompt)} prompt tokens, {len(cached.tokens)} answer tokens")
    table.add_column()
    for heading in ("with a KV cache", "without", "ratio"):
        table.add_column(heading, justify="right")

    def row(name: str, show: Callable[[Answer], str], ratio: float) -> None:
        table.add_row(name, show(cached), show(uncached), f"{ratio:.1f} ×")

    speedup = uncached.each / cached.each
    row("first token (TTFT)", lambda answer: f"{answer.first:.2f} s", uncached.first / cached.first)
    row("each later token", lambda answer: f"{answer.each * 1e3:.0f} ms", speedup)
    row("tokens per second", lambda answer: f"{1 / answer.each:.1f}", speedup)
    return table


def demo(arguments: argparse.Namespace, console: Console) -> None:
    with console.status("loading SmolLM2 …"):
        model, tokenizer = load_smollm2()
        model(torch.tensor([[0]]))  # reads the weights from disk, which no answer should wait for
    generator = torch.Generator().manual_seed(arguments.seed)
    uniforms = torch.rand(1, arguments.tokens, generator=generator)
    sampling = Sampling(arguments.temperature, uniforms)
    conversation = Conversation(model, tokenizer, sampling)

    def ask(question: str) -> Answer:
        console.print("[bold]SmolLM2:[/] ", end="")
        try:
            return conversation.ask(question, show)
        finally:  # also when it ends with an error or Ctrl-C
            console.print("\n")

    def show(text: str) -> None:
        console.out(text, end="", highlight=False)
        console.file.flush()

    console.print("[bold]you:[/] ", end="")
    console.out(arguments.prompt, highlight=False)
    answer = ask(arguments.prompt)
    if len(answer.tokens) > 1:
        console.print("[dim]the same without a cache …[/]\n")  # a spinner would cost time here
        uncached, same = without_cache(model, answer, sampling, arguments.samples)
        console.print(comparison(answer, uncached))
        console.print(
            f"Without a cache: measured at {len(uncached.tokens)} tokens spread over the answer, "
            f"{same} of them the same as with it.\n",
            highlight=False,
        )
    while sys.stdin.isatty() and (question := ask_person(console)):
        answer = ask(question)
        console.print(
            f"[dim]{len(answer.prompt)} tokens fed, first token {answer.first:.2f} s, "
            f"then {answer.each * 1e3:.0f} ms each[/]\n",
            highlight=False,
        )


def ask_person(console: Console) -> str:
    try:
        return console.input("[bold]you (empty to end):[/] ").strip()
    except EOFError:
        return ""


def main() -> int:
    parser = argparse.ArgumentParser(description="Chat with SmolLM2, with a cache and without.")
    parser.add_argument("--prompt", default=os.environ.get("PROMPT") or PROMPT)
    parser.add_argument("--tokens", type=int, default=256, help="longest answer (256)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 is greedy (0)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (0)")
    parser.add_argument("--samples", type=int, default=8, help="steps measured without a cache (8)")
    arguments = parser.parse_args()
    if not (0 < arguments.tokens <= CAPACITY // 2 and arguments.samples > 0):
        parser.error(f"--tokens must be 1 to {CAPACITY // 2}, --samples at least 1")
    try:
        demo(arguments, Console())
    except (ModelNotAvailable, SubmissionError, TooLong) as error:
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
