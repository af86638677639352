"""SmolLM2 at work, timed, for smollm2_serving.py: through the engine, and in other ways."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from smollm2_transformers import Theirs, spacing

from assignment.provided.data.traces import Request
from assignment.provided.models import CachedSession, Llama
from assignment.provided.serving import Sampling
from submission.attention.generate import generate
from submission.attention.grouped_query import grouped_query_attention
from submission.attention.kv_cache import KVCache
from submission.serving.engine import Engine

BLOCKS, BLOCK_SIZE = 512, 16  # 377 MB of keys and values: nobody is preempted
Tick = Callable[[], None]


@dataclass
class Served:
    """A trace that was served. steps: passes of the model; waste: of the slots
    of the blocks that are held, those without a token, over all steps."""

    seconds: float
    steps: int
    answers: list[list[int]]
    waste: float = 0.0


def serve(model: Llama, trace: Sequence[Request], max_sequences: int, tick: Tick) -> Served:
    """The trace through the engine; `tick` is called at each token."""
    engine = Engine(model, BLOCKS, BLOCK_SIZE, max_sequences=max_sequences)
    slots = _count_slots(engine)
    started = time.perf_counter()
    numbers = [
        engine.submit(
            request.prompt,
            Sampling(max_new_tokens=request.output_length),
            lambda sample, token: tick(),
        )
        for request in trace
    ]
    steps = 0
    while engine.step().chunks:
        steps += 1
    seconds = time.perf_counter() - started
    answers = [list(engine.completions(number)[0].tokens) for number in numbers]
    return Served(seconds, steps, answers, 1 - slots["filled"] / slots["held"])


def _count_slots(engine: Engine) -> dict[str, int]:
    """Slots held and slots filled, summed over the steps to come, as each is planned.

    In this trace no block is shared, and every request that runs has a chunk in every step.
    """
    slots = {"held": 0, "filled": 0}
    cache, plan = engine.cache, engine.scheduler.schedule

    def schedule():
        step = plan()
        slots["held"] += (cache.num_blocks - cache.num_free) * cache.block_size
        slots["filled"] += sum(cache.length(chunk.request) for chunk in step.chunks)
        return step

    engine.scheduler.schedule = schedule
    return slots


def serve_static(theirs: Theirs, trace: Sequence[Request], group_size: int, tick: Tick) -> Served:
    """The trace through transformers, in groups; of a row counts what its request asked for."""
    answers, steps = [], 0
    started = time.perf_counter()
    for first in range(0, len(trace), group_size):
        group = trace[first : first + group_size]
        lengths = [request.output_length for request in group]
        rows = theirs.generate([request.prompt for request in group], max(lengths))
        answers += [row[:length] for row, length in zip(rows, lengths, strict=True)]
        steps += max(lengths)
        for _ in range(sum(lengths)):
            tick()
    return Served(time.perf_counter() - started, steps, answers)


def engine_decode(model: Llama, prompt: list[int], new_tokens: int) -> float:
    """Seconds a token after the first, for one request alone."""
    times = []
    engine = Engine(model, BLOCKS, BLOCK_SIZE)
    engine.submit(
        prompt, Sampling(max_new_tokens=new_tokens), lambda *_: times.append(time.perf_counter())
    )
    engine.run()
    return spacing(times)


def generate_decode(model: Llama, prompt: list[int], new_tokens: int) -> float:
    """The same through `attention.generate` and a cache that is not paged."""
    sizes = model.config
    shape = (1, len(prompt) + new_tokens, sizes.num_kv_heads, sizes.head_dim)
    caches = [KVCache(*shape) for _ in range(sizes.num_layers)]
    session, times = CachedSession(model, caches, grouped_query_attention), []

    def forward(tokens, num_tokens):
        logits = session(tokens, num_tokens)
        times.append(time.perf_counter())
        return logits

    generate(forward, [prompt], new_tokens)
    return spacing(times)


def first_token(engine: Engine, prompt: list[int]) -> float:
    """Seconds to it, for a request that comes to an engine with nothing else to do."""
    started = time.perf_counter()
    engine.submit(prompt, Sampling(max_new_tokens=1))
    engine.run()
    return time.perf_counter() - started
