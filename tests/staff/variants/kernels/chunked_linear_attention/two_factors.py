"""The state as a sum of two 16-bit factors; each token sees back to the last gate of 0; exp2."""

import math

import triton
import triton.language as tl
from torch import Tensor

LOG2_E = tl.constexpr(math.log2(math.e))


@triton.jit
def rows_of(base, rows, dims, WIDTH: tl.constexpr, mask):
    return tl.load(base + rows[:, None] * WIDTH + dims[None, :], mask=mask, other=0)


@triton.jit
def attend(
    q_at, k_at, v_at, decay_at, given_at, starts, out_at, new_at, scale, N,
    D: tl.constexpr, E: tl.constexpr, D_TILE: tl.constexpr, E_TILE: tl.constexpr,
    C: tl.constexpr, TWO_FACTORS: tl.constexpr,
):  # fmt: skip
    b, n = tl.program_id(0), tl.program_id(1)
    i, d = tl.arange(0, C), tl.arange(0, D_TILE)
    e = tl.program_id(2) * E_TILE + tl.arange(0, E_TILE)
    given_at += (b.to(tl.int64) * N + n) * (D * E)
    new_at += (b.to(tl.int64) * N + n) * (D * E)
    whole = (d[:, None] < D) & (e[None, :] < E)
    S = tl.load(given_at + d[:, None] * E + e[None, :], mask=whole, other=0.0)
    start = tl.load(starts + b)
    count = tl.load(starts + b + 1) - start
    for chunk in range(tl.cdiv(count, C)):
        is_token = chunk * C + i < count
        row = (start + chunk * C + i).to(tl.int64) * N + n
        q = rows_of(q_at, row, d, D, is_token[:, None] & (d[None, :] < D))
        k = rows_of(k_at, row, d, D, is_token[:, None] & (d[None, :] < D))
        v = rows_of(v_at, row, e, E, is_token[:, None] & (e[None, :] < E))
        a = tl.load(decay_at + row, mask=is_token, other=0.0) * LOG2_E
        open_sum = tl.cumsum(tl.maximum(tl.where(a == float("-inf"), 0.0, a), -1e36), 0)
        # The last gate of 0 at or before each token, −1 for none: it sees what is not older.
        below = i[:, None] >= i[None, :]
        closed = below & (a == float("-inf"))[None, :]
        last = tl.max(tl.where(closed, i[None, :], -1), 1)
        sees = below & (i[None, :] >= last[:, None])
        fades = tl.where(sees, tl.exp2(tl.minimum(open_sum[:, None] - open_sum[None, :], 0)), 0.0)
        scores = (tl.dot(q, tl.trans(k), input_precision="ieee") * (fades * scale)).to(v.dtype)
        since = tl.where(last < 0, tl.exp2(open_sum), 0.0)
        largest = tl.maximum(tl.max(tl.abs(S)), 1e-30)
        unit = S * (1.0 / largest)
        first = unit.to(q.dtype)
        old = tl.dot(q, first, input_precision="ieee")
        if TWO_FACTORS:
            old += tl.dot(q, (unit - first.to(tl.float32)).to(q.dtype), input_precision="ieee")
        o = tl.dot(scores, v, input_precision="ieee") + old * (since * (largest * scale))[:, None]
        tl.store(
            out_at + row[:, None] * E + e[None, :],
            o.to(out_at.dtype.element_ty),
            mask=is_token[:, None] & (e[None, :] < E),
        )
        is_last = i == C - 1
        to_end = tl.sum(tl.where(is_last[:, None], fades, 0.0), 0)
        faded = (k.to(tl.float32) * to_end[:, None]).to(k.dtype)
        S = S * tl.sum(tl.where(is_last, since, 0.0), 0)
        S += tl.dot(tl.trans(faded), v, input_precision="ieee")
    tl.store(new_at + d[:, None] * E + e[None, :], S, mask=whole)


def chunked_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    state: Tensor,
    starts: Tensor,
    max_tokens: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    sequences, heads, D, E = state.shape
    out = v.new_empty(v.shape)
    new = state.new_empty(state.shape)
    tiles = [1 << max(4, (dim - 1).bit_length()) for dim in (D, min(E, 64))]
    attend[sequences, heads, -(-E // tiles[1])](
        q, k, v, log_decay, state, starts, out, new, scale, heads, D, E, *tiles, C=32,
        TWO_FACTORS=q.element_size() == 2, num_warps=8 if max(tiles) > 64 else 4, num_stages=1,
    )  # fmt: skip
    return out, new
