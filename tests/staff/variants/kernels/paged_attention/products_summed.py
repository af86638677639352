"""Small groups without tl.dot, their products summed. Divided by the total in every step."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def attend(
    q, keys_at, values_at, tables, lengths, means, sums, scale, splits,
    W: tl.constexpr, WINDOW: tl.constexpr, N: tl.constexpr, K: tl.constexpr, H: tl.constexpr,
    BLOCK: tl.constexpr, G: tl.constexpr, D: tl.constexpr, T: tl.constexpr, DOT: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    split = program % splits
    kv = program // splits % K
    b = program // splits // K
    head = kv * (N // K) + tl.arange(0, G)
    is_head = tl.arange(0, G) < N // K
    d = tl.arange(0, D)
    query = tl.load(q + (b * N + head[:, None]) * H + d, mask=is_head[:, None] & (d < H), other=0.0)
    stop = tl.load(lengths + b)
    start = stop - stop
    if WINDOW > 0:
        start = tl.maximum(start, stop - WINDOW)
    count = stop - start
    begin = start + (count * split) // splits  # shares that differ by one token at most
    end = start + (count * (split + 1)) // splits
    largest = tl.full((G,), -3e38, tl.float32)
    total = tl.zeros((G,), tl.float32)
    mean = tl.zeros((G, D), tl.float32)
    t = begin
    while t < end:
        token = t + tl.arange(0, T)
        mask = (token < end)[:, None] & (d < H)[None, :]
        block = tl.load(tables + b * W + token // BLOCK, mask=token < end, other=0).to(tl.int64)
        where = ((block * BLOCK + token % BLOCK) * K + kv)[:, None] * H + d[None, :]
        key = tl.load(keys_at + where, mask=mask, other=0.0)
        value = tl.load(values_at + where, mask=mask, other=0.0)
        if DOT:
            score = tl.dot(query, tl.trans(key), input_precision="ieee")
        else:
            wide = query.to(tl.float32)[:, None, :] * key.to(tl.float32)[None, :, :]
            score = tl.sum(wide, 2)
        score = tl.where((token < end)[None, :], score * scale, -float("inf"))
        now = tl.maximum(largest, tl.max(score, 1))
        weight = tl.exp(score - now[:, None])
        before = total * tl.exp(largest - now)
        total = before + tl.sum(weight, 1)
        if DOT:
            new = tl.dot(weight.to(value.dtype), value, input_precision="ieee")
        else:
            new = tl.sum(weight[:, :, None] * value.to(tl.float32)[None, :, :], 1)
        mean = mean * (before / total)[:, None] + new / total[:, None]  # divided in each step
        largest = now
        t += T
    row = (split * tl.num_programs(0) // splits + b * K + kv) * (N // K) + tl.arange(0, G)
    tl.store(
        means + row[:, None] * H + d[None, :],
        mean.to(means.dtype.element_ty),
        mask=is_head[:, None] & (d < H)[None, :],
    )
    if splits > 1:
        tl.store(sums + row, tl.where(total > 0, largest + tl.log(total), largest), mask=is_head)


@triton.jit
def join(means, sums, out, splits, rows, H: tl.constexpr, D: tl.constexpr, S: tl.constexpr):
    row, s, d = tl.program_id(0), tl.arange(0, S), tl.arange(0, D)
    log = tl.load(sums + s * rows + row, mask=s < splits, other=-float("inf"))
    weight = tl.softmax(log)  # of equal ones, −3e38, where there is no token: of means of 0
    part = tl.load(
        means + (s * rows + row)[:, None] * H + d[None, :],
        mask=(s < splits)[:, None] & (d < H)[None, :],
        other=0.0,
    )
    result = tl.sum(part * weight[:, None], 0)
    tl.store(out + row * H + d, result.to(out.dtype.element_ty), mask=d < H)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    lengths: Tensor,
    max_length: int,
    scale: float,
    window: int | None = None,
    num_splits: int | None = None,
) -> Tensor:
    B, N, H = q.shape
    K = k_cache.shape[2]
    G = triton.next_power_of_2(N // K)
    use_dot = G > 4
    D = max(16, triton.next_power_of_2(H))
    tile = 32 if use_dot else 16
    splits = num_splits or max(1, min(-(-132 // (B * K)), max_length // 64))
    out = torch.empty_like(q)
    means = sums = out
    if splits > 1:
        means = torch.empty((splits, B, N, H), dtype=torch.float32)
        sums = torch.empty((splits, B, N), dtype=torch.float32)
    attend[(splits * B * K,)](
        q, k_cache, v_cache, block_tables, lengths, means, sums, scale, splits,
        W=block_tables.shape[1], WINDOW=window or 0, N=N, K=K, H=H, BLOCK=k_cache.shape[1],
        G=max(16, G) if use_dot else G, D=D, T=tile, DOT=use_dot,
    )  # fmt: skip
    if splits > 1:
        S = triton.next_power_of_2(splits)
        join[(B * N,)](means, sums, out, splits, B * N, H=H, D=D, S=S)
    return out
