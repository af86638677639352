"""A tile is a block. Splits keep sums, maxima and undivided means; combined by KV head."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def blocks_kernel(
    q_ptr, k_ptr, v_ptr, table_ptr, length_ptr, sums_ptr, tops_ptr, totals_ptr, out_ptr, scale,
    num_splits, table_width, kv_heads,
    WINDOW: tl.constexpr, G: tl.constexpr, G_PADDED: tl.constexpr, H: tl.constexpr,
    H_PADDED: tl.constexpr, BLOCK: tl.constexpr, BLOCK_PADDED: tl.constexpr, ALONE: tl.constexpr,
):  # fmt: skip
    split, pair = tl.program_id(0), tl.program_id(1)
    b, kv = pair // kv_heads, pair % kv_heads
    g, h, s = tl.arange(0, G_PADDED), tl.arange(0, H_PADDED), tl.arange(0, BLOCK_PADDED)
    inside = (g < G)[:, None] & (h < H)[None, :]
    rows = pair * G + g  # of [B · N]
    q = tl.load(q_ptr + rows[:, None] * H + h[None, :], mask=inside, other=0.0)
    length = tl.load(length_ptr + b)
    oldest = 0
    if WINDOW > 0:
        oldest = tl.maximum(length - WINDOW, 0)
    first_block = oldest // BLOCK
    after = (length + BLOCK - 1) // BLOCK
    each = (after - first_block + num_splits - 1) // num_splits
    start = first_block + split * each
    stop = tl.minimum(start + each, after)

    top = tl.full([G_PADDED], -float("inf"), tl.float32)
    total = tl.full([G_PADDED], 0.0, tl.float32)
    sums = tl.full([G_PADDED, H_PADDED], 0.0, tl.float32)
    for i in range(start, stop):
        block = tl.load(table_ptr + b * table_width + i).to(tl.int64)
        position = i * BLOCK + s
        visible = (s < BLOCK) & (position < length) & (position >= oldest)
        offsets = block * (BLOCK * kv_heads * H) + (s * kv_heads + kv)[:, None] * H + h[None, :]
        mask = visible[:, None] & (h < H)[None, :]
        k = tl.load(k_ptr + offsets, mask=mask, other=0.0)
        v = tl.load(v_ptr + offsets, mask=mask, other=0.0)
        score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        score = tl.where(visible[None, :], score, -float("inf"))
        above = tl.maximum(top, tl.max(score, axis=1))
        p = tl.exp(score - above[:, None])
        old = tl.exp(top - above)
        total = total * old + tl.sum(p, axis=1)
        sums = tl.dot(p.to(v.dtype), v, acc=sums * old[:, None], input_precision="ieee")
        top = above
    if ALONE:
        result = sums / tl.where(total == 0.0, 1.0, total)[:, None]
        target = out_ptr + rows[:, None] * H + h[None, :]
        tl.store(target, result.to(out_ptr.dtype.element_ty), mask=inside)
    else:
        part = (pair * num_splits + split) * G + g  # of [B, K, S, G]
        tl.store(sums_ptr + part[:, None] * H + h[None, :], sums, mask=inside)
        tl.store(tops_ptr + part, top, mask=g < G)
        tl.store(totals_ptr + part, total, mask=g < G)


@triton.jit
def together_kernel(
    sums_ptr, tops_ptr, totals_ptr, out_ptr, num_splits,
    G: tl.constexpr, G_PADDED: tl.constexpr, H: tl.constexpr, H_PADDED: tl.constexpr,
):  # fmt: skip
    """All query heads of a KV head, one split after the other."""
    pair = tl.program_id(0)
    g, h = tl.arange(0, G_PADDED), tl.arange(0, H_PADDED)
    inside = (g < G)[:, None] & (h < H)[None, :]
    top = tl.full([G_PADDED], -1e38, tl.float32)
    total = tl.full([G_PADDED], 0.0, tl.float32)
    sums = tl.full([G_PADDED, H_PADDED], 0.0, tl.float32)
    for split in range(num_splits):
        part = (pair * num_splits + split) * G + g
        its_top = tl.load(tops_ptr + part, mask=g < G, other=-1e38)
        its_total = tl.load(totals_ptr + part, mask=g < G, other=0.0)
        its_sums = tl.load(sums_ptr + part[:, None] * H + h[None, :], mask=inside, other=0.0)
        above = tl.maximum(top, its_top)
        old, new = tl.exp(top - above), tl.exp(its_top - above)
        total = total * old + its_total * new
        sums = sums * old[:, None] + its_sums * new[:, None]
        top = above
    result = sums / tl.maximum(total, 1e-30)[:, None]
    target = out_ptr + (pair * G + g)[:, None] * H + h[None, :]
    tl.store(target, result.to(out_ptr.dtype.element_ty), mask=inside)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    lengths: Tensor,
    max_length: int,
    scale: float,
    window: int | None = None,
    num_splits: int | None = None,
) -> Tensor:
    B, N, H = q.shape
    block_size, K = k_cache.shape[1], k_cache.shape[2]
    G = N // K
    if num_splits is None:
        num_splits = 1
        while B * K * num_splits < 108 and num_splits * 4 * block_size < max_length:
            num_splits += 1
    out = torch.empty_like(q)
    sums = q.new_empty((B, K, num_splits, G, H), dtype=torch.float32)
    tops, totals = sums.new_empty(2, B, K, num_splits, G)
    padded = {
        "G": G,
        "G_PADDED": max(16, triton.next_power_of_2(G)),
        "H": H,
        "H_PADDED": max(16, triton.next_power_of_2(H)),
    }
    blocks_kernel[num_splits, B * K](
        q, k_cache, v_cache, block_tables, lengths, sums, tops, totals, out, scale, num_splits,
        block_tables.shape[1], K, WINDOW=0 if window is None else window, BLOCK=block_size,
        BLOCK_PADDED=max(16, triton.next_power_of_2(block_size)), ALONE=num_splits == 1, **padded,
    )  # fmt: skip
    if num_splits > 1:
        together_kernel[(B * K,)](sums, tops, totals, out, num_splits, **padded)
    return out
