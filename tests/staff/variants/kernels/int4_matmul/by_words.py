"""A scale and a zero point for each word, whatever the group; few rows without tl.dot.

The loop runs over words, and groups may begin anywhere: what belongs to a word is loaded for it, of
large groups once for several steps. Outputs are rows of the tile, parts [S, N, M].
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def of_words(scales, zeros, o, w, mask, G: tl.constexpr, PER: tl.constexpr):
    """[outputs, words]: scale and zero point."""
    g = w // PER
    scale = tl.load(scales + o[:, None] * G + g[None, :], mask=mask, other=0.0)
    word = tl.load(zeros + o[:, None] * ((G + 7) // 8) + (g // 8)[None, :], mask=mask, other=0)
    return scale, (word >> (4 * (g % 8))[None, :]) & 15


@triton.jit
def multiply(
    x, packed, scales, zeros, out, M, N, per_split, by_row, by_output,
    C: tl.constexpr, GROUP: tl.constexpr, TM: tl.constexpr, TO: tl.constexpr, DOT: tl.constexpr,
    EVERY: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    G: tl.constexpr = (C + GROUP - 1) // GROUP
    W: tl.constexpr = (C + 7) // 8
    PER: tl.constexpr = GROUP // 8
    o = tl.program_id(0) * TO + tl.arange(0, TO)
    m = tl.program_id(1) * TM + tl.arange(0, TM)
    split = tl.program_id(2)
    start = split * per_split
    stop = tl.minimum(start + per_split, W)
    acc = tl.zeros((TO, TM), tl.float32)
    for block in range(start, stop, WORDS * EVERY):
        codes_x, only_x = tl.zeros((TO, TM), tl.float32), tl.zeros((TM,), tl.float32)
        for w0 in range(block, tl.minimum(block + WORDS * EVERY, stop), WORDS):
            w = w0 + tl.arange(0, WORDS)
            mask = (o < N)[:, None] & (w < stop)[None, :]
            bits = tl.load(packed + o[:, None] * W + w[None, :], mask=mask, other=0)
            codes = (bits[:, :, None] >> (4 * tl.arange(0, 8))[None, None, :]) & 15
            if EVERY == 1:
                scale, zero = of_words(scales, zeros, o, w, mask, G, PER)
                real = (codes - zero[:, :, None]).to(tl.float32) * scale[:, :, None]
                weight = tl.reshape(real, (TO, WORDS * 8)).to(x.dtype.element_ty)
            else:
                weight = tl.reshape(codes, (TO, WORDS * 8)).to(x.dtype.element_ty)
            i = w0 * 8 + tl.arange(0, WORDS * 8)
            at = m.to(tl.int64)[:, None] * C + i[None, :]
            value = tl.load(x + at, mask=(m < M)[:, None] & (i < C)[None, :], other=0.0)
            only_x += tl.sum(value.to(tl.float32), 1)
            if DOT:
                codes_x = tl.dot(weight, value.T, codes_x, input_precision="ieee")
            else:
                codes_x += tl.sum(weight.to(tl.float32) * value.to(tl.float32), 1)[:, None]
        if EVERY == 1:
            acc += codes_x
        else:  # all of the block are of one group
            g = block // PER
            s = tl.load(scales + o * G + g, mask=o < N, other=0.0)
            z = tl.load(zeros + o * ((G + 7) // 8) + g // 8, mask=o < N, other=0)
            z = ((z >> (4 * (g % 8))) & 15).to(tl.float32)
            acc += s[:, None] * (codes_x - z[:, None] * only_x[None, :])
    place = o.to(tl.int64)[:, None] * by_output + m.to(tl.int64)[None, :] * by_row
    place += split.to(tl.int64) * M * N
    mask = (o < N)[:, None] & (m < M)[None, :]
    tl.store(out + place, acc.to(out.dtype.element_ty), mask=mask)


@triton.jit
def gather(parts, out, N, M, S: tl.constexpr, S2: tl.constexpr, T: tl.constexpr):
    m = tl.program_id(1)
    o = tl.program_id(0) * T + tl.arange(0, T)
    s = tl.arange(0, S2)
    mask = (s < S)[:, None] & (o < N)[None, :]
    part = tl.load(parts + (s[:, None] * N + o[None, :]) * M + m, mask=mask, other=0.0)
    tl.store(out + m * N + o, tl.sum(part, 0).to(out.dtype.element_ty), mask=o < N)


def int4_matmul(
    x: Tensor, packed: Tensor, scales: Tensor, zero_points: Tensor, group: int
) -> Tensor:
    if group < 1 or group % 8:
        raise ValueError(f"group {group}")
    (M, C), N = x.shape, packed.shape[0]
    out = torch.empty((M, N), dtype=x.dtype)
    if not M:
        return out
    words = packed.shape[1]
    group = min(group, words * 8)
    TM = 1 if M == 1 else min(64, max(16, triton.next_power_of_2(M)))
    tiles = triton.cdiv(N, 128) * triton.cdiv(M, TM)
    step = 4 if TM == 64 else 8
    every = group // (8 * step) if group % (8 * step) == 0 else 1
    block = step * every  # words of a block
    splits = max(1, min(128 // tiles, words // 32))
    if group == words * 8 and every > 4:  # a single group, in blocks that programs can share
        every, block = 4, 4 * step
    per_split = triton.cdiv(triton.cdiv(words, splits), block) * block
    splits = triton.cdiv(words, per_split)
    target = out if splits == 1 else torch.empty((splits, N, M), dtype=torch.float32)
    multiply[(triton.cdiv(N, 128), triton.cdiv(M, TM), splits)](
        x, packed, scales, zero_points, target, M, N, per_split,
        *((N, 1) if splits == 1 else (1, M)),
        C=C, GROUP=group, TM=TM, TO=128, DOT=M > 1, EVERY=every,
        WORDS=step,
    )  # fmt: skip
    if splits > 1:
        T = 32
        gather[(triton.cdiv(N, T), M)](
            target, out, N, M, S=splits, S2=triton.next_power_of_2(splits), T=T
        )
    return out
