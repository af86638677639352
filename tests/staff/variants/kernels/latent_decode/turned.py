"""Everything transposed: tokens by heads, channels by heads. exp2; empty splits write no mean, and
others one in the dtype of q."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

NOTHING = tl.constexpr(-1e30)


@triton.jit
def partial(
    out, parts, logs, q_latent, q_rope, cache, tables, lengths, factor, num_splits, table_width,
    N: tl.constexpr, C: tl.constexpr, R: tl.constexpr, C2: tl.constexpr, R2: tl.constexpr,
    M: tl.constexpr, T: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    tile, split, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    n = tile * M + tl.arange(0, M)
    c = tl.arange(0, C2)
    r = tl.arange(0, R2)
    length = tl.load(lengths + b)
    share = tl.cdiv(tl.cdiv(length, num_splits), BLOCK) * BLOCK  # whole blocks
    t0 = split * share
    t1 = tl.minimum(t0 + share, length)
    at_log = (b * num_splits + split) * N + n
    if t0 >= t1 and num_splits > 1:
        tl.store(logs + at_log, tl.full((M,), NOTHING, tl.float32), mask=n < N)
    else:
        members = (n < N)[None, :] & (c < C)[:, None]
        query = tl.load(q_latent + (b * N + n)[None, :] * C + c[:, None], mask=members, other=0)
        query_rope = tl.load(
            q_rope + (b * N + n)[None, :] * R + r[:, None],
            mask=(n < N)[None, :] & (r < R)[:, None],
            other=0,
        )
        m = tl.full((M,), NOTHING, tl.float32)
        z = tl.zeros((M,), tl.float32)
        acc = tl.zeros((C2, M), tl.float32)
        for t in range(t0, t1, T):
            token = t + tl.arange(0, T)
            loaded = token < t1
            entry = tl.load(tables + b * table_width + token // BLOCK, mask=loaded, other=0)
            at = ((entry.to(tl.int64) * BLOCK + token % BLOCK) * (C + R))[:, None]
            inside = loaded[:, None] & (c < C)[None, :]
            latent = tl.load(cache + at + c[None, :], mask=inside, other=0)
            inside = loaded[:, None] & (r < R)[None, :]
            key = tl.load(cache + at + C + r[None, :], mask=inside, other=0)
            x = tl.dot(latent, query, input_precision="ieee")
            x += tl.dot(key, query_rope, input_precision="ieee")
            x = tl.where(loaded[:, None], x * factor, NOTHING * 2)
            m_next = tl.maximum(m, tl.max(x, 0))
            w = tl.exp2(x - m_next[None, :])
            shrink = tl.exp2(m - m_next)
            z = z * shrink + tl.sum(w, 0)
            acc = acc * shrink[None, :]
            acc = tl.dot(latent.T, w.to(latent.dtype), acc, input_precision="ieee")
            m = m_next
        z = tl.where(z == 0, 1.0, z)
        acc = acc / z[None, :]
        if num_splits == 1:
            at_out = out + (b * N + n)[None, :] * C + c[:, None]
            tl.store(at_out, acc.to(out.dtype.element_ty), mask=members)
        else:
            tl.store(parts + at_log[None, :] * C + c[:, None], acc, mask=members)
            tl.store(logs + at_log, m + tl.log2(z), mask=n < N)


@triton.jit
def combined(
    out, parts, logs, num_splits, N: tl.constexpr, C: tl.constexpr, P: tl.constexpr,
    S2: tl.constexpr,
):  # fmt: skip
    n, b = tl.program_id(1), tl.program_id(2)
    s = tl.arange(0, S2)
    c = tl.program_id(0) * P + tl.arange(0, P)
    place = (b * num_splits + s) * N + n
    log = tl.load(logs + place, mask=s < num_splits, other=NOTHING)
    some = log > NOTHING / 2
    w = tl.where(some, tl.exp2(log - tl.max(log, 0)), 0)
    mask = some[:, None] & (c < C)[None, :]
    x = tl.load(parts + place[:, None] * C + c[None, :], mask=mask, other=0)
    z = tl.maximum(tl.sum(w, 0), 0.5)  # at least 1 where there is a token
    x = tl.sum(x * (w / z)[:, None], 0)
    tl.store(out + (b * N + n) * C + c, x.to(out.dtype.element_ty), mask=c < C)


def latent_decode(
    q_latent: Tensor,
    q_rope: Tensor,
    cache: Tensor,
    block_tables: Tensor,
    lengths: Tensor,
    max_length: int,
    scale: float,
    num_splits: int | None = None,
) -> Tensor:
    batch, heads, channels = q_latent.shape
    block, rope = cache.shape[1], q_rope.shape[2]
    rows = 16 if heads <= 16 else 32
    tiles = triton.cdiv(heads, rows)
    if num_splits is None:
        num_splits = max(1, min(64 // (batch * tiles), max_length // 32))
    out = torch.empty_like(q_latent)
    parts = torch.empty(batch, num_splits, heads, channels, dtype=out.dtype)
    logs = torch.empty(batch, num_splits, heads, dtype=torch.float32)
    partial[tiles, num_splits, batch](
        out, parts, logs, q_latent, q_rope, cache, block_tables, lengths, scale / math.log(2),
        num_splits, block_tables.shape[1], heads, channels, rope,
        max(16, triton.next_power_of_2(channels)), max(16, triton.next_power_of_2(rope)), rows,
        16 if q_latent.element_size() == 4 else 64, block, num_warps=8,
    )  # fmt: skip
    if num_splits > 1:
        piece = 32 if num_splits > 16 else 128
        combined[triton.cdiv(channels, piece), heads, batch](
            out, parts, logs, num_splits, heads, channels, piece,
            triton.next_power_of_2(num_splits),
        )  # fmt: skip
    return out
