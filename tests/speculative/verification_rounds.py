"""Rounds of verification: every one that can happen, and batches at random."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import zip_longest

import torch
from torch import Tensor

from assignment.provided.models import TableLM
from assignment.provided.speculative import NO_TOKEN, Draft
from tests.grading.closeness import assert_equal
from tests.speculative.law import Law, NextLaw, Tokens, grid, pieces, table_law, tally, text_law

NAN, INF = float("nan"), float("inf")


# --- laws of the next token ----------------------------------------------------------------------


def tables(draw, *weights: Sequence[int]) -> list[NextLaw]:
    """For each of `weights` a model that permutes them in another way after every text."""
    return [table_law(TableLM(len(each), draw.seed(), each)) for each in weights]


def constant(*weights: int) -> NextLaw:
    """The same after every text."""
    return lambda tokens: [Fraction(weight, sum(weights)) for weight in weights]


def guesses(draw, vocab_size: int) -> NextLaw:
    """A deterministic draft: after every text one token has all the probability."""
    return tables(draw, [1] + [0] * (vocab_size - 1))[0]


def in_vocabulary(next_law: NextLaw, vocab_size: int) -> NextLaw:
    """Says that all tokens are equal after a text that `next_law` does not know."""

    def law(tokens: Tokens) -> Sequence[Fraction]:
        known = all(token < vocab_size for token in tokens)
        return next_law(tokens) if known else [Fraction(1, vocab_size)] * vocab_size

    return law


# --- every round that can happen -----------------------------------------------------------------


@dataclass(frozen=True)
class Rounds:
    """Arguments of `verify`: a row for each draft and each point of a grid over the uniforms.

    masses: integers, how probable the draft of each row is.
    """

    draft: Draft
    target_probs: Tensor
    uniforms: Tensor
    masses: Tensor

    def to(self, dtype: torch.dtype) -> Rounds:
        draft = replace(self.draft, probs=self.draft.probs.to(dtype))
        return replace(self, draft=draft, target_probs=self.target_probs.to(dtype))

    def with_nan_for_zero(self, which: str) -> Rounds:
        """In p, in q, or in both."""
        p, q = (x.masked_fill(x == 0, NAN) for x in (self.draft.probs, self.target_probs))
        return replace(
            self,
            draft=self.draft if which == "q" else replace(self.draft, probs=p),
            target_probs=self.target_probs if which == "p" else q,
        )


def every_round(
    draft_law: NextLaw, target_law: NextLaw, num_draft: int, sure: bool = False
) -> Rounds:
    """All that can happen in a round of `num_draft` drafted tokens.

    sure: the draft is deterministic, and gives no probabilities.
    """
    texts = text_law(draft_law, num_draft)
    scale = pieces(texts.values())
    points = grid(*_grid_sizes(draft_law, target_law, list(texts)))

    def of_each(values: list, *shape: int) -> Tensor:
        return torch.tensor(values).reshape(len(texts), *shape).repeat_interleave(len(points), 0)

    p = [list(map(float, draft_law(text[:i]))) for text in texts for i in range(num_draft)]
    q = [list(map(float, target_law(text[:i]))) for text in texts for i in range(num_draft + 1)]
    tokens = of_each(list(texts), num_draft).long()
    draft = Draft(
        tokens,
        torch.full((len(tokens),), num_draft),
        None if sure else of_each(p, num_draft, len(draft_law(()))),
    )
    return Rounds(
        draft,
        of_each(q, num_draft + 1, len(target_law(()))),
        points.repeat(len(texts), 1),
        of_each([int(mass * scale) for mass in texts.values()]),
    )


def _grid_sizes(draft_law: NextLaw, target_law: NextLaw, texts: list[Tokens]) -> list[int]:
    """For each uniform: so many pieces that every edge it can meet lies between two of them."""
    num_draft, sizes, ends = len(texts[0]), [], []
    for i in range(num_draft + 1):
        edges = []
        for tokens in {text[:i] for text in texts}:
            p = draft_law(tokens) if i < num_draft else ()
            pairs = list(zip_longest(p, target_law(tokens), fillvalue=Fraction(0)))
            edges += [min(Fraction(1), q_x / p_x) for p_x, q_x in pairs if p_x]
            residual = [q_x - p_x for p_x, q_x in pairs if q_x > p_x]
            ends += [share / sum(residual) for share in residual]
        sizes.append(pieces(edges))
    return [*sizes[:-1], pieces(ends)]  # nothing is accepted with the last one


# --- what is given in them -----------------------------------------------------------------------


def laws_given(verify: Callable, parts: list[Rounds], draw) -> list[Law]:
    """What `verify` gives in each of the parts, all rows in one batch, in random order."""
    width = max(part.draft.tokens.shape[1] for part in parts)
    parts = [_widened(part, width, draw) for part in parts]
    sizes = [len(part.masses) for part in parts]
    order = draw.permutation(sum(sizes))

    def shuffled(tensors: list[Tensor]) -> Tensor:
        return torch.cat(tensors)[order]

    probs = [part.draft.probs for part in parts if part.draft.probs is not None]
    draft = Draft(
        shuffled([part.draft.tokens for part in parts]),
        shuffled([part.draft.num_draft for part in parts]),
        shuffled(probs) if probs else None,
    )
    target_probs = shuffled([part.target_probs for part in parts])
    given = verify(draft, target_probs, shuffled([part.uniforms for part in parts]))
    assert_rounds(given, draft, target_probs.shape[-1])
    rows = torch.empty_like(given)
    rows[order] = given
    return [tally(r, part.masses) for r, part in zip(rows.split(sizes), parts, strict=True)]


def assert_rounds(given: Tensor, draft: Draft, vocab_size: int) -> None:
    """1 … num_draft + 1 tokens of the vocabulary in every row, and NO_TOKEN behind them."""
    rows, width = draft.tokens.shape
    assert given.dtype == torch.int64, f"expected int64, got {given.dtype}"
    assert_equal(list(given.shape), [rows, width + 1], what="shape")
    known = (given >= 0) & (given < vocab_size)
    lengths = known.long().cumprod(dim=1).sum(dim=1)
    padding = torch.arange(width + 1) >= lengths[:, None]
    right = (lengths >= 1) & (lengths <= draft.num_draft + 1)
    right &= ((given == NO_TOKEN) | ~padding).all(dim=1)
    if not right.all():
        row = int(right.int().argmin())
        most = int(draft.num_draft[row]) + 1
        raise AssertionError(
            f"row {row}: expected 1 to {most} tokens from 0 to {vocab_size - 1}, "
            f"then {NO_TOKEN}, got {given[row].tolist()}"
        )


def _widened(rounds: Rounds, width: int, draw) -> Rounds:
    """The same rounds in a batch whose longest draft is `width`; nonsense stands behind them."""
    draft, target_probs, uniforms = rounds.draft, rounds.target_probs, rounds.uniforms
    rows, more = len(rounds.masses), width - draft.tokens.shape[1]
    tokens = torch.cat([draft.tokens, draw.integers(-3, 9, rows, more)], dim=1)
    probs = draft.probs
    if probs is not None:
        probs = torch.cat([probs, nonsense(draw, rows, more, probs.shape[-1])], dim=1)
    return Rounds(
        Draft(tokens, draft.num_draft, probs),
        torch.cat([target_probs, nonsense(draw, rows, more, target_probs.shape[-1])], dim=1),
        torch.cat([uniforms[:, :-1], draw.uniform(rows, more), uniforms[:, -1:]], dim=1),
        rounds.masses,
    )


# --- batches at random ---------------------------------------------------------------------------


def nonsense(draw, *shape: int) -> Tensor:
    """Rows of NaN, of infinity, of large numbers; a third of each."""
    kinds = torch.tensor([NAN, INF, 7.0])[draw.permutation(math.prod(shape[:-1])) % 3]
    return kinds.reshape(*shape[:-1], 1).expand(shape)


def draw_batch(draw, counts: list[int], vocab_size: int, sampled: bool) -> tuple:
    """Arguments of `verify`, with drafts of these lengths; nonsense stands behind them."""
    rows, width = len(counts), max(counts)
    num_draft = torch.tensor(counts)
    p, q = (draw.normal(rows, n, vocab_size).softmax(dim=-1) for n in (width, width + 1))
    tokens = draw.integers(0, vocab_size, rows, width)
    behind = torch.arange(width) >= num_draft[:, None]
    tokens = torch.where(behind, draw.integers(-9, 99, rows, width), tokens)
    p = torch.where(behind[..., None], nonsense(draw, *p.shape), p)
    behind = torch.arange(width + 1) > num_draft[:, None]
    q = torch.where(behind[..., None], nonsense(draw, *q.shape), q)
    return Draft(tokens, num_draft, p if sampled else None), q, draw.uniform(rows, width + 1)


def one_row(draft: Draft, target_probs: Tensor, uniforms: Tensor, row: int) -> tuple:
    """Arguments of `verify` for one row by itself, no wider than its draft."""
    this, count = slice(row, row + 1), int(draft.num_draft[row])
    probs = None if draft.probs is None else draft.probs[this, :count]
    alone = Draft(draft.tokens[this, :count], draft.num_draft[this], probs)
    ends = torch.cat([uniforms[this, :count], uniforms[this, -1:]], dim=1)
    return alone, target_probs[this, : count + 1], ends
