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

# BEGIN SOLUTION
CHUNK = 32  # tokens; half as many where they are few, or of float32
TILE = 64  # columns of the values that a program has


@triton.jit
def _chunks_kernel(
    q, k, v, log_decay, state, starts, out, new_state, scale,
    HEADS: tl.constexpr, KEY_DIM: tl.constexpr, VALUE_DIM: tl.constexpr,
    CHUNK: tl.constexpr, COLUMNS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """One sequence and head, and a tile of the values' columns: chunk after chunk."""
    first_column, head = tl.program_id(0) * TILE, tl.program_id(1)
    row, step = tl.program_id(2).to(tl.int64), tl.arange(0, CHUNK)
    column, value_column = tl.arange(0, COLUMNS), first_column + tl.arange(0, TILE)
    is_key, is_value = (column < KEY_DIM)[None, :], (value_column < VALUE_DIM)[None, :]
    in_state = (column < KEY_DIM)[:, None] & is_value
    state_place = column[:, None] * VALUE_DIM + value_column[None, :]
    own = (row * HEADS + head) * KEY_DIM * VALUE_DIM
    memory = tl.load(state + own + state_place, mask=in_state, other=0.0)  # S
    end = tl.load(starts + row + 1)
    for first in range(tl.load(starts + row), end, CHUNK):
        token = first + step
        there = token < end
        at = token.to(tl.int64) * HEADS + head
        key_place = at[:, None] * KEY_DIM + column[None, :]
        value_place = at[:, None] * VALUE_DIM + value_column[None, :]
        queries = tl.load(q + key_place, mask=there[:, None] & is_key, other=0.0)
        keys = tl.load(k + key_place, mask=there[:, None] & is_key, other=0.0)
        values = tl.load(v + value_place, mask=there[:, None] & is_value, other=0.0)
        decay = tl.load(log_decay + at, mask=there, other=0.0)
        # Sums of what lies between two tokens, and no differences of sums: those lose digits, and
        # after a gate of 0 they are −∞ − (−∞).
        since_start = tl.cumsum(decay, 0)
        between = tl.cumsum(tl.where(step[:, None] > step[None, :], decay[:, None], 0.0), 0)
        weights = tl.where(step[:, None] >= step[None, :], tl.exp(between), 0.0)
        to_end = tl.exp(tl.sum(tl.where(step[:, None] > step[None, :], decay[:, None], 0.0), 0))

        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * weights * scale
        found = tl.dot(scores.to(values.dtype), values, input_precision="ieee")
        # float16 ends at 65,504, so columns of S are scaled to 1 (of zeros, or hardly more: less).
        top = tl.maximum(tl.max(tl.abs(memory), 0), 1e-30)[None, :]
        factor = (memory * (1.0 / top)).to(keys.dtype)
        remembered = tl.dot(queries, factor, input_precision="ieee") * top
        found += remembered * (tl.exp(since_start) * scale)[:, None]
        tl.store(out + value_place, found.to(out.dtype.element_ty), mask=there[:, None] & is_value)
        faded = (values * to_end[:, None]).to(values.dtype)
        memory *= tl.exp(tl.sum(decay, 0))
        memory += tl.dot(tl.trans(keys), faded, input_precision="ieee")
    tl.store(new_state + own + state_place, memory, mask=in_state)


# END SOLUTION


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
    # BEGIN SOLUTION
    _, heads, key_dim = q.shape
    value_dim = v.shape[2]
    out, new_state = torch.empty_like(v), torch.empty_like(state)
    columns, tile = (max(16, triton.next_power_of_2(dim)) for dim in (key_dim, value_dim))
    tile = min(tile, TILE)
    are_few, width = max_tokens <= CHUNK // 2, q.element_size()
    chunk = CHUNK // 2 if are_few or width == 4 else CHUNK
    is_large = width == 4 or chunk * columns > 2048
    _chunks_kernel[(triton.cdiv(value_dim, tile), heads, len(state))](
        q, k, v, log_decay, state, starts, out, new_state, scale, HEADS=heads, KEY_DIM=key_dim,
        VALUE_DIM=value_dim, CHUNK=chunk, COLUMNS=columns, TILE=tile,
        num_warps=8 if is_large else 4, num_stages=1 if are_few else 2,
    )  # fmt: skip
    return out, new_state
    # END SOLUTION
