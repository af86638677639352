"""Requests for a scheduler: drawn traces, and a life with aborts and forks."""

from __future__ import annotations

from collections.abc import Sequence

from assignment.provided.data.traces import Request
from tests.grading.draw import Draw
from tests.serving.scheduler_replay import Limits
from tests.serving.scheduler_watched import Watched

VOCAB = 50_000
MOST_STEPS = 2_000  # of a life; a scheduler that makes no progress ends there


def number(draw: Draw, low: int, high: int) -> int:
    """low … high."""
    return int(draw.integers(low, high + 1, 1))


def tokens(draw: Draw, count: int) -> tuple[int, ...]:
    return tuple(draw.integers(0, VOCAB, count).tolist())


def requests_of(
    draw: Draw, prompts: Sequence[int], outputs: Sequence[int], spare: int = 0
) -> list[Request]:
    """Requests with these lengths, in order of arrival; their numbers are in no order.

    spare: max_new_tokens is so much more than what they really get.
    """
    numbers = draw.permutation(len(prompts)).tolist()
    return [
        Request(n, 0.0, tokens(draw, prompt), output + spare, output)
        for n, prompt, output in zip(numbers, prompts, outputs, strict=True)
    ]


def ragged(draw: Draw, count: int, prompts=(1, 60), outputs=(1, 20), spare: int = 0):
    """Requests with lengths drawn from low … high each."""
    lengths = [[number(draw, *span) for _ in range(count)] for span in (prompts, outputs)]
    return requests_of(draw, *lengths, spare=spare)


def arrivals_of(draw: Draw, count: int, most: int = 3) -> list[int]:
    """The steps before which requests arrive, at most so many steps apart."""
    gaps = draw.integers(0, most + 1, count)
    return gaps.cumsum(0).tolist()


def tight(draw: Draw, requests: Sequence[Request], block_size: int, least: int = 2) -> Limits:
    """A pool in which the longest request just fits, or a few; at least so many sequences."""
    longest = max(len(request.prompt) + request.max_new_tokens - 1 for request in requests)
    blocks = -(-longest // block_size)
    sequences = number(draw, least, 8)
    max_tokens = number(draw, sequences, 40)
    return Limits(blocks + number(draw, 0, blocks), block_size, max_tokens, sequences)


def live(
    draw: Draw,
    watched: Watched,
    requests: Sequence[Request],
    *,
    arrivals: Sequence[int],
    aborts: float = 0.0,
    forks: float = 0.0,
) -> None:
    """Serve them all step by step. A request is aborted with this probability before a step; one
    that has got a token is forked with that, if the cache has the blocks."""
    limits, replay = watched.replay.limits, watched.replay
    left: dict[int, int] = {}
    to_come = list(zip(arrivals, requests, strict=True))
    names = iter(range(1000, 2000))
    for index in range(MOST_STEPS):
        while to_come and to_come[0][0] <= index:
            _, request = to_come.pop(0)
            watched.add(request.id, list(request.prompt), request.max_new_tokens)
            left[request.id] = request.output_length
        for one in [one for one in left if happens(draw, aborts)]:
            watched.remove(one)
            del left[one]
        if not left and not to_come:
            break
        step = watched.schedule()
        sampled = [chunk.request for chunk in step.chunks if chunk.samples]
        if step.chunks:
            watched.commit({one: number(draw, 0, VOCAB - 1) for one in sampled})
        for one in sampled:
            left[one] -= 1
            full = len(replay.held) >= limits.max_sequences
            fits = full or limits.blocks(replay.requests[one].placed) <= replay.free
            if left[one] and fits and happens(draw, forks):
                child = next(names)
                watched.fork(one, child, number(draw, 0, VOCAB - 1))
                left[child] = number(draw, 1, left[one])
            if not left[one]:
                watched.remove(one)
                del left[one]
    assert not left, f"after {MOST_STEPS} steps, requests {sorted(left)} have not finished"


def happens(draw: Draw, probability: float) -> bool:
    return probability > 0 and float(draw.uniform(1)) < probability
