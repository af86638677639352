"""Latents in two halves of their channels, each loaded once. Sums undivided; splits one by one."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def look_up(table_ptr, position, valid, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    entry = tl.load(table_ptr + position // BLOCK, mask=valid, other=0)
    return (entry.to(tl.int64) * BLOCK + position % BLOCK) * WIDTH


@triton.jit
def halves_kernel(
    ql_ptr, qr_ptr, cache_ptr, table_ptr, length_ptr, sums_ptr, tops_ptr, totals_ptr, out_ptr,
    scale, num_splits, table_width,
    N: tl.constexpr, C: tl.constexpr, R: tl.constexpr, HALF: tl.constexpr, R_PADDED: tl.constexpr,
    ROWS: tl.constexpr, BLOCK: tl.constexpr, T: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    TILES: tl.constexpr = (N + ROWS - 1) // ROWS
    program = tl.program_id(0)
    split = program % num_splits
    b = program // num_splits // TILES
    n = program // num_splits % TILES * ROWS + tl.arange(0, ROWS)
    c, r = tl.arange(0, HALF), tl.arange(0, R_PADDED)
    d = c + HALF
    row = b * N + n
    low = (n < N)[:, None] & (c < C)[None, :]
    high = (n < N)[:, None] & (d < C)[None, :]
    q_low = tl.load(ql_ptr + row[:, None] * C + c[None, :], mask=low, other=0.0)
    q_high = tl.load(ql_ptr + row[:, None] * C + d[None, :], mask=high, other=0.0)
    turned = (n < N)[:, None] & (r < R)[None, :]
    q_rope = tl.load(qr_ptr + row[:, None] * R + r[None, :], mask=turned, other=0.0)

    length = tl.load(length_ptr + b)
    start = (length * split) // num_splits  # shares that differ by one token at most
    stop = (length * (split + 1)) // num_splits
    top = tl.full([ROWS], -1e38, tl.float32)
    total = tl.full([ROWS], 0.0, tl.float32)
    sums_low = tl.full([ROWS, HALF], 0.0, tl.float32)
    sums_high = tl.full([ROWS, HALF], 0.0, tl.float32)
    for t in range(start, stop, T):
        position = t + tl.arange(0, T)
        valid = position < stop
        at = look_up(table_ptr + b * table_width, position, valid, BLOCK, C + R)[:, None]
        here = valid[:, None]
        x_low = tl.load(cache_ptr + at + c[None, :], mask=here & (c < C)[None, :], other=0.0)
        x_high = tl.load(cache_ptr + at + d[None, :], mask=here & (d < C)[None, :], other=0.0)
        key = tl.load(cache_ptr + at + C + r[None, :], mask=here & (r < R)[None, :], other=0.0)
        score = tl.dot(q_rope, key.T, input_precision="ieee")
        score = tl.dot(q_low, x_low.T, score, input_precision="ieee")
        score = tl.dot(q_high, x_high.T, score, input_precision="ieee") * scale
        score = tl.where(valid[None, :], score, -float("inf"))
        above = tl.maximum(top, tl.max(score, axis=1))
        p = tl.exp(score - above[:, None])
        old = tl.exp(top - above)
        total = total * old + tl.sum(p, axis=1)
        p = p.to(x_low.dtype)
        sums_low = tl.dot(p, x_low, sums_low * old[:, None], input_precision="ieee")
        sums_high = tl.dot(p, x_high, sums_high * old[:, None], input_precision="ieee")
        top = above
    if ALONE:
        total = tl.where(total == 0.0, 1.0, total)[:, None]
        kind = out_ptr.dtype.element_ty
        target = out_ptr + row[:, None] * C
        tl.store(target + c[None, :], (sums_low / total).to(kind), mask=low)
        tl.store(target + d[None, :], (sums_high / total).to(kind), mask=high)
    else:
        part = row * num_splits + split  # of [B, N, S]
        tl.store(sums_ptr + part[:, None] * C + c[None, :], sums_low, mask=low)
        tl.store(sums_ptr + part[:, None] * C + d[None, :], sums_high, mask=high)
        tl.store(tops_ptr + part, top, mask=n < N)
        tl.store(totals_ptr + part, total, mask=n < N)


@triton.jit
def together_kernel(
    sums_ptr, tops_ptr, totals_ptr, out_ptr, num_splits,
    C: tl.constexpr, PIECE: tl.constexpr, MOST: tl.constexpr,
):  # fmt: skip
    """A piece of a head's channels: the largest maximum first, and then split after split."""
    row = tl.program_id(0)
    c = tl.program_id(1) * PIECE + tl.arange(0, PIECE)
    s = tl.arange(0, MOST)
    tops = tl.load(tops_ptr + row * num_splits + s, mask=s < num_splits, other=-1e38)
    totals = tl.load(totals_ptr + row * num_splits + s, mask=s < num_splits, other=0.0)
    top = tl.max(tops, 0)
    total = tl.sum(totals * tl.exp(tops - top), 0)
    sums = tl.zeros([PIECE], tl.float32)
    for first in range(0, num_splits, 16):
        i = first + tl.arange(0, 16)
        its_top = tl.load(tops_ptr + row * num_splits + i, mask=i < num_splits, other=-1e38)
        inside = (i < num_splits)[:, None] & (c < C)[None, :]
        place = (row * num_splits + i)[:, None] * C + c[None, :]
        its_sums = tl.load(sums_ptr + place, mask=inside, other=0.0)
        sums += tl.sum(its_sums * tl.exp(its_top - top)[:, None], 0)
    result = sums / tl.maximum(total, 1e-30)
    tl.store(out_ptr + row * C + c, result.to(out_ptr.dtype.element_ty), mask=c < C)


def latent_decode(
    q_latent: Tensor,
    q_rope: Tensor,
    cache: Tensor,
    block_tables: Tensor,
    lengths: Tensor,
    max_length: int,
    scale: float,
    num_splits: int | None = None,
) -> Tensor:
    B, N, C = q_latent.shape
    R = q_rope.shape[2]
    rows = 16 if N <= 16 else 32
    pairs = B * -(-N // rows)
    if num_splits is None:
        num_splits = 1
        while pairs * num_splits < 58 and num_splits * 64 < max_length:
            num_splits += 1
    out = torch.empty_like(q_latent)
    sums = q_latent.new_empty((B, N, num_splits, C), dtype=torch.float32)
    tops, totals = sums.new_empty(2, B, N, num_splits)
    halves_kernel[(pairs * num_splits,)](
        q_latent, q_rope, cache, block_tables, lengths, sums, tops, totals, out, scale, num_splits,
        block_tables.shape[1], N=N, C=C, R=R, HALF=max(16, triton.next_power_of_2(C) // 2),
        R_PADDED=max(16, triton.next_power_of_2(R)), ROWS=rows, BLOCK=cache.shape[1],
        T=16 if q_latent.element_size() == 4 else 64, ALONE=num_splits == 1, num_warps=8,
    )  # fmt: skip
    if num_splits > 1:
        piece = min(32, triton.next_power_of_2(C))
        together_kernel[B * N, -(-C // piece)](
            sums, tops, totals, out, num_splits, C, piece, triton.next_power_of_2(num_splits)
        )
    return out
