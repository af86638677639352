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
    raise NotImplementedError
