"""A grid without gaps: each program looks for its request. Tiles that all rows see are not masked;
exp2; a row that sees nothing is set to 0 at the end."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def rows_of(k, starts, table, token, there, H: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    """Offsets of tokens of KV head 0."""
    if BLOCK:
        entry = tl.load(table + token // BLOCK, mask=there, other=0)
        row = entry.to(tl.int64) * BLOCK + token % BLOCK
    else:
        row = tl.load(starts).to(tl.int64) + token
    return row * (K * H)


@triton.jit
def step(
    state, query, k, v, starts, table, kv, first, stop, position, factor,
    MASKED: tl.constexpr, WINDOW: tl.constexpr, K: tl.constexpr, H: tl.constexpr,
    H2: tl.constexpr, BLOCK: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    """One tile of keys more."""
    m, z, acc = state
    h = tl.arange(0, H2)
    token = first + tl.arange(0, T)
    there = token < stop
    offsets = (rows_of(k, starts, table, token, there, H, K, BLOCK) + kv * H)[:, None] + h[None, :]
    mask = there[:, None] & (h < H)[None, :]
    key = tl.load(k + offsets, mask=mask, other=0)
    x = tl.dot(query, key.T, input_precision="ieee") * factor
    if MASKED:
        ahead = position[:, None] - token[None, :]
        ok = ahead >= 0
        if WINDOW:
            ok = ok & (ahead < WINDOW)
        x = tl.where(ok, x, -float("inf"))
    m2 = tl.maximum(m, tl.max(x, 1))
    safe = tl.where(m2 == -float("inf"), 0.0, m2)
    w = tl.exp2(x - safe[:, None])
    shrink = tl.exp2(m - safe)
    value = tl.load(v + offsets, mask=mask, other=0)
    acc = tl.dot(w.to(value.dtype), value, acc=acc * shrink[:, None], input_precision="ieee")
    return m2, z * shrink + tl.sum(w, 1), acc


@triton.jit
def flat(
    out, q, k, v, query_starts, lengths, key_starts, tables, factor, B, table_width,
    B2: tl.constexpr, WINDOW: tl.constexpr, N: tl.constexpr, K: tl.constexpr, H: tl.constexpr,
    H2: tl.constexpr, BLOCK: tl.constexpr, M: tl.constexpr, T: tl.constexpr,
):  # fmt: skip
    kv, program = tl.program_id(0), tl.program_id(1)
    G: tl.constexpr = N // K
    each = tl.arange(0, B2)
    low = tl.load(query_starts + each, mask=each < B, other=0)
    high = tl.load(query_starts + each + 1, mask=each < B, other=0)
    tiles = tl.cdiv((high - low) * G, M)
    ends = tl.cumsum(tiles, 0)
    b = tl.sum((ends <= program).to(tl.int32), 0)  # requests whose tiles are all before this one
    if b < B:
        first_tile = tl.sum(tl.where(each < b, tiles, 0), 0)
        mine = each == b
        start = tl.sum(tl.where(mine, low, 0), 0)
        n = tl.sum(tl.where(mine, high - low, 0), 0)
        length = tl.load(lengths + b)
        r0 = (program - first_tile) * M
        r = r0 + tl.arange(0, M)
        h = tl.arange(0, H2)
        real = r < n * G
        place = (start + r // G).to(tl.int64) * (N * H) + (kv * G + r % G) * H
        place = place[:, None] + h[None, :]
        inside = real[:, None] & (h < H)[None, :]
        query = tl.load(q + place, mask=inside, other=0)
        p0 = length - n + r0 // G
        p1 = length - n + tl.minimum(r0 + M - 1, n * G - 1) // G
        position = tl.where(real, length - n + r // G, p1)
        begin = p0 * 0
        whole = tl.maximum(p0 + 1, 0) // T * T  # tiles before this one are seen by all rows
        if WINDOW:
            begin = tl.maximum(p0 - WINDOW + 1, 0)
            whole = begin
        m = tl.full((M,), -float("inf"), tl.float32)
        z = tl.zeros((M,), tl.float32)
        acc = tl.zeros((M, H2), tl.float32)
        starts = key_starts + b
        table = tables + b * table_width
        for t in range(begin, whole, T):
            m, z, acc = step(
                (m, z, acc), query, k, v, starts, table, kv, t, whole, position, factor,
                False, WINDOW, K, H, H2, BLOCK, T,
            )  # fmt: skip
        for t in range(whole, p1 + 1, T):
            m, z, acc = step(
                (m, z, acc), query, k, v, starts, table, kv, t, p1 + 1, position, factor,
                True, WINDOW, K, H, H2, BLOCK, T,
            )  # fmt: skip
        result = tl.where((z > 0)[:, None], acc / z[:, None], 0.0)
        tl.store(out + place, result.to(out.dtype.element_ty), mask=inside)


def varlen_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    query_starts: Tensor,
    lengths: Tensor,
    max_queries: int,
    scale: float,
    window: int | None = None,
    key_starts: Tensor | None = None,
    block_tables: Tensor | None = None,
) -> Tensor:
    if key_starts is None and block_tables is None:
        raise ValueError("where are the keys? key_starts or block_tables")
    if key_starts is not None and block_tables is not None:
        raise ValueError("key_starts and block_tables exclude each other")
    T, N, H = q.shape
    K, B = k.shape[-2], lengths.shape[0]
    G = N // K
    out = torch.empty_like(q)
    if T == 0:
        return out
    M = max(16, min(64, triton.next_power_of_2(max_queries * G)))
    most = T * G // M + B  # tiles, the last one of each request not full
    flat[K, most](
        out, q, k, v, query_starts, lengths, lengths if key_starts is None else key_starts,
        lengths if block_tables is None else block_tables, scale / math.log(2), B,
        0 if block_tables is None else block_tables.shape[1], triton.next_power_of_2(B),
        window or 0, N, K, H, max(16, triton.next_power_of_2(H)),
        0 if block_tables is None else k.shape[1], M, 32, num_stages=2,
    )  # fmt: skip
    return out
