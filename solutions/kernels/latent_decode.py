"""Decoding with absorbed latent attention: one cached row a token is key and value of all heads.

With the up-projections absorbed (see `attention.latent`), all N query heads attend to the same
latents, and what they sum are these latents again. So one load serves both products, and as many
heads as a program's registers have room for: 32 rows of 512 sums in float32. Other heads are other
programs, which load the latents once more. A long request is split among programs, as in paged
attention.

Axes: B requests with one query each; N heads; C channels of a latent; R rotary channels; S splits.
Sources: DeepSeek-AI, 2024, arXiv:2405.04434, §2.1; Dao et al., 2022, arXiv:2205.14135 (online
softmax); Kwon et al., 2023, arXiv:2309.06180 (paged).
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

# BEGIN SOLUTION
HEADS_TOGETHER = 32  # in a program: sums of 64 × 512 float32 leave its threads no register free
ENOUGH = 64  # programs, to take in all that an H100's memory gives: 58 multiprocessors do
COMBINED = 2048  # numbers that a program of the second kernel puts together


@triton.jit
def _split_kernel(
    q_latent, q_rope, cache, tables, lengths, out, log_sums, scale, table_stride, splits,
    HEADS: tl.constexpr, LATENT: tl.constexpr, ROPE: tl.constexpr, BLOCK: tl.constexpr,
    TILE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ROPE_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Some heads, over one split of a request's tokens.

    out: [B, S, N, C]: the mean of the latents by the softmax over the split; zeros for no token.
    log_sums: [B, N, S]: log Σ exp(score) over the split; −∞ for no token.
    """
    row, split = tl.program_id(0), tl.program_id(2)
    head = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column, turned, step = tl.arange(0, COLUMNS), tl.arange(0, ROPE_COLUMNS), tl.arange(0, TILE)
    is_head, is_latent, is_rope = head < HEADS, column < LATENT, turned < ROPE
    there = is_head[:, None] & is_latent[None, :]
    query = (row * HEADS + head)[:, None]
    content = tl.load(q_latent + query * LATENT + column[None, :], mask=there, other=0.0)
    position = tl.load(
        q_rope + query * ROPE + turned[None, :], mask=is_head[:, None] & is_rope[None, :], other=0.0
    )
    length = tl.load(lengths + row)
    share = tl.cdiv(length, splits)  # tokens of a split
    begin = split * share
    end = tl.minimum(begin + share, length)

    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mean = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(begin, end, TILE):
        token = first + step
        seen = token < end
        block = tl.load(tables + row * table_stride + token // BLOCK, mask=seen, other=0)
        slot = block.to(tl.int64) * BLOCK + token % BLOCK
        place = (slot * (LATENT + ROPE))[:, None]
        latents = tl.load(
            cache + place + column[None, :], mask=seen[:, None] & is_latent[None, :], other=0.0
        )
        keys = tl.load(
            cache + place + LATENT + turned[None, :], mask=seen[:, None] & is_rope[None, :],
            other=0.0,
        )  # fmt: skip
        scores = tl.dot(content, tl.trans(latents), input_precision="ieee")
        scores = tl.dot(position, tl.trans(keys), scores, input_precision="ieee") * scale
        scores = tl.where(seen[None, :], scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - new_top[:, None])
        kept = tl.exp(top - new_top)
        mean = mean * kept[:, None]
        mean = tl.dot(weights.to(latents.dtype), latents, mean, input_precision="ieee")
        total = total * kept + tl.sum(weights, 1)
        top = new_top
    total = tl.where(total > 0, total, 1.0)  # of no token: the mean is 0, and top stays −∞
    mean = mean / total[:, None]
    place = ((row * splits + split) * HEADS + head)[:, None] * LATENT + column[None, :]
    tl.store(out + place, mean.to(out.dtype.element_ty), mask=there)
    if splits > 1:
        at = (row * HEADS + head) * splits + split
        tl.store(log_sums + at, top + tl.log(total), mask=is_head)


@triton.jit
def _combine_kernel(
    parts, log_sums, out, splits,
    HEADS: tl.constexpr, LATENT: tl.constexpr, MOST: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Some channels of one head: the mean of its splits, each weighted by its sum."""
    row, head = tl.program_id(0), tl.program_id(1)
    split, column = tl.arange(0, MOST), tl.program_id(2) * COLUMNS + tl.arange(0, COLUMNS)
    at = (row * HEADS + head) * splits + split
    log_sum = tl.load(log_sums + at, mask=split < splits, other=float("-inf"))
    top = tl.max(log_sum, 0)
    weights = tl.exp(log_sum - tl.where(top == float("-inf"), 0.0, top))
    total = tl.sum(weights, 0)
    place = ((row * splits + split) * HEADS + head)[:, None] * LATENT + column[None, :]
    there = (split < splits)[:, None] & (column < LATENT)[None, :]
    means = tl.load(parts + place, mask=there, other=0.0)
    mean = tl.sum(means * weights[:, None], 0) / tl.where(total > 0, total, 1.0)
    tl.store(
        out + (row * HEADS + head) * LATENT + column,
        mean.to(out.dtype.element_ty),
        mask=column < LATENT,
    )


# END SOLUTION


def latent_decode(
    q_latent: Float[Tensor, "B N C"],
    q_rope: Float[Tensor, "B N R"],
    cache: Float[Tensor, "blocks block_size width"],
    block_tables: Int[Tensor, "B W"],
    lengths: Int[Tensor, "B"],
    max_length: int,
    scale: float,
    num_splits: int | None = None,
) -> Float[Tensor, "B N C"]:
    """Attention of each request's newest token over the latents of all of its tokens.

        score[n, j] = scale · (q_latent[n] · latent[j] + q_rope[n] · k_rope[j])
        result[n] = Σ_j softmax(score[n])[j] · latent[j]

    Args:
        q_latent: the absorbed queries, k_upᵀ q_nope; float16, bfloat16 or float32; contiguous, as
            all tensors here. Not changed; nothing is.
        q_rope: the rotated parts of the queries. It and the cache are of the dtype of q_latent.
        cache: a token's row is its latent, C numbers, and then its rotated key, R numbers, for all
            heads; width = C + R. Token i of a request lies in slot i % block_size of its block
            i // block_size. What is no token's may hold anything, even NaN.
        block_tables: int32; row b has the blocks of request b, then −1. Requests may share blocks.
        lengths: int32, tokens of each request, the new one included; 0 for a row of a padded batch,
            whose result is zeros.
        max_length: at least the largest length. A launcher that asked the GPU would wait for it.
        scale: factor of the scores: the caller's, 1/√(P + R) with the P channels that q_nope had.
            Neither C nor C + R says anything about it.
        num_splits: among how many programs the tokens of a request are divided, for each tile of
            heads; there may be more than tokens. By default as many as an H100 is fastest with.

    Returns:
        In the dtype of q_latent, what v_up is still to be applied to. Scores, softmax and sums in
        float32; the mean of a split may be rounded to the dtype of q_latent on its way. All of it
        is computed by kernels, and the launcher asks the GPU for nothing. Programs of a launch run
        in any order: none may read what another of them writes.

    Hint: a tile of latents that was loaded once can stand in two products, transposed in the first.
    The cache should be read once for 32 heads; the compile report says how many tokens and warps
    that leaves you at C = 512, R = 64. What a split writes and reads is as much as the latents of
    64 tokens if N = 16: do not split further than it takes. About 110 lines with both kernels.
    """
    # BEGIN SOLUTION
    batch, heads, latent_dim = q_latent.shape
    rope_dim, block_size = q_rope.shape[2], cache.shape[1]
    rows = HEADS_TOGETHER if heads > 16 else 16
    tile = 2 * rows if q_latent.element_size() == 2 else 16  # tokens, as many as spill nothing
    columns, rope_columns = (max(16, triton.next_power_of_2(dim)) for dim in (latent_dim, rope_dim))
    tiles = triton.cdiv(heads, rows)
    if num_splits is None:
        most = triton.cdiv(max_length, tile)
        num_splits = max(1, min(triton.cdiv(ENOUGH, batch * tiles), most))
    out = torch.empty_like(q_latent)
    parts, log_sums = out, out
    if num_splits > 1:
        wide = {"dtype": torch.float32, "device": q_latent.device}
        parts = torch.empty(batch, num_splits, heads, latent_dim, **wide)
        log_sums = torch.empty(batch, heads, num_splits, **wide)
    _split_kernel[(batch, tiles, num_splits)](
        q_latent, q_rope, cache, block_tables, lengths, parts, log_sums, scale,
        block_tables.stride(0), num_splits, HEADS=heads, LATENT=latent_dim, ROPE=rope_dim,
        BLOCK=block_size, TILE=tile, ROWS=rows, COLUMNS=columns, ROPE_COLUMNS=rope_columns,
        num_warps=rows // 4,
    )  # fmt: skip
    if num_splits > 1:
        most = triton.next_power_of_2(num_splits)
        together = max(16, min(columns, COMBINED // most))
        _combine_kernel[(batch, heads, triton.cdiv(latent_dim, together))](
            parts, log_sums, out, num_splits, HEADS=heads, LATENT=latent_dim, MOST=most,
            COLUMNS=together,
        )  # fmt: skip
    return out
    # END SOLUTION
