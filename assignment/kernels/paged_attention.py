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
    raise NotImplementedError
