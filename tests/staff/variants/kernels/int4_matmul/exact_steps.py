"""Integers are multiplied, in 16 bits exact; the scale is put on their sums.

A loop over groups, and one over the steps of a group. A word of zero points is loaded when its
first group comes. Splits are of whole groups, or of pieces of the only one.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def spread(words, N: tl.constexpr, K: tl.constexpr):
    shifts = tl.arange(0, 8) * 4
    return tl.reshape((words[:, :, None] >> shifts[None, None, :]) & 0xF, (N, K))


@triton.jit
def grouped(
    x, packed, scales, zero_points, out, M, N, each, C: tl.constexpr,
    GROUP: tl.constexpr, ONE: tl.constexpr, K: tl.constexpr, TM: tl.constexpr, TO: tl.constexpr,
):  # fmt: skip
    words: tl.constexpr = tl.cdiv(C, 8)
    groups: tl.constexpr = tl.cdiv(C, GROUP)
    m = tl.program_id(1) * TM + tl.arange(0, TM)
    o = tl.program_id(0) * TO + tl.arange(0, TO)
    split = tl.program_id(2)
    first = split * each
    total = tl.zeros((TM, TO), tl.float32)
    zeros = tl.zeros((TO,), tl.int32)
    for g in range(first, tl.minimum(first + each, groups)):
        own = 0 if ONE else g
        if (g == first) | (g % 8 == 0):
            zeros = tl.load(
                zero_points + (o if ONE else o * tl.cdiv(groups, 8)) + own // 8, mask=o < N, other=0
            )
        zero = (zeros >> (own % 8) * 4) & 0xF
        row = o if ONE else o * groups
        scale = tl.load(scales + row + own, mask=o < N, other=0.0)
        sums = tl.zeros((TM, TO), tl.float32)
        start = g * GROUP
        stop = tl.minimum(start + GROUP, C)
        for piece in range(tl.cdiv(stop - start, K)):
            i = start + piece * K + tl.arange(0, K)
            w = g * (GROUP // 8) + piece * (K // 8) + tl.arange(0, K // 8)
            is_word = w < tl.minimum((g + 1) * (GROUP // 8), words)
            mask = (o < N)[:, None] & is_word[None, :]
            codes = tl.load(packed + o[:, None] * words + w[None, :], mask=mask, other=0)
            mask = (m < M)[:, None] & (i < stop)[None, :]
            rows = tl.load(x + m.to(tl.int64)[:, None] * C + i[None, :], mask=mask, other=0)
            steps = (spread(codes, TO, K) - zero[:, None]).to(rows.dtype)
            sums = tl.dot(rows, tl.trans(steps), sums, input_precision="ieee")
        total += sums * scale[None, :]
    place = (split * M + m).to(tl.int64)[:, None] * N + o[None, :]
    tl.store(place + out, total.to(out.dtype.element_ty), mask=(m < M)[:, None] & (o < N)[None, :])


@triton.jit
def added(parts, out, n, splits, T: tl.constexpr):
    at = tl.program_id(0) * T + tl.arange(0, T)
    total = tl.zeros((T,), tl.float32)
    for split in range(splits):
        total += tl.load(parts + split * n + at, mask=at < n, other=0.0)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < n)


def int4_matmul(
    x: Tensor, packed: Tensor, scales: Tensor, zero_points: Tensor, group: int
) -> Tensor:
    if group <= 0 or group % 8 != 0:
        raise ValueError(f"group is {group}, and no multiple of 8")
    (M, C), (N, groups) = x.shape, scales.shape
    is_one = groups == 1  # then programs may share it, in pieces
    if is_one:
        group, groups = 256, triton.cdiv(C, 256)
    out = x.new_empty(M, N)
    if M == 0:
        return out
    TM = min(64, max(16, triton.next_power_of_2(M)))
    TO = 128 if x.element_size() == 2 else 64
    K = min(32 if TM == 64 else 64, max(16, triton.next_power_of_2(group)))
    tiles = triton.cdiv(M, TM) * triton.cdiv(N, TO)
    splits = max(1, min(groups, 100 // tiles, C // 256))
    each = triton.cdiv(groups, splits)
    splits = triton.cdiv(groups, each)
    parts = x.new_empty(splits, M, N, dtype=torch.float32) if splits > 1 else out
    grouped[(triton.cdiv(N, TO), triton.cdiv(M, TM), splits)](
        x, packed, scales, zero_points, parts, M, N, each, C=C, GROUP=group,
        ONE=is_one, K=K, TM=TM, TO=TO,
    )  # fmt: skip
    if splits > 1:
        added[(triton.cdiv(M * N, 32),)](parts, out, M * N, splits, T=32)
    return out
