"""Tokens are laid from the last to the first. Two-dimensional tiles; each of their rows is a part,
and only the part in which the number falls is read again."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def weights_of(q, p, limit, x, ids, V: tl.constexpr, SURE: tl.constexpr):
    above = tl.load(q + ids, mask=ids < V, other=0)
    if SURE:
        below = tl.where(ids == x, 1.0, 0.0)
    else:
        below = tl.load(p + ids, mask=ids < limit, other=0)
        below = tl.where(below != below, 0.0, below)
    more = above > below  # not where one of them is NaN
    return tl.where(more, above - below, 0.0)


@triton.jit
def from_the_end(sums, number, N: tl.constexpr):
    """The last index from which on more than the number lies."""
    ids = tl.arange(0, N)
    tails = tl.cumsum(sums, 0, reverse=True)
    there = sums > 0
    last = tl.max(tl.where(there & (tails > number), ids, -1), 0)
    first = tl.min(tl.where(there, ids, N), 0)
    return tl.where(last >= 0, last, tl.where(first < N, first, 0))


@triton.jit
def kernel(
    out, tokens, num_draft, p, q, u, G: tl.constexpr, V: tl.constexpr, P: tl.constexpr,
    SURE: tl.constexpr, G2: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    TILES: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(1).to(tl.int64) + tl.program_id(0)
    g = tl.arange(0, G2)
    n = tl.load(num_draft + b)
    x = tl.load(tokens + b * G + g, mask=g < n, other=-1)
    r = tl.load(u + b * (G + 1) + g, mask=g < n, other=1.0)
    mask = (x >= 0) & (x < V)
    above = tl.load(q + (b * (G + 1) + g) * V + x, mask=mask, other=0.0)
    if SURE:
        below = mask.to(tl.float32)
    else:
        below = tl.load(p + (b * G + g) * P + x, mask=mask & (x < P), other=0.0)
    keep = ((below > 0) & (r * below < above)).to(tl.int32)
    stop = tl.min(tl.where(keep == 0, g, G2), 0)
    mine = q + (b * (G + 1) + stop) * V
    theirs = p + (b * G + stop) * P
    guess = tl.sum(tl.where(g == stop, x + 1, 0), 0) - 1
    limit = tl.where(stop < n, tl.minimum(V, P), 0)
    row, column = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inner = row[:, None] * COLUMNS + column[None, :]
    tile = tl.arange(0, TILES)

    parts = tl.zeros((TILES, ROWS), tl.float32)
    for t in range(0, tl.cdiv(V, ROWS * COLUMNS)):
        w = weights_of(mine, theirs, limit, guess, t * ROWS * COLUMNS + inner, V, SURE)
        parts = tl.where((tile == t)[:, None], tl.sum(w, 1)[None, :], parts)
    total = tl.sum(tl.sum(parts, 1), 0)
    if total == 0:
        limit *= 0
        guess = guess * 0 - 1
        for t in range(0, tl.cdiv(V, ROWS * COLUMNS)):
            w = weights_of(mine, theirs, limit, guess, t * ROWS * COLUMNS + inner, V, SURE)
            parts = tl.where((tile == t)[:, None], tl.sum(w, 1)[None, :], parts)
        total = tl.sum(tl.sum(parts, 1), 0)
    flat = tl.reshape(parts, (TILES * ROWS,))
    number = tl.load(u + b * (G + 1) + G) * total
    part = from_the_end(flat, number, TILES * ROWS)
    number -= tl.sum(tl.where(tl.arange(0, TILES * ROWS) > part, flat, 0.0), 0)
    w = weights_of(mine, theirs, limit, guess, part * COLUMNS + column, V, SURE)
    token = part * COLUMNS + from_the_end(w, number, COLUMNS)
    answer = tl.where(g < stop, x, -1)
    answer = tl.where(g == stop, token, answer)
    tl.store(out + b * (G + 1) + g, answer, mask=g < G + 1)


def rejection_sampling(
    tokens: Tensor,
    num_draft: Tensor,
    draft_probs: Tensor | None,
    target_probs: Tensor,
    uniforms: Tensor,
) -> Tensor:
    (batch, most), vocab = tokens.shape, target_probs.shape[-1]
    out = torch.empty_like(uniforms, dtype=torch.int64)
    rows, columns = (4, 512) if vocab > 2048 else (1, triton.next_power_of_2(max(vocab, 2)))
    if len(tokens):
        kernel[1, batch](
            out, tokens, num_draft, uniforms if draft_probs is None else draft_probs, target_probs,
            uniforms, most, vocab, vocab if draft_probs is None else draft_probs.shape[-1],
            draft_probs is None, triton.next_power_of_2(most + 1), rows, columns,
            triton.next_power_of_2(triton.cdiv(vocab, rows * columns)),
        )  # fmt: skip
    return out
