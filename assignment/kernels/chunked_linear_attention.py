"""Gated linear attention by chunks: a state in, outputs and the next state out.

Linear attention has no softmax, so all that it remembers is a matrix of fixed size for each head.
Token by token each needs the whole matrix, for few FLOPs. A chunk of tokens is a few products of
matrices: the state is changed once for all of them, and among themselves they attend as usual.

Axes: T rows, the new tokens of all sequences one after the other; B sequences; N heads; D channels
of a query or key, E of a value.
Sources: Dao and Gu, 2024, arXiv:2405.21060 (a gate for each token and head; chunks); Yang et al.,
2023, arXiv:2312.06635 (chunks that keep their state on the chip; a gate for each channel).
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor


def chunked_linear_attention(
    q: Float[Tensor, "T N D"],
    k: Float[Tensor, "T N D"],
    v: Float[Tensor, "T N E"],
    log_decay: Float[Tensor, "T N"],
    state: Float[Tensor, "B N D E"],
    starts: Int[Tensor, "B+1"],
    max_tokens: int,
    scale: float,
) -> tuple[Float[Tensor, "T N E"], Float[Tensor, "B N D E"]]:
    """What each new token reads from its sequence's state, and the states afterwards.

    Token by token, for each sequence and head, from the given state S [D, E]:

        S ← exp(log_decay_t) · S + k_t v_tᵀ        o_t = scale · Sᵀ q_t

    By chunks of C tokens, with G_i the sum of log_decay from the chunk's first token to its i-th:

        o_i = scale · (exp(G_i) · Sᵀ q_i + Σ_{j ≤ i} exp(G_i − G_j) · (q_i · k_j) · v_j)
        S   ← exp(G_C) · S + Σ_j exp(G_C − G_j) · k_j v_jᵀ

    Args:
        q, k, v: float16, bfloat16 or float32; contiguous, as all tensors here. Not changed; nothing
            is.
        log_decay: float32, 0 or less; −∞ is a gate of 0, which forgets the state.
        state: float32. It may be beyond what float16 holds.
        starts: int32, ascending from 0. Rows starts[b] … starts[b + 1] − 1 are sequence b's; there
            may be none. Rows from starts[B] on are padding: they may hold anything, even NaN.
        max_tokens: at least the largest number of a sequence's new tokens.
        scale: factor of the outputs, 1/√D mostly.

    Returns:
        Outputs in the dtype of q (of the padding: anything), and the new states, float32, in a
        tensor of their own: a server may have to go back to the given ones. A sequence without new
        tokens keeps its state. Any split of a sequence into calls gives the same, but for rounding.
        Sums are float32; the factors of a product may be rounded to the dtype of q. All of it is
        computed by kernels, and the launcher asks the GPU for nothing. Programs of a launch run in
        any order: none may read what another of them writes.

    Hint: no exponent here is above 0. exp(−G_j) by itself overflows, and G_i − G_j is −∞ − (−∞)
    where both have a gate of 0 behind them. A program has a tile of columns of S, and keeps it from
    the first chunk to the last. Where its registers run out: factors in the dtype of q, more warps,
    shorter chunks, in this order. About 60 lines.
    """
    raise NotImplementedError
