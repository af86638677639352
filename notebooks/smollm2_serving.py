"""Serve SmolLM2-135M on this machine: `make bench BENCH=serving` writes smollm2_serving.json.

The engine against itself with one request at a time, and against transformers with the same
weights. Everything is greedy, float32 on two threads, without checks of shapes. Nothing but its
length ends an answer, so all serve the same numbers of tokens. What is measured:

    served        the first 32 requests of the trace "batch", all there at the start: seconds until
                  the last is answered. "static": transformers, in groups of as many as the engine
                  runs at once, padded on the left, each until its longest answer is done.
                  alike: how many answers are the engine's, token by token (a near tie may be
                  rounded otherwise)
    waste         in that run, of the slots of the blocks that are held, those without a token
    decode        seconds a token for one request alone, after the first
    first_token   seconds to the first token behind a prefix of 400 tokens, where the prefix cache
                  has it, and without a prefix cache
    profile       where the time of a decode step goes: the kinds are those of smollm2_profile.py

`served` is one run of each, but two of the engine, the first and the last, of which the mean
counts; all others are medians over ROUNDS rounds, in which everything has its turn. `bars` is what
the engine has to reach, and what it does.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from itertools import count
from pathlib import Path
from statistics import mean, median

# Read when torch loads. Threads that spin while they wait make a busy machine crawl; the profiler
# says when it starts and stops.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from jaxtyping import config
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from smollm2_speed import THREADS, machine, one_row_a_line

from assignment.provided.data.traces import named_trace
from assignment.provided.models import Llama
from assignment.provided.models.smollm2 import ModelNotAvailable, load_smollm2
from submission.serving.engine import Engine
from tests.grading.errors import SubmissionError
from tests.grading.results import write_whole

# isort: split
# After smollm2_speed, which makes `submission` importable.
from smollm2_profile import profile_step
from smollm2_runs import (
    BLOCK_SIZE,
    BLOCKS,
    Served,
    Tick,
    engine_decode,
    first_token,
    generate_decode,
    serve,
    serve_static,
)
from smollm2_transformers import Theirs, TransformersNotInstalled, spacing

FILE = Path(__file__).with_suffix(".json")
TRACE, REQUESTS = "batch", 32
SEQUENCES = 16
ROUNDS = 9
PROMPT, ANSWER = 128, 48
PREFIX, OWN = 400, 16
PROFILED = (1, 32)

Ticks = Callable[[str, int], Tick]  # begins a line of the progress: (title, total)


def in_turns(works: dict[str, Callable[[], float]], tick: Tick) -> dict[str, float]:
    """What each returns: the median of ROUNDS, after one that does not count."""
    taken = {name: [] for name in works}
    for _ in range(ROUNDS + 1):
        for name, work in works.items():
            taken[name].append(work())
            tick()
    return {name: median(values[1:]) for name, values in taken.items()}


def random_tokens(model: Llama, length: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(model.config.vocab_size, (length,), generator=generator).tolist()


def measure_decode(model: Llama, theirs: Theirs, tick: Tick) -> dict[str, float]:
    prompt = random_tokens(model, PROMPT, seed=1)
    works = {
        "engine": lambda: engine_decode(model, prompt, ANSWER),
        "generate": lambda: generate_decode(model, prompt, ANSWER),
        "transformers": lambda: spacing(theirs.token_times(prompt, ANSWER)),
    }
    return in_turns(works, tick)


def measure_first_token(model: Llama, tick: Tick) -> dict[str, float]:
    prefix, seeds = random_tokens(model, PREFIX, seed=2), count(3)
    engines = {
        name: Engine(model, BLOCKS, BLOCK_SIZE, prefix_caching=name == "cached")
        for name in ("cached", "not cached")
    }
    works = {
        name: lambda engine=engine: first_token(
            engine, prefix + random_tokens(model, OWN, next(seeds))
        )
        for name, engine in engines.items()
    }
    return in_turns(works, tick)  # the round that does not count has put the prefix there


def measure_served(model: Llama, theirs: Theirs, ticks: Ticks) -> list[tuple[str, Served]]:
    trace = named_trace(TRACE, model.config.vocab_size)[:REQUESTS]
    tokens = sum(request.output_length for request in trace)
    runs = {
        "engine": lambda tick: serve(model, trace, SEQUENCES, tick),
        "static": lambda tick: serve_static(theirs, trace, SEQUENCES, tick),
        "one at a time": lambda tick: serve(model, trace, 1, tick),
    }
    return [(how, runs[how](ticks(how, tokens))) for how in (*runs, "engine")]


def bars(served: list[tuple[str, Served]], decode: dict, first: dict) -> list[dict]:
    """Each as a ratio that has to be at least, or at most, so much."""
    seconds = {how: mean(run.seconds for name, run in served if name == how) for how, _ in served}
    waste = served[0][1].waste
    found = [
        ("engine, times as fast as one at a time", 3, seconds["one at a time"] / seconds["engine"]),
        ("engine, times as fast as static", 1.5, seconds["static"] / seconds["engine"]),
        (
            "one request, times as fast as transformers",
            1,
            decode["transformers"] / decode["engine"],
        ),
        (
            "first token, times as soon with the prefix cached",
            5,
            first["not cached"] / first["cached"],
        ),
    ]
    rows = [
        {"bar": bar, "at_least": least, "is": round(value, 2), "met": value >= least}
        for bar, least, value in found
    ]
    return [*rows, {"bar": "waste", "below": 0.04, "is": round(waste, 4), "met": waste < 0.04}]


def measure(model: Llama, theirs: Theirs, ticks: Ticks) -> dict:
    decode = measure_decode(model, theirs, ticks("one request", 3 * (ROUNDS + 1)))
    first = measure_first_token(model, ticks("first token", 2 * (ROUNDS + 1)))
    tick, profiles = ticks("profile", len(PROFILED)), []
    for sequences in PROFILED:
        profiles.append(
            profile_step(model, sequences, random_tokens(model, PROMPT, seed=0), BLOCKS)
        )
        tick()
    served = measure_served(model, theirs, ticks)
    answers = served[0][1].answers
    return {
        "machine": machine(),
        "torch": torch.__version__.partition("+")[0],
        "transformers": theirs.version,
        "bars": bars(served, decode, first),
        "served": [_row(how, run, answers) for how, run in served],
        "waste": round(served[0][1].waste, 4),
        "decode": {how: round(seconds, 5) for how, seconds in decode.items()},
        "first_token": {how: round(seconds, 5) for how, seconds in first.items()},
        "profile": profiles,
    }


def _row(how: str, run: Served, answers: list[list[int]]) -> dict:
    tokens = sum(map(len, run.answers))
    alike = sum(map(list.__eq__, run.answers, answers))
    return {
        "how": how,
        "seconds": round(run.seconds, 2),
        "tokens_per_second": round(tokens / run.seconds, 1),
        "steps": run.steps,
        "alike": alike,
    }


def main() -> int:
    torch.set_num_threads(THREADS)
    config.update("jaxtyping_disable", True)
    try:
        model, _ = load_smollm2()
        theirs = Theirs(model)
        found = with_progress(lambda ticks: measure(model, theirs, ticks))
    except (ModelNotAvailable, TransformersNotInstalled, SubmissionError) as error:
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


def with_progress(work: Callable[[Ticks], dict]) -> dict:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:

        def ticks(title: str, total: int) -> Tick:
            task = progress.add_task(title, total=total)
            return lambda: progress.advance(task)

        return work(ticks)


if __name__ == "__main__":
    sys.exit(main())
