"""A kernel for rows of keys and one for blocks. Rows are tokens × heads, the group padded to a
power of two; tiles of keys begin at multiples of their size; 128 rows where most have so many."""

import torch
import triton
import triton.language as tl
from torch import Tensor

LOWEST = tl.constexpr(-1e37)


@triton.jit
def own_rows(
    query_starts, lengths, WINDOW: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    G: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """(token of each row, whether there is one, its head, its position, first and last key)."""
    b, kv, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    first = tl.load(query_starts + b)
    last = tl.load(query_starts + b + 1)
    r = tl.arange(0, TOKENS * G)
    i = tile * TOKENS + r // G
    real = (i < last - first) & (r % G < N // K)
    head = kv * (N // K) + r % G
    offset = tl.load(lengths + b) - (last - first)
    stop = offset + tl.minimum((tile + 1) * TOKENS, last - first)
    if tile * TOKENS >= last - first:
        stop = stop * 0
    begin = stop * 0
    if WINDOW > 0:
        begin = tl.maximum(offset + tile * TOKENS - WINDOW + 1, 0)
    return first + i, real, head, offset + i, begin, stop


@triton.jit
def merge(m, z, acc, query, key, value, ok, scale):
    x = tl.where(ok, tl.dot(query, tl.trans(key), input_precision="ieee") * scale, LOWEST * 10)
    higher = tl.maximum(m, tl.max(x, axis=1))
    p = tl.where(ok, tl.exp(x - higher[:, None]), 0.0)
    alpha = tl.exp(m - higher)
    z = z * alpha + tl.sum(p, axis=1)
    acc = acc * alpha[:, None] + tl.dot(p.to(value.dtype), value, input_precision="ieee")
    return higher, z, acc


@triton.jit
def visible(token, position, WINDOW: tl.constexpr):
    ok = token[None, :] <= position[:, None]
    if WINDOW > 0:
        ok = ok & (position[:, None] - token[None, :] < WINDOW)
    return ok


@triton.jit
def in_rows(
    q, k, v, o, query_starts, lengths, key_starts, scale,
    WINDOW: tl.constexpr, N: tl.constexpr, K: tl.constexpr, G: tl.constexpr, H: tl.constexpr,
    H2: tl.constexpr, TOKENS: tl.constexpr, S: tl.constexpr,
):  # fmt: skip
    i, real, head, position, begin, stop = own_rows(
        query_starts, lengths, WINDOW, N, K, G, TOKENS
    )  # fmt: skip
    h, s = tl.arange(0, H2), tl.arange(0, S)
    mine = (i.to(tl.int64) * (N * H) + head * H)[:, None] + h[None, :]
    mask = real[:, None] & (h < H)[None, :]
    query = tl.load(q + mine, mask=mask, other=0)
    base = tl.load(key_starts + tl.program_id(0)).to(tl.int64) * (K * H) + tl.program_id(1) * H
    m = tl.full((TOKENS * G,), LOWEST, tl.float32)
    z = tl.zeros((TOKENS * G,), tl.float32)
    acc = tl.zeros((TOKENS * G, H2), tl.float32)
    for t in range(begin // S * S, stop, S):
        token = t + s
        loaded = ((token >= begin) & (token < stop))[:, None] & (h < H)[None, :]
        at = base + (token.to(tl.int64) * (K * H))[:, None] + h[None, :]
        key = tl.load(k + at, mask=loaded, other=0)
        value = tl.load(v + at, mask=loaded, other=0)
        ok = visible(token, position, WINDOW) & (token < stop)[None, :]
        m, z, acc = merge(m, z, acc, query, key, value, ok, scale)
    tl.store(o + mine, (acc / tl.maximum(z, 1e-30)[:, None]).to(o.dtype.element_ty), mask=mask)


@triton.jit
def in_blocks(
    q, k, v, o, query_starts, lengths, tables, width, scale,
    WINDOW: tl.constexpr, N: tl.constexpr, K: tl.constexpr, G: tl.constexpr, H: tl.constexpr,
    H2: tl.constexpr, TOKENS: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    i, real, head, position, begin, stop = own_rows(
        query_starts, lengths, WINDOW, N, K, G, TOKENS
    )  # fmt: skip
    h, s = tl.arange(0, H2), tl.arange(0, S)
    mine = (i.to(tl.int64) * (N * H) + head * H)[:, None] + h[None, :]
    mask = real[:, None] & (h < H)[None, :]
    query = tl.load(q + mine, mask=mask, other=0)
    m = tl.full((TOKENS * G,), LOWEST, tl.float32)
    z = tl.zeros((TOKENS * G,), tl.float32)
    acc = tl.zeros((TOKENS * G, H2), tl.float32)
    for t in range(begin // S * S, stop, S):
        token = t + s
        known = (token >= begin) & (token < stop)
        block = tl.load(tables + tl.program_id(0) * width + token // BLOCK, mask=known, other=0)
        row = block.to(tl.int64) * BLOCK + token % BLOCK
        at = ((row * K + tl.program_id(1)) * H)[:, None] + h[None, :]
        loaded = known[:, None] & (h < H)[None, :]
        key = tl.load(k + at, mask=loaded, other=0)
        value = tl.load(v + at, mask=loaded, other=0)
        ok = visible(token, position, WINDOW) & known[None, :]
        m, z, acc = merge(m, z, acc, query, key, value, ok, scale)
    tl.store(o + mine, (acc / tl.maximum(z, 1e-30)[:, None]).to(o.dtype.element_ty), mask=mask)


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
    if len([x for x in (key_starts, block_tables) if x is not None]) != 1:
        raise ValueError("exactly one of key_starts and block_tables, please")
    N, H = q.shape[1:]
    K = k.shape[-2]
    G = triton.next_power_of_2(N // K)
    mean = q.shape[0] * G // max(1, lengths.shape[0])
    rows = 128 if mean >= 128 else 64 if max_queries * G > 32 else 16
    tokens = max(1, rows // G)
    out = torch.empty_like(q)
    grid = (lengths.shape[0], K, triton.cdiv(max_queries, tokens))
    shape = {
        "WINDOW": window or 0, "N": N, "K": K, "G": G, "H": H, "TOKENS": tokens, "S": 32,
        "H2": max(16, triton.next_power_of_2(H)), "num_warps": 8 if rows == 128 else 4,
    }  # fmt: skip
    if key_starts is not None:
        in_rows[grid](q, k, v, out, query_starts, lengths, key_starts, scale, **shape)
    else:
        in_blocks[grid](
            q, k, v, out, query_starts, lengths, block_tables, block_tables.shape[1], scale,
            BLOCK=k.shape[1], **shape,
        )  # fmt: skip
    return out
