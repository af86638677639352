"""Causal attention of many new tokens over what each request has: prefill, whole or in chunks.

In a prefill every token is a query. A program takes a tile of them and walks over the keys, tile by
tile, with an online softmax. What a query may not see lies after it, or before its window:
tiles of such keys are left out, not masked. Requests have as many queries as they like, one
included, so that a step of a server, prompts and decodes together, is one launch.

Axes: B requests with T queries in all; N query heads on K KV heads, H channels.
Sources: Dao, 2023, arXiv:2307.08691 (a program for a tile of queries); Dao et al., 2022,
arXiv:2205.14135 (tiles, online softmax); Agrawal et al., 2023, arXiv:2308.16369 (chunks of a
prefill beside decodes); Kwon et al., 2023, arXiv:2309.06180 (paged).
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

# BEGIN SOLUTION
MOST_ROWS = 64  # query heads of query tokens that a program has


@triton.jit
def _attend_kernel(
    q, k, v, query_starts, lengths, places, out, scale, table_stride,
    PAGED: tl.constexpr, BLOCK: tl.constexpr, WINDOW: tl.constexpr, GROUP: tl.constexpr,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, HEAD_DIM: tl.constexpr, ROWS: tl.constexpr,
    TILE: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A tile of rows of one request and KV head: row r is head r % GROUP of query r // GROUP.

    places: where the tokens of a request lie: its first row, or its row of the block tables.
    """
    tile = tl.num_programs(0) - 1 - tl.program_id(0)  # those with the most keys begin first
    kv_head, request = tl.program_id(1), tl.program_id(2)
    start = tl.load(query_starts + request)
    count = tl.load(query_starts + request + 1) - start
    first_row = tile * ROWS
    if first_row >= count * GROUP:
        return
    row, step, column = tl.arange(0, ROWS) + first_row, tl.arange(0, TILE), tl.arange(0, COLUMNS)
    query = row // GROUP
    head = (start + query).to(tl.int64) * HEADS + kv_head * GROUP + row % GROUP
    place = head[:, None] * HEAD_DIM + column[None, :]
    there = (row < count * GROUP)[:, None] & (column < HEAD_DIM)[None, :]
    queries = tl.load(q + place, mask=there, other=0.0)

    before = tl.load(lengths + request) - count  # the position of the first query
    position = before + query
    last_row = tl.minimum(first_row + ROWS, count * GROUP) - 1
    end = before + last_row // GROUP + 1  # after the last token that a row sees
    begin = end * 0
    if WINDOW:  # the first that a row sees
        begin = tl.maximum(before + first_row // GROUP + 1 - WINDOW, 0)
    if PAGED:
        table = places + request * table_stride
    else:
        first_slot = tl.load(places + request)

    # Not −∞: a row may have seen nothing yet, and −∞ − (−∞) is NaN.
    top = tl.full((ROWS,), -3e38, tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    mean = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(begin, end, TILE):
        token = first + step
        if PAGED:
            block = tl.load(table + token // BLOCK, mask=token < end, other=0)
            slot = block.to(tl.int64) * BLOCK + token % BLOCK
        else:
            slot = (first_slot + token).to(tl.int64)
        at = ((slot * KV_HEADS + kv_head) * HEAD_DIM)[:, None] + column[None, :]
        wanted = (token < end)[:, None] & (column < HEAD_DIM)[None, :]
        keys = tl.load(k + at, mask=wanted, other=0.0)
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale
        seen = token[None, :] <= position[:, None]
        if WINDOW:
            seen &= token[None, :] > position[:, None] - WINDOW
        scores = tl.where(seen, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        weights = tl.exp(scores - new_top[:, None])
        kept = tl.exp(top - new_top)
        values = tl.load(v + at, mask=wanted, other=0.0)
        found = tl.dot(weights.to(values.dtype), values, input_precision="ieee")
        mean = mean * kept[:, None] + found
        total = total * kept + tl.sum(weights, 1)
        top = new_top
    mean = mean / tl.where(total > 0, total, 1.0)[:, None]  # of no token: 0
    tl.store(out + place, mean.to(out.dtype.element_ty), mask=there)


# END SOLUTION


def varlen_attention(
    q: Float[Tensor, "T N H"],
    k: Float[Tensor, "*slots K H"],
    v: Float[Tensor, "*slots K H"],
    query_starts: Int[Tensor, "B_plus_1"],
    lengths: Int[Tensor, "B"],
    max_queries: int,
    scale: float,
    window: int | None = None,
    key_starts: Int[Tensor, "B"] | None = None,
    block_tables: Int[Tensor, "B W"] | None = None,
) -> Float[Tensor, "T N H"]:
    """Attention of each request's newest tokens, each over the tokens up to itself: with p the
    position of a query, softmax over j of scale · q · k_j, for max(0, p − window + 1) ≤ j ≤ p.

    Args:
        q: float16, bfloat16 or float32; contiguous, as all tensors here. Not changed; nothing is.
            N is a multiple of K: query head n reads KV head n // (N // K).
        k, v: of the dtype of q. [C, K, H] with key_starts; [blocks, block_size, K, H] with
            block_tables. What no query of a request sees may hold anything, even NaN, and is not
            loaded.
        query_starts: int32, ascending from 0; request b has rows query_starts[b] …
            query_starts[b + 1] − 1 of q, which may be none. T is the last one.
        lengths: int32, tokens of each request, the n new ones included and last: query i of a
            request is its token lengths[b] − n + i. A query of a token below 0 sees nothing, and
            its result is zeros.
        max_queries: at least the most that a request has. A launcher that asked the GPU would wait.
        scale: factor of the scores, above 0; 1/√H mostly.
        window: how many tokens each query sees, its own included.
        key_starts: int32; token j of request b is row key_starts[b] + j of k and v.
        block_tables: int32; row b has the blocks of request b, then −1: token j lies in slot
            j % block_size of block j // block_size.

    Returns:
        Of the shape and dtype of q: no rows where no request has a query, or there is no request
        (B = 0). Scores, softmax and sums in float32. All of it is computed by kernels, and the
        launcher asks the GPU for nothing.

    Raises:
        ValueError: key_starts and block_tables are both given, or neither is. It names them.

    Hint: let a row of a tile be a pair of query token and query head, so that all heads that share
    a KV head meet its keys together, in a chunk of one token as well; 64 rows are enough. A row may
    see nothing in its program's first tile of keys. Loop bounds may be loaded. Let the compile
    report choose the tile of keys. About 80 lines in all.
    """
    # BEGIN SOLUTION
    if (key_starts is None) == (block_tables is None):
        raise ValueError("give either key_starts or block_tables, and not both")
    _, heads, head_dim = q.shape
    kv_heads, paged = k.shape[-2], block_tables is not None
    group, columns = heads // kv_heads, max(16, triton.next_power_of_2(head_dim))
    out = torch.empty_like(q)
    # Without tensor cores a product lies in registers as a whole: smaller tiles, on more threads.
    is_wide = q.dtype == torch.float32
    most_rows, warps = (MOST_ROWS // 2, 8) if is_wide else (MOST_ROWS, 4)
    rows = min(most_rows, max(16, triton.next_power_of_2(max_queries * group)))
    tile = 32 if is_wide or rows * columns > 64 * 64 else 64  # as registers allow
    stages = 2 if rows * tile > 2048 else 3  # of keys on their way
    _attend_kernel[(triton.cdiv(max_queries * group, rows), kv_heads, len(lengths))](
        q, k, v, query_starts, lengths, block_tables if paged else key_starts, out, scale,
        block_tables.stride(0) if paged else 0, PAGED=paged, BLOCK=k.shape[1] if paged else 0,
        WINDOW=window or 0, GROUP=group, HEADS=heads, KV_HEADS=kv_heads, HEAD_DIM=head_dim,
        ROWS=rows, TILE=tile, COLUMNS=columns, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
    # END SOLUTION
