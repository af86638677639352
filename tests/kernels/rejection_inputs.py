"""Rounds for `rejection_sampling`: few rows that show a law, and batches whose ends are chosen.

A launch of all rows that `tests.speculative.verification_rounds.every_round` makes would take
minutes in the lab. Which numbers accept a token is known, and what is behind the first rejected one
does not count: so a row for each outcome is enough, with the outcome's probability. Only the order
of tokens in the last draw is free, and its number needs a grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import zip_longest

import torch
from torch import Tensor

from assignment.provided.speculative import Draft
from tests.speculative.law import Law, NextLaw, Tokens, grid, pieces, text_law
from tests.speculative.verification_rounds import Rounds, nonsense

__tracebackhide__ = True

Batch = tuple[Draft, Tensor, Tensor]  # with target_probs and uniforms

NEAR = 1 / 64  # so far from the edge between accepting and rejecting, in parts of what is beside it


# --- every outcome of a round ---------------------------------------------------------------------


def every_outcome(
    draw, draft_law: NextLaw, target_law: NextLaw, num_draft: int, sure: bool = False
) -> Rounds:
    """Each text that can be drafted, each number of its tokens that can be accepted, and a grid for
    the last draw. sure: the draft is deterministic, and gives no probabilities."""
    rows = [
        (text, numbers, mass * share)
        for text, mass in text_law(draft_law, num_draft).items()
        for numbers, share in _outcomes(draw, draft_law, target_law, text)
    ]
    texts, numbers, masses = zip(*rows, strict=True)
    scale, count = pieces(masses), len(rows)
    p = [[[float(x) for x in draft_law(t[:i])] for i in range(num_draft)] for t in texts]
    q = [[[float(x) for x in target_law(t[:i])] for i in range(num_draft + 1)] for t in texts]
    draft = Draft(
        torch.tensor(texts).reshape(count, num_draft).long(),
        torch.full((count,), num_draft),
        None if sure else torch.tensor(p).reshape(count, num_draft, len(draft_law(()))),
    )
    masses = torch.tensor([int(mass * scale) for mass in masses])
    return Rounds(draft, torch.tensor(q), torch.tensor(numbers), masses)


def _outcomes(
    draw, draft_law: NextLaw, target_law: NextLaw, text: Tokens
) -> list[tuple[list[float], Fraction]]:
    """(uniforms, their share of all) where the text was drafted."""
    edges, still, rows = [], Fraction(1), []
    for end in range(len(text) + 1):
        p = draft_law(text[:end]) if end < len(text) else ()
        pairs = list(zip_longest(p, target_law(text[:end]), fillvalue=Fraction(0)))
        edge = Fraction(0)
        if p:
            p_x, q_x = pairs[text[end]]
            edge = min(Fraction(1), q_x / p_x)
        ends_here = still * (1 - edge)
        if ends_here:
            weights = [max(q_x - p_x, Fraction(0)) for p_x, q_x in pairs]
            count = pieces(weight / sum(weights) for weight in weights)
            for piece in range(count):
                numbers = [_near_an_end(draw, Fraction(0), accepts) for accepts in edges]
                if p:
                    numbers.append(_near_an_end(draw, edge, Fraction(1)))
                    numbers += draw.uniform(len(text) - end - 1).tolist()
                rows.append(([*numbers, (piece + 0.5) / count], ends_here / count))
        edges.append(edge)
        still *= edge
    return rows


def _near_an_end(draw, low: Fraction, high: Fraction) -> float:
    """A number between them, near one of them."""
    part = NEAR if int(draw.integers(0, 2, 1)) else 1 - NEAR
    return float(low) + part * float(high - low)


# --- a last draw in a large vocabulary ------------------------------------------------------------


def draw_last(
    draw, weights: Sequence[int], vocab_size: int, kind: str, places: Sequence[int] = ()
) -> tuple[Rounds, Law]:
    """(a row for each piece of the last draw; the law of its token).

    kind: "bonus": nothing is drafted; "recovered": the first token is rejected, and p is q but for
    few tokens; "guess": so is one without probabilities. weights: of tokens in these `places`, or
    anywhere; their sum is a power of two.
    """
    total = sum(weights)
    order = draw.permutation(vocab_size).tolist()
    tokens = list(places) or order[: len(weights)]
    rejected = next(token for token in order if token not in tokens)
    q, p = torch.zeros(total, 2, vocab_size), None
    q[:, :, tokens] = torch.tensor(weights) / total
    if kind == "recovered":
        q = q / 2 + 1 / 4096  # everywhere, and p as well
        p = torch.full((total, 1, vocab_size), 1 / 4096)
        q[:, :, rejected], p[:, :, rejected] = 0, 0.5
    uniforms = torch.cat([draw.uniform(total, 1), grid(total)], dim=1)
    drafted = torch.full((total,), int(kind != "bonus"))
    if kind == "bonus":  # what stands behind the draft would be accepted
        rejected, uniforms[:, 0] = tokens[0], 0
    draft = Draft(torch.full((total, 1), rejected), drafted, p)
    law = {(x,): Fraction(weight, total) for x, weight in zip(tokens, weights, strict=True)}
    return Rounds(draft, q, uniforms, torch.ones(total, dtype=torch.int64)), law


def nan_for_zero(rounds: Rounds, which: str) -> Rounds:
    """In p, in q, or in both; where the draft has no probabilities, in q."""
    if rounds.draft.probs is not None:
        return rounds.with_nan_for_zero(which)
    q = rounds.target_probs
    return replace(rounds, target_probs=q.masked_fill(q == 0, float("nan")))


# --- batches whose ends are chosen ----------------------------------------------------------------


def draw_rounds(
    draw,
    counts: Sequence[int],
    ends: Sequence[int],
    vocab_size: int,
    *,
    draft_vocab: int | None = None,
    width: int | None = None,
    sampled: bool = True,
) -> Batch:
    """Sequence b has counts[b] drafted tokens, the first ends[b] of which are accepted.

    draft_vocab: of the draft, by default vocab_size. width: G, by default the largest count.
    """
    rows, width = len(counts), max(counts) if width is None else width
    both = min(vocab_size, draft_vocab or vocab_size)
    q = draw.normal(rows, width + 1, vocab_size, scale=2).softmax(dim=-1)
    p = draw.normal(rows, width, draft_vocab or vocab_size, scale=2).softmax(dim=-1)
    tokens, uniforms = draw.integers(0, both, rows, width), draw.uniform(rows, width + 1)
    for row, (count, end) in enumerate(zip(counts, ends, strict=True)):
        if sampled and end < count:  # what is drafted more often than it should be
            tokens[row, end] = (p[row, end, :both] - q[row, end, :both]).argmax()
        for place in range(min(end + 1, count)):
            token = tokens[row, place]
            edge = float(q[row, place, token] / (p[row, place, token] if sampled else 1))
            part = NEAR + (1 - 2 * NEAR) * float(draw.uniform(1))
            rejects = edge + part * (1 - edge)
            uniforms[row, place] = part * min(1, edge) if place < end else rejects
        tokens[row, count:] = draw.integers(-9, 2 * vocab_size, width - count)
        p[row, count:] = nonsense(draw, *p[row, count:].shape)
        q[row, count + 1 :] = nonsense(draw, *q[row, count + 1 :].shape)
    return Draft(tokens, torch.tensor(counts), p if sampled else None), q, uniforms


def least_bytes(draft: Draft, target_probs: Tensor, ends: Sequence[int]) -> int:
    """What a round moves at least.

    The row of q that the last token is drawn from, and, of a recovered one, the row of p, as far as
    V reaches. For each token that is looked at its id, two probabilities and a uniform. A count,
    a uniform and G + 1 results for each sequence.
    """
    rows, width = draft.tokens.shape
    vocab_size = target_probs.shape[-1]
    sure = draft.probs is None
    looked_at = drawn_from = 0
    for count, end in zip(draft.num_draft.tolist(), ends, strict=True):
        looked_at += min(end + 1, count)
        drawn_from += vocab_size
        if end < count and not sure:
            drawn_from += min(vocab_size, draft.probs.shape[-1])
    each = 8 + 4 + (4 if sure else 8)
    counted = rows * draft.num_draft.element_size()
    return 4 * drawn_from + each * looked_at + counted + rows * (4 + 8 * (width + 1))
