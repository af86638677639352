"""Rounds for `rejection_sampling` at the edge of what is allowed; how each ends is known.

Batches of a few rows: numbers at the ends of [0, 1), sums that rounding leaves short, residuals of
nearly nothing, tokens that one of the two models does not have.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assignment.provided.speculative import Draft
from tests.kernels.rejection_inputs import Batch
from tests.speculative.law import grid

HIGHEST = 1 - 2.0**-24  # the largest float32 below 1


# --- which tokens stay ----------------------------------------------------------------------------


def all_of(count: int, tokens: list[int], probs: Tensor | None = None) -> Draft:
    """So many rows that drafted these tokens."""
    probs = None if probs is None else probs.expand(count, len(tokens), -1).contiguous()
    return Draft(torch.tensor([tokens] * count), torch.full((count,), len(tokens)), probs)


def like_the_target(draw) -> Batch:
    """p is q: all that was drafted stays, also where its number is the highest."""
    q = draw.normal(20, 4, 30).softmax(dim=-1)
    uniforms = draw.uniform(20, 4)
    uniforms[::2, :3] = HIGHEST
    draft = Draft(draw.integers(0, 30, 20, 3), torch.full((20,), 3), q[:, :3].clone())
    return draft, q, uniforms


def all_acceptable(draw, counts: Sequence[int], width: int) -> Batch:
    """Whatever is in the first `width` places would be accepted, drafted or not."""
    rows = len(counts)
    q = draw.normal(rows, width + 1, 9).softmax(dim=-1)
    draft = Draft(draw.integers(0, 9, rows, width), torch.tensor(counts), q[:, :width] / 2)
    return draft, q, torch.cat([torch.zeros(rows, width), draw.uniform(rows, 1)], dim=1)


def not_the_drafts(width: int) -> Batch:
    """The first token of each row has p = 0, or is outside the draft's vocabulary of `width`. All
    numbers are 0."""
    p = torch.zeros(5, 2, width)
    p[:, :, :2] = 0.5
    q = torch.tensor([0.0, 0.0, 0.25, 0.5, 0.25]).expand(5, 3, -1)
    tokens = torch.tensor([[2, 0], [3, 1], [4, 4], [-1, 3], [2**32 + 1, 2]])
    return Draft(tokens, torch.full((5,), 2), p), q, torch.zeros(5, 3)


def no_chance() -> Batch:
    """Token 0 is drafted; the target never says it in the first row, the draft in the second. All
    numbers are 0."""
    p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])[:, None]
    q = torch.tensor([[0.0, 1.0], [0.5, 0.5]])[:, None].expand(-1, 2, -1)
    return Draft(torch.zeros(2, 1).long(), torch.tensor([1, 1]), p), q, torch.zeros(2, 2)


# --- how the last one is drawn --------------------------------------------------------------------


def last_of(count: int) -> Tensor:
    """Uniforms of one drafted token, which is rejected if it can be; a grid for the last draw."""
    return torch.cat([torch.full((count, 1), HIGHEST), grid(count)], dim=1)


def without_target(draw, vocab_size: int, value: float) -> Batch:
    """Row i of q is all `value` in sequence i, and those before it accept. p is wider than q."""
    q = draw.normal(4, 4, vocab_size).softmax(dim=-1)
    p = torch.cat([q[:, :3], torch.zeros(4, 3, 3)], dim=-1)
    q[torch.arange(4), torch.arange(4)] = value
    draft = Draft(draw.integers(0, vocab_size, 4, 3), torch.full((4,), 3), p)
    return draft, q, torch.tensor([0.0, 0.3, HIGHEST, 0.0])[:, None].expand(4, 4)


def right_guesses() -> Batch:
    """Token 1200 alone has a probability, and is drafted for sure. Some are rejected."""
    q = torch.zeros(3, 2, 1500)
    q[:, :, 1200] = torch.tensor([1.0, HIGHEST, 0.75])[:, None]
    return all_of(3, [1200]), q, torch.tensor([[HIGHEST, 0.5]] * 3)


def small_residuals() -> Batch:
    """Of q is left 1e-5, for token 2900 alone."""
    q = torch.full((3, 2, 3000), 1 / 4096)
    p = q[:, :1].clone()
    p[:, 0, 5], q[:, :, 2900] = 1e-5 + 1 / 4096, 1e-5 + 1 / 4096
    draft = Draft(torch.full((3, 1), 5), torch.ones(3).long(), p)
    return draft, q, torch.tensor([[HIGHEST, u] for u in (0, 0.5, HIGHEST)])


def narrow_leads() -> tuple[Batch, list[int]]:
    """(batch, its tokens): of two tokens, in any order, the number 1/2 lies on the more probable
    one's piece. It is a bonus token, or recovered in the place of one that is rejected."""
    q, p = torch.zeros(4, 2, 5000), torch.zeros(4, 1, 5000)
    pairs = [(7, 4990), (4990, 7)]  # more and less probable
    for row, (more, less) in enumerate(2 * pairs):
        q[row, :, more], q[row, :, less] = 0.5 + 2.0**-12, 0.5 - 2.0**-12
    q[2:] /= 128  # and almost all else is the draft's, too
    q[2:, :, 2500] = p[2:, :, 2500] = 127 / 128
    p[2:, :, 9] = 1 / 128
    draft = Draft(torch.full((4, 1), 9), torch.tensor([0, 0, 1, 1]), p)
    return (draft, q, torch.full((4, 2), 0.5)), [more for more, _ in 2 * pairs]


def at_the_ends(support: int, drafted: int) -> Batch:
    """The last draws' numbers lie at the ends of [0, 1), where the first and the last ten tokens
    have no probability. The drafted token, if there is one, is rejected."""
    q = torch.zeros(4, 2, support + 20)
    q[:, :, 10:-10] = (1 - 1e-6) / support  # so far off may rounding leave the sum
    p = torch.zeros(4, 1, support + 20)
    p[:, :, 2] = 1
    draft = Draft(torch.full((4, 1), 2), torch.full((4,), drafted), p)
    ends = torch.tensor([0.0, 2.0**-40, 1 - 2.0**-23, HIGHEST])
    return draft, q, ends[:, None].expand(4, 2)


def short_sums(draw, vocab_size: int) -> Batch:
    """Bonus tokens of any weights; the highest number lies behind the last one's end, as sums are
    rounded. Behind it are ten tokens of no probability."""
    q = torch.zeros(60, 1, vocab_size + 10)
    q[:, 0, :vocab_size] = (2 * draw.normal(60, vocab_size)).softmax(dim=-1)
    nothing = torch.zeros(60, 0, vocab_size)
    draft = Draft(torch.zeros(60, 0).long(), torch.zeros(60).long(), nothing)
    return draft, q, torch.full((60, 1), HIGHEST)


def between_tiles(drafted: int) -> Batch:
    """The last draws' numbers lie just where tiles end, if these are of 512 tokens or more. Around
    it tokens have no probability. All sums are exact."""
    q = torch.zeros(8, 2, 4096)
    q[:, :, torch.arange(4096) % 64 // 32 == 1] = 1 / 2048
    draft = Draft(torch.zeros(8, 1).long(), torch.full((8,), drafted))
    uniforms = torch.cat([torch.zeros(8, 1), torch.arange(8)[:, None] / 8], dim=1)
    return draft, q.roll(-10, dims=-1), uniforms
