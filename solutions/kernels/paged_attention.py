"""Attention of one new token a request over a paged cache, in two kernels.

A decode step is bound by the bytes of the cache, so each should be read once: by one program, for
all query heads that share it. But then a batch of one has only K programs, and a chip has over a
hundred multiprocessors. So the tokens of a request are split among programs too, and a second
kernel puts together what they found (split-KV, "flash decoding").

Axes: B requests with one query each; N query heads on K KV heads, H channels; S splits.
Sources: Kwon et al., 2023, arXiv:2309.06180 (paged); Dao et al., 2022, arXiv:2205.14135 (online
softmax); Milakov and Gimelshein, 2018, arXiv:1805.02867.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

# BEGIN SOLUTION
TILE = 64  # tokens that a program looks at together; twice as many where they are small
MULTIPROCESSORS = 132  # that there should be work for: those of an H100


@triton.jit
def _split_kernel(
    q, k_cache, v_cache, tables, lengths, out, log_sums, scale, table_stride, splits,
    WINDOW: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """The query heads of one KV head, over one split of a request's tokens.

    out: [B, S, N, H]: the mean of the values by the softmax over the split; zeros for no token.
    log_sums: [B, S, N]: log Σ exp(score) over the split; −∞ for no token.
    """
    row, kv_head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    member, column, step = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, TILE)
    head = kv_head * GROUP + member
    there = (member < GROUP)[:, None] & (column < HEAD_DIM)[None, :]
    query = tl.load(
        q + (row * HEADS + head)[:, None] * HEAD_DIM + column[None, :], mask=there, other=0.0
    )
    end = tl.load(lengths + row)
    begin = end * 0
    if WINDOW:
        begin = tl.maximum(end - WINDOW, 0)
    share = tl.cdiv(end - begin, splits)  # tokens of a split
    begin += split * share
    end = tl.minimum(begin + share, end)

    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mean = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(begin, end, TILE):
        token = first + step
        seen = token < end
        block = tl.load(tables + row * table_stride + token // BLOCK, mask=seen, other=0)
        slot = block.to(tl.int64) * BLOCK + token % BLOCK
        place = ((slot * KV_HEADS + kv_head) * HEAD_DIM)[:, None] + column[None, :]
        wanted = seen[:, None] & (column < HEAD_DIM)[None, :]
        keys = tl.load(k_cache + place, mask=wanted, other=0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - new_top[:, None])
        kept = tl.exp(top - new_top)
        values = tl.load(v_cache + place, mask=wanted, other=0.0)
        found = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        mean = mean * kept[:, None] + found
        total = total * kept + tl.sum(weights, 1)
        top = new_top
    total = tl.where(total > 0, total, 1.0)  # of no token: the mean is 0, and top stays −∞
    mean = mean / total[:, None]
    at = (row * splits + split) * HEADS + head
    tl.store(
        out + at[:, None] * HEAD_DIM + column[None, :], mean.to(out.dtype.element_ty), mask=there
    )
    if splits > 1:
        tl.store(log_sums + at, top + tl.log(total), mask=member < GROUP)


@triton.jit
def _combine_kernel(
    parts, log_sums, out, splits,
    HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, MOST: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One query head: the mean of its splits, each weighted by its sum."""
    row, head = tl.program_id(0), tl.program_id(1)
    split, column = tl.arange(0, MOST), tl.arange(0, COLUMNS)
    at = (row * splits + split) * HEADS + head
    there = (split < splits)[:, None] & (column < HEAD_DIM)[None, :]
    log_sum = tl.load(log_sums + at, mask=split < splits, other=float("-inf"))
    top = tl.max(log_sum, 0)
    weights = tl.exp(log_sum - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(weights, 0)
    means = tl.load(parts + at[:, None] * HEAD_DIM + column[None, :], mask=there, other=0.0)
    mean = tl.sum(means * weights[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(
        out + (row * HEADS + head) * HEAD_DIM + column,
        mean.to(out.dtype.element_ty),
        mask=column < HEAD_DIM,
    )


# END SOLUTION


def paged_attention(
    q: Float[Tensor, "B N H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    block_tables: Int[Tensor, "B W"],
    lengths: Int[Tensor, "B"],
    max_length: int,
    scale: float,
    window: int | None = None,
    num_splits: int | None = None,
) -> Float[Tensor, "B N H"]:
    """Attention of each request's newest token over all of its tokens, or the last `window`.

    Args:
        q: float16, bfloat16 or float32; contiguous, as all tensors here. Not changed; nothing is.
            N is a multiple of K: query head n reads KV head n // (N // K).
        k_cache, v_cache: of the dtype of q. Token i of a request lies in slot i % block_size of its
            block i // block_size. What is no token's may hold anything, even NaN.
        block_tables: int32; row b has the blocks of request b, then −1. Requests may share blocks.
        lengths: int32, tokens of each request, the new one included; 0 for a row of a padded batch,
            whose result is zeros.
        max_length: at least the largest length. A launcher that asked the GPU would wait for it.
        scale: factor of the scores, 1/√H mostly.
        window: how many tokens each query sees, its own included. Blocks that lie before it are
            never loaded, and may hold anything.
        num_splits: among how many programs the tokens of a request and KV head are divided, which
            may be more than there are tokens; by default as many as keep an H100 busy.

    Returns:
        In the dtype of q. Scores, softmax and sums in float32. All of it is computed by kernels,
        and the launcher asks the GPU for nothing. Programs of a launch run in any order: none may
        read what another of them writes.

    Hint: keep for each split its mean and log Σ exp(score), and mind the splits that have no token.
    Tensor cores take 16 query heads at once: pad the group with rows that are never stored. About
    90 lines with both kernels.
    """
    # BEGIN SOLUTION
    batch, heads, head_dim = q.shape
    _, block_size, kv_heads, _ = k_cache.shape
    group, columns = heads // kv_heads, max(16, triton.next_power_of_2(head_dim))
    tile = 2 * TILE if columns * q.element_size() <= 128 else TILE
    if num_splits is None:
        longest = min(max_length, window) if window else max_length
        num_splits = _enough_splits(batch * kv_heads, triton.cdiv(longest, tile))
    out = torch.empty_like(q)
    parts, log_sums = out, out
    if num_splits > 1:
        parts = torch.empty(
            batch, num_splits, heads, head_dim, dtype=torch.float32, device=q.device
        )
        log_sums = torch.empty(batch, num_splits, heads, dtype=torch.float32, device=q.device)
    _split_kernel[(batch, kv_heads, num_splits)](
        q, k_cache, v_cache, block_tables, lengths, parts, log_sums, scale, block_tables.stride(0),
        num_splits, WINDOW=window or 0, GROUP=group, HEADS=heads, KV_HEADS=kv_heads,
        HEAD_DIM=head_dim, BLOCK=block_size, TILE=tile,
        ROWS=max(16, triton.next_power_of_2(group)), COLUMNS=columns,
    )  # fmt: skip
    if num_splits > 1:
        _combine_kernel[(batch, heads)](
            parts, log_sums, out, num_splits, HEADS=heads, HEAD_DIM=head_dim,
            MOST=triton.next_power_of_2(num_splits), COLUMNS=columns,
        )  # fmt: skip
    return out
    # END SOLUTION


# BEGIN SOLUTION
def _enough_splits(programs: int, most_tiles: int) -> int:
    """Until every multiprocessor has a program, or a split would be less than a tile."""
    return max(1, min(triton.cdiv(MULTIPROCESSORS, programs), most_tiles))


# END SOLUTION
