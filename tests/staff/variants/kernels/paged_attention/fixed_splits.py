"""Splits of 256 tokens; exp2; empty splits write only that they are; windows begin at a block."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

PER_SPLIT = 256
NOTHING = tl.constexpr(-1e30)


@triton.jit
def tile_of(cache, rows, columns, mask):
    return tl.load(cache + rows[:, None] + columns[None, :], mask=mask, other=0)


@triton.jit
def partial(
    out, parts, logs, q, k_cache, v_cache, tables, lengths, factor, num_splits, table_width,
    WINDOW: tl.constexpr, N: tl.constexpr, K: tl.constexpr, H: tl.constexpr, H2: tl.constexpr,
    M: tl.constexpr, T: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    kv, split, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    GROUP: tl.constexpr = N // K
    h = tl.arange(0, H2)
    i = tl.arange(0, M)
    n = tl.load(lengths + b)
    low = n * 0
    if WINDOW:
        low = tl.maximum(n - WINDOW, 0)
    base = low // BLOCK * BLOCK
    per_split = tl.cdiv(n - base, num_splits)
    per_split = tl.cdiv(per_split, T) * T
    t0 = base + split * per_split
    t1 = tl.minimum(t0 + per_split, n)
    place = (b * num_splits + split) * N + kv * GROUP + i
    if t0 >= t1 and num_splits > 1:
        tl.store(logs + place, tl.full((M,), NOTHING, tl.float32), mask=i < GROUP)
    else:
        members = (i < GROUP)[:, None] & (h < H)[None, :]
        at = (b * N + kv * GROUP + i)[:, None] * H + h[None, :]
        query = tl.load(q + at, mask=members, other=0)
        m = tl.full((M,), NOTHING, tl.float32)
        z = tl.zeros((M,), tl.float32)
        acc = tl.zeros((M, H2), tl.float32)
        for t in range(t0, t1, T):
            positions = t + tl.arange(0, T)
            loaded = (positions < t1) & (positions >= low)
            entry = tl.load(tables + b * table_width + positions // BLOCK, mask=loaded, other=0)
            rows = (entry.to(tl.int64) * BLOCK + positions % BLOCK) * (K * H) + kv * H
            mask = loaded[:, None] & (h < H)[None, :]
            x = tl.dot(query, tile_of(k_cache, rows, h, mask).T, input_precision="ieee") * factor
            x = tl.where(loaded[None, :], x, NOTHING * 2)
            m_next = tl.maximum(m, tl.max(x, 1))
            w = tl.exp2(x - m_next[:, None])
            shrink = tl.exp2(m - m_next)
            z = z * shrink + tl.sum(w, 1)
            v = tile_of(v_cache, rows, h, mask)
            acc = acc * shrink[:, None] + tl.dot(w.to(v.dtype), v, input_precision="ieee")
            m = m_next
        z = tl.where(z == 0, 1.0, z)
        acc = acc / z[:, None]
        if num_splits == 1:
            tl.store(out + at, acc.to(out.dtype.element_ty), mask=members)
        else:
            tl.store(parts + place[:, None] * H + h[None, :], acc, mask=members)
            tl.store(logs + place, m + tl.log2(z), mask=i < GROUP)


@triton.jit
def combined(
    out, parts, logs, num_splits, N: tl.constexpr, H: tl.constexpr, H2: tl.constexpr,
    S2: tl.constexpr,
):  # fmt: skip
    n, b = tl.program_id(0), tl.program_id(1)
    s, h = tl.arange(0, S2), tl.arange(0, H2)
    place = (b * num_splits + s) * N + n
    log = tl.load(logs + place, mask=s < num_splits, other=NOTHING)
    some = log > NOTHING / 2
    w = tl.where(some, tl.exp2(log - tl.max(log, 0)), 0)
    mask = some[:, None] & (h < H)[None, :]
    x = tl.load(parts + place[:, None] * H + h[None, :], mask=mask, other=0)
    z = tl.maximum(tl.sum(w, 0), 0.5)  # at least 1 where there is a token
    x = tl.sum(x * (w / z)[:, None], 0)
    tl.store(out + (b * N + n) * H + h, x.to(out.dtype.element_ty), mask=h < H)


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
    batch, heads, head_dim = q.shape
    _, block, kv_heads, _ = k_cache.shape
    if num_splits is None:
        num_splits = max(1, -(-min(max_length, window or max_length) // PER_SPLIT))
    padded = max(16, triton.next_power_of_2(head_dim))
    out = torch.empty_like(q)
    parts = torch.empty(batch, num_splits, heads, head_dim, dtype=torch.float32)
    logs = torch.empty(batch, num_splits, heads, dtype=torch.float32)
    partial[kv_heads, num_splits, batch](
        out, parts, logs, q, k_cache, v_cache, block_tables, lengths, scale / math.log(2),
        num_splits, block_tables.shape[1], window or 0, heads, kv_heads, head_dim, padded,
        max(16, triton.next_power_of_2(heads // kv_heads)), 32 if q.element_size() == 4 else 64,
        block,
    )  # fmt: skip
    if num_splits > 1:
        combined[heads, batch](
            out, parts, logs, num_splits, heads, head_dim, padded,
            triton.next_power_of_2(num_splits),
        )  # fmt: skip
    return out
