"""Draft for SmolLM2-135M: `make bench BENCH=speculative` writes smollm2_speculative.json.

Everything is greedy, float32 on two threads, without checks of shapes. The prompts are those of
smollm2_prompts.py; an answer ends by itself or after NEW_TOKENS. What is measured:

    prompt_lookup  each prompt, answered by `generate` and by `speculative_generate` with a
                   `PromptLookup` of NUM_DRAFT tokens, in turns, ROUNDS times, prefill and all.
                   seconds: medians; times_as_fast: the median of the rounds' ratios; calls: of the
                   target, with the draft; same: whether all answers are the same tokens
    early_exit     the first EARLY layers under the model's own norm and head as the draft, of
                   EARLY_DRAFT tokens; each prompt once. agreement: the share of all answers' tokens
                   that this draft would have said too; acceptance: of its drafted tokens that were
                   looked at, the share that was accepted; expected: the speed-up by
                   `expected_speedup` at this acceptance, if a call costs what its layers do;
                   times_as_fast: what the clock says; best_num_draft: 0 if no draft at all is best

`bars` is what prompt lookup has to reach, and what it does.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from statistics import mean, median

# Read when torch loads. Threads that spin while they wait make a busy machine crawl.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from jaxtyping import config
from smollm2_prompts import PROMPTS
from smollm2_speed import THREADS, machine, one_row_a_line

from assignment.provided.models import Llama
from assignment.provided.models.smollm2 import ModelNotAvailable, SmolTokenizer, load_smollm2
from submission.speculative.prompt_lookup import PromptLookup
from submission.speculative.verification import best_num_draft, expected_speedup
from tests.grading.errors import SubmissionError
from tests.grading.results import write_whole

# isort: split
# After smollm2_speed, which makes `submission` importable.
from smollm2_drafts import (
    Request,
    Run,
    agreement,
    first_layers,
    model_draft,
    with_draft,
    without_draft,
)
from smollm2_serving import Ticks, with_progress

FILE = Path(__file__).with_suffix(".json")
NEW_TOKENS, NUM_DRAFT, ROUNDS = 96, 8, 5
EARLY, EARLY_DRAFT, MOST = 24, 4, 8
Pair = tuple[Run, Run]  # without a draft and with one


def requests(tokenizer: SmolTokenizer) -> list[Request]:
    stop_tokens = tokenizer.stop_tokens
    return [Request(tokenizer.chat(p.text), NEW_TOKENS, stop_tokens) for p in PROMPTS]


def answer_in_turns(model: Llama, asked: list[Request], ticks: Ticks) -> list[list[Pair]]:
    """Of each request, the pairs of all rounds."""
    tick = ticks("prompt lookup", ROUNDS * len(asked))
    without_draft(model, Request(asked[0].prompt, 4, ()))  # what it needs is then in place
    pairs = [[] for _ in asked]
    for _ in range(ROUNDS):
        for request, taken in zip(asked, pairs, strict=True):
            plain = without_draft(model, request)
            taken.append((plain, with_draft(model, request, PromptLookup(), NUM_DRAFT)))
            tick()
    return pairs


def lookup_rows(asked: list[Request], pairs: list[list[Pair]]) -> list[dict]:
    rows = []
    for prompt, request, taken in zip(PROMPTS, asked, pairs, strict=True):
        plain, drafted = taken[0]
        answers = [run.answer for pair in taken for run in pair]
        rows.append(
            {
                "prompt": prompt.name,
                "kind": prompt.kind,
                "prompt_tokens": len(request.prompt),
                "tokens": len(drafted.answer),
                "calls": drafted.calls,
                "tokens_per_call": round(len(drafted.answer) / drafted.calls, 2),
                "acceptance": round(mean(drafted.verdicts or [0]), 2),
                "seconds_without": round(median(a.seconds for a, _ in taken), 2),
                "seconds": round(median(b.seconds for _, b in taken), 2),
                "times_as_fast": round(median(a.seconds / b.seconds for a, b in taken), 2),
                "same": all(answer == plain.answer for answer in answers),
            }
        )
    return rows


def measure_early_exit(
    model: Llama, asked: list[Request], plain: list[Run], ticks: Ticks
) -> dict[str, float]:
    early, cost = first_layers(model, EARLY), EARLY / model.config.num_layers
    tick, runs, agreed = ticks("early exit", len(asked)), [], []
    for request, run in zip(asked, plain, strict=True):
        agreed += agreement(early, request, run.answer)
        runs.append(with_draft(model, request, model_draft(early, request), EARLY_DRAFT))
        tick()
    verdicts = [verdict for run in runs for verdict in run.verdicts]
    acceptance = mean(verdicts)
    return {
        "layers": EARLY,
        "of": model.config.num_layers,
        "agreement": round(mean(agreed), 3),
        "num_draft": EARLY_DRAFT,
        "acceptance": round(acceptance, 3),
        "tokens_per_call": round(
            sum(len(run.answer) for run in runs) / sum(run.calls for run in runs), 2
        ),
        "expected": round(expected_speedup(acceptance, EARLY_DRAFT, cost), 2),
        "times_as_fast": round(
            median(a.seconds / b.seconds for a, b in zip(plain, runs, strict=True)), 2
        ),
        "best_num_draft": best_num_draft(acceptance, cost, MOST),
        "same": all(a.answer == b.answer for a, b in zip(plain, runs, strict=True)),
    }


def bars(rows: list[dict]) -> list[dict]:
    copied = median(row["times_as_fast"] for row in rows if row["kind"] == "copy")
    same = sum(row["same"] for row in rows)
    found = [
        ("prompts that are copied from, times as fast (median)", 1.5, copied),
        ("prompts with the same tokens", len(rows), same),
    ]
    return [
        {"bar": bar, "at_least": least, "is": round(value, 2), "met": value >= least}
        for bar, least, value in found
    ]


def measure(model: Llama, tokenizer: SmolTokenizer, ticks: Ticks) -> dict:
    asked = requests(tokenizer)
    pairs = answer_in_turns(model, asked, ticks)
    rows = lookup_rows(asked, pairs)
    plain = [taken[-1][0] for taken in pairs]
    return {
        "machine": machine(),
        "torch": torch.__version__.partition("+")[0],
        "num_draft": NUM_DRAFT,
        "rounds": ROUNDS,
        "bars": bars(rows),
        "prompt_lookup": rows,
        "early_exit": measure_early_exit(model, asked, plain, ticks),
    }


def main() -> int:
    torch.set_num_threads(THREADS)
    config.update("jaxtyping_disable", True)
    try:
        model, tokenizer = load_smollm2()
        found = with_progress(lambda ticks: measure(model, tokenizer, ticks))
    except (ModelNotAvailable, SubmissionError) as error:
        print(error, file=sys.stderr)
        return 1
    except NotImplementedError as error:
        function = traceback.extract_tb(error.__traceback__)[-1].name
        print(f"`{function}` is not written yet, and the bench runs your code", file=sys.stderr)
        return 1
    text = one_row_a_line(found)
    write_whole(text, FILE)
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
