"""Gates of 0 counted apart; the state transposed; a kernel without products for one token each."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def one_token(
    q, k, v, gates, old, starts, out, new, scale,
    N: tl.constexpr, D: tl.constexpr, E: tl.constexpr, D2: tl.constexpr, M: tl.constexpr,
):  # fmt: skip
    """The recurrence as it stands, in float32."""
    program = tl.program_id(0)
    tiles = tl.cdiv(E, M)
    n, b = program // tiles % N, (program // tiles // N).to(tl.int64)
    d, e = tl.arange(0, D2), program % tiles * M + tl.arange(0, M)
    at = (b * N + n) * D * E + d[:, None] * E + e[None, :]
    inside = (d < D)[:, None] & (e < E)[None, :]
    state = tl.load(old + at, mask=inside, other=0)
    start, end = tl.load(starts + b), tl.load(starts + b + 1)
    if end > start:
        row = start.to(tl.int64) * N + n
        key = tl.load(k + row * D + d, mask=d < D, other=0).to(tl.float32)
        query = tl.load(q + row * D + d, mask=d < D, other=0).to(tl.float32)
        value = tl.load(v + row * E + e, mask=e < E, other=0).to(tl.float32)
        state = state * tl.exp(tl.load(gates + row)) + key[:, None] * value[None, :]
        result = tl.sum(state * query[:, None], 0) * scale
        tl.store(out + row * E + e, result.to(out.dtype.element_ty), mask=e < E)
    tl.store(new + at, state, mask=inside)


@triton.jit
def many_tokens(
    q, k, v, gates, old, starts, out, new, scale,
    N: tl.constexpr, D: tl.constexpr, E: tl.constexpr, D2: tl.constexpr, M: tl.constexpr,
    C: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    tiles = tl.cdiv(E, M)
    n, b = program // tiles % N, (program // tiles // N).to(tl.int64)
    c, d, e = tl.arange(0, C), tl.arange(0, D2), program % tiles * M + tl.arange(0, M)
    base = (b * N + n) * D * E
    state_inside = (e < E)[:, None] & (d < D)[None, :]
    state = tl.load(old + base + e[:, None] + d[None, :] * E, mask=state_inside, other=0)
    t, end = tl.load(starts + b), tl.load(starts + b + 1)
    while t < end:
        exists = t + c < end
        row = (t + c).to(tl.int64) * N + n
        of_keys = exists[:, None] & (d < D)[None, :]
        of_values = exists[:, None] & (e < E)[None, :]
        query = tl.load(q + row[:, None] * D + d[None, :], mask=of_keys, other=0)
        key = tl.load(k + row[:, None] * D + d[None, :], mask=of_keys, other=0)
        value = tl.load(v + row[:, None] * E + e[None, :], mask=of_values, other=0)
        gate = tl.load(gates + row, mask=exists, other=0)
        closed = gate < -1e30
        zeros = tl.cumsum(closed.to(tl.int32), 0)
        total = tl.cumsum(tl.where(closed, 0.0, gate), 0)
        all_zeros = tl.max(zeros, 0)
        whole = tl.sum(tl.where(closed, 0.0, gate), 0)
        sees = (c[:, None] >= c[None, :]) & (zeros[:, None] == zeros[None, :])
        weight = tl.exp(tl.where(sees, total[:, None] - total[None, :], float("-inf"))) * scale
        score = tl.dot(query, key.T, input_precision="ieee") * weight
        before = tl.where(zeros == 0, tl.exp(total), 0.0) * scale
        most = tl.maximum(tl.max(tl.abs(state), 1), 1e-30)
        factor = (state * (1 / most)[:, None]).to(key.dtype)
        result = tl.dot(query, factor.T, input_precision="ieee")
        result = result * most[None, :] * before[:, None]
        result = tl.dot(score.to(value.dtype), value, result, input_precision="ieee")
        tl.store(
            out + row[:, None] * E + e[None, :], result.to(out.dtype.element_ty), mask=of_values
        )
        left = tl.where(zeros == all_zeros, tl.exp(whole - total), 0.0)
        state = state * tl.where(all_zeros == 0, tl.exp(whole), 0.0)
        faded = (value.to(tl.float32) * left[:, None]).to(value.dtype)
        state = tl.dot(faded.T, key, state, input_precision="ieee")
        t += C
    tl.store(new + base + e[:, None] + d[None, :] * E, state, mask=state_inside)


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
    B, N, D, E = state.shape
    D2 = max(16, triton.next_power_of_2(D))
    M = min(64, max(16, triton.next_power_of_2(E)))
    out, new = torch.empty_like(v), torch.empty_like(state)
    tensors = (q, k, v, log_decay, state, starts, out, new, scale)
    grid = (B * N * triton.cdiv(E, M),)
    if max_tokens <= 1:
        one_token[grid](*tensors, N, D, E, D2, M)
    else:
        C = 16 if q.element_size() == 4 else 32
        many_tokens[grid](*tensors, N, D, E, D2, M, C, num_warps=8 if D2 > 64 else 4)
    return out, new
