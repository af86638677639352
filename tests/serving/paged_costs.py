"""Scripts whose costs are counted, and what they cost at best."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

Text = Callable[[int], list[int]]  # so many tokens that are nowhere else


def serve(request: int, tokens: list[int]) -> list[tuple]:
    """The calls of a request that comes, is computed, and goes."""
    return [("open", request, tokens), ("commit", request), ("close", request)]


def step(request: int, tokens: list[int]) -> list[tuple]:
    """The calls of a request that gets more tokens, which are computed."""
    return [("append", request, tokens), ("commit", request)]


@dataclass(frozen=True)
class Samples:
    """Prompts behind one system prompt, several samples of each, which grow in rounds.

    ends: how many calls there are at the end of each round, the one without new tokens included.
    ideal: blocks in use, summed over the rounds: full blocks of prompts with equal prefixes once;
        a prompt's last block once, while no sample has written to it; what a sample has written to,
        for itself.
    alone: the same, if every sample had all its blocks for itself.
    """

    calls: list[tuple]
    ends: list[int]
    ideal: int
    alone: int


def samples(text: Text, block_size: int) -> Samples:
    """3 samples of 3 prompts behind 100 tokens; 5 rounds of 7 new tokens."""
    system = text(100)
    prompts = [system + text(own) for own in (23, 50, 9)]  # none ends at the border of a block
    calls: list[tuple] = []
    for first, prompt in zip((0, 3, 6), prompts, strict=True):
        calls += [("open", first, prompt), ("commit", first)]
        calls += [("fork", first, first + 1), ("fork", first, first + 2)]
    ends = [len(calls)]
    for _ in range(5):
        for request in range(9):
            calls += step(request, text(7))
        ends.append(len(calls))

    full = {tuple(p[:end]) for p in prompts for end in range(block_size, len(p) + 1, block_size)}
    ideal = 6 * len(full) + 3  # before the first new tokens the last blocks are shared
    alone = 0
    for new in range(0, 36, 7):
        for prompt in prompts:
            blocks = -(-(len(prompt) + new) // block_size)
            alone += 3 * blocks
            ideal += 3 * (blocks - len(prompt) // block_size) if new else 0
    return Samples(calls, ends, ideal, alone)
