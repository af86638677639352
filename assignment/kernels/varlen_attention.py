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
    raise NotImplementedError
