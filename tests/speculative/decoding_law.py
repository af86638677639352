"""Every case that the uniforms of some rounds decide, as rows of one batch, and how much each is.

The edges between the cases are known: sums of probabilities where a token is drawn, quotients where
one is accepted. A uniform between two neighbours is as good as any other there: one row stands for
all of them, and counts as much as they are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor

from assignment.provided.models import TableLM
from tests.speculative.law import NextLaw, pieces

Shares = Sequence[int]
"""The law of a next token by rank: that of the model's i-th smallest weight is in proportion to
shares[i]."""


def ranked_law(model: TableLM, prompt: list[int], shares: Shares) -> NextLaw:
    """What a model with the weights 1 … V says after filters that leave these shares."""

    def next_law(tokens: Sequence[int]) -> list[Fraction]:
        weights = model.weights([*prompt, *tokens])
        return [Fraction(shares[weight - 1], sum(shares)) for weight in weights]

    return next_law


def opposites(draw, vocab_size: int) -> tuple[TableLM, TableLM, list[int]]:
    """A draft, a target, and a prompt after which what one thinks likely the other does not."""
    prompt = draw.integers(0, vocab_size, 4).tolist()
    while True:
        draft, target = (TableLM(vocab_size, draw.seed()) for _ in range(2))
        pairs = zip(draft.weights(prompt), target.weights(prompt), strict=True)
        if all(p + q == vocab_size + 1 for p, q in pairs):
            return draft, target, prompt


@dataclass(frozen=True)
class Axis:
    """The pieces of [0, 1) that one uniform is to be tried in: their middles, and their lengths as
    integers."""

    middles: Tensor
    lengths: Tensor

    @classmethod
    def between(cls, edges: Iterable[Fraction]) -> Axis:
        ends = sorted({Fraction(0), *(edge for edge in edges if 0 < edge < 1), Fraction(1)})
        scale = pieces(ends)
        pairs = list(itertools.pairwise(ends))
        middles = [float((low + high) / 2) for low, high in pairs]
        lengths = [int((high - low) * scale) for low, high in pairs]
        return cls(torch.tensor(middles), torch.tensor(lengths))


@dataclass(frozen=True)
class Cases:
    """uniforms [rows, rounds, 2·num_draft + 1], and how much each row counts, an integer."""

    uniforms: Tensor
    masses: Tensor

    def __len__(self) -> int:
        return len(self.masses)


def every_case(
    draft: Shares, target: Shares, num_draft: int, max_new_tokens: int, num_tokens: int = 2
) -> Cases:
    """All that can happen until there are `num_tokens` tokens after a prompt of `opposites`.

    A draft without a doubt has one share that is not 0. Uniforms that decide nothing are at random.
    """
    q, every_p = _law(target), [_law(order) for order in itertools.permutations(draft)]
    if max_new_tokens == 2:  # a token is drafted after the prompt only
        every_p = [_law(draft[::-1])]
    draws = Axis.between(_sums(every_p[0]))
    accepts = Axis.between(a / b for p in every_p for a, b in zip(q, p, strict=True) if b)
    residuals = [[max(a - b, 0) for a, b in zip(q, p, strict=True)] for p in every_p]
    bonus = Axis.between(_sums(q))
    last = Axis.between(edge for shares in (q, *residuals) for edge in _sums(shares))

    width, axes = 2 * num_draft + 1, {}
    for r in range(num_tokens):  # every round gives a token, and perhaps no more
        drafted = range(min(num_draft, max_new_tokens - r - 1))
        for i in drafted:
            axes |= {r * width + i: draws, r * width + num_draft + i: accepts}
        axes[(r + 1) * width - 1] = last if drafted else bonus
    points = torch.cartesian_prod(*(axis.middles for axis in axes.values()))
    masses = torch.cartesian_prod(*(axis.lengths for axis in axes.values())).prod(dim=1)
    rows = torch.rand(max_new_tokens * width, generator=torch.Generator().manual_seed(1))
    rows = rows.repeat(len(points), 1)
    rows[:, list(axes)] = points
    return Cases(rows.unflatten(1, (max_new_tokens, width)), masses)


def _law(shares: Shares) -> list[Fraction]:
    return [Fraction(share, sum(shares)) for share in shares]


def _sums(shares: Sequence[Fraction]) -> Iterable[Fraction]:
    """Where pieces may end that are laid end to end on [0, 1) in any order."""
    total = sum(shares)
    if total:
        for count in range(1, len(shares)):
            yield from (sum(chosen) / total for chosen in itertools.combinations(shares, count))
