"""Laws of tokens as exact fractions, and grids over the uniforms that meet them exactly.

A sampler compares a uniform with edges. Let all edges be multiples of 1/n: then of the middles of n
equal pieces of [0, 1) exactly the right share lies below each edge, and none lies on one. So the
law of what comes out is a count of the points of a grid, and is compared with ==.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction

import torch
from torch import Tensor

from assignment.provided.models import TableLM
from assignment.provided.speculative import NO_TOKEN
from tests.grading.closeness import Mismatch

__tracebackhide__ = True  # pytest's word: a traceback ends in the test, not here

Tokens = tuple[int, ...]
Law = dict[Tokens, Fraction]
"""Sequences of tokens and their probabilities; those of probability 0 are left out."""
NextLaw = Callable[[Tokens], Sequence[Fraction]]
"""The probability of each token of the vocabulary, after given tokens."""


def table_law(model: TableLM, prompt: Sequence[int] = ()) -> NextLaw:
    """What the model says after the prompt and given tokens."""

    @functools.cache
    def next_law(tokens: Tokens) -> tuple[Fraction, ...]:
        weights = model.weights((*prompt, *tokens))
        return tuple(Fraction(weight, model.denominator) for weight in weights)

    return next_law


def pieces(edges: Iterable[Fraction]) -> int:
    """The least n of which all these are multiples of 1/n."""
    return math.lcm(*(edge.denominator for edge in edges))


def grid(*sizes: int) -> Tensor:
    """Float32 [points, axes]: every combination of middles of sizes[i] equal pieces of [0, 1)."""
    axes = [(torch.arange(size) + 0.5) / size for size in sizes]
    return torch.cartesian_prod(*axes).reshape(-1, len(sizes))


def tally(rows: Tensor, masses: Tensor | None = None) -> Law:
    """The law of the rows, int64 [R, W]; what a row has behind its last token is NO_TOKEN.

    masses: integers, how much each row counts (default: all the same).
    """
    masses = torch.ones(len(rows), dtype=torch.int64) if masses is None else masses
    different, which = rows.unique(dim=0, return_inverse=True)
    counts = torch.zeros(len(different), dtype=torch.int64).index_add(0, which, masses)
    total = int(masses.sum())
    return {
        without_padding(row): Fraction(count, total)
        for row, count in zip(different.tolist(), counts.tolist(), strict=True)
        if count
    }


def without_padding(row: Sequence[int]) -> Tokens:
    """The tokens before the NO_TOKENs at the end; one further in front stays, and shows."""
    length = len(row)
    while length and row[length - 1] == NO_TOKEN:
        length -= 1
    return tuple(row[:length])


def completed(law: Law, next_law: NextLaw, length: int) -> Law:
    """The law of the first `length` tokens, when `next_law` goes on where a sequence ends."""
    for _ in range(length):
        longer: Law = {}
        for tokens, mass in law.items():
            if len(tokens) >= length:
                going_on = [(tokens[:length], mass)]
            else:
                shares = enumerate(next_law(tokens))
                going_on = [((*tokens, token), mass * share) for token, share in shares if share]
            for sequence, part in going_on:
                longer[sequence] = longer.get(sequence, Fraction(0)) + part
        law = longer
    return law


def text_law(next_law: NextLaw, length: int) -> Law:
    """The law of sequences of `length` tokens drawn one after the other."""
    return completed({(): Fraction(1)}, next_law, length)


def assert_law(got: Law, expected: Law, what: str, **beside: NextLaw) -> None:
    """Assert that every sequence has the very probability it should have.

    beside: laws of a next token, by name, that the message tells along the first wrong sequence.
    """
    both = sorted(got.keys() | expected.keys())
    wrong = [tokens for tokens in both if got.get(tokens, 0) != expected.get(tokens, 0)]
    if not wrong:
        return
    right, came = (str(law.get(wrong[0], 0)) for law in (expected, got))
    where, note = f"tokens {list(wrong[0])}", f"{len(wrong)} of {len(both)} sequences are off"
    for end in range(len(wrong[0])):
        told = (f"{name} = {_in_words(law(wrong[0][:end]))}" for name, law in beside.items())
        note += f"; after {list(wrong[0][:end])} {', '.join(told)}" if beside else ""
    line = f"{where}: expected probability {right}, got {came}; {note}"
    raise Mismatch(line, expected=right, got=came, what=what, where=where, note=note)


def _in_words(law: Sequence[Fraction]) -> str:
    return f"({', '.join(map(str, law))})"
