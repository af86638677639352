"""weight · xᵀ, the weight on the left; outliers meet weights in the dtype of x, and x column by
column; maxima of row tiles are put together by a launch of their own."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def partial_maxima(x, maxima, m, i: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    part, group = tl.program_id(0), tl.program_id(1)
    row = part * ROWS + tl.arange(0, ROWS)
    column = group * COLUMNS + tl.arange(0, COLUMNS)
    seen = (row < m)[:, None] & (column < i)[None, :]
    value = tl.load(x + row[:, None].to(tl.int64) * i + column[None, :], mask=seen, other=0.0)
    tl.store(maxima + part * i + column, tl.max(tl.abs(value), 0), mask=column < i)


@triton.jit
def flag(maxima, flags, parts, threshold, i: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    whole = tl.zeros((COLUMNS,), tl.float32)
    for part in range(parts):
        value = tl.load(maxima + part * i + column, mask=column < i, other=0.0)
        whole = tl.maximum(whole, value.to(tl.float32))
    tl.store(flags + column, (whole >= threshold).to(tl.uint8), mask=column < i)


@triton.jit
def to_codes(
    x, flags, codes, scales, m, i: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """A few rows."""
    row, column = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    is_small = tl.load(flags + column, mask=column < i, other=1) == 0
    seen = (row < m)[:, None] & is_small[None, :]
    at = row[:, None].to(tl.int64) * i + column[None, :]
    value = tl.load(x + at, mask=seen, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(value), 1)
    scale = tl.where(largest > 1.5e-36, largest / 127, 1.1754943508222875e-38)
    code = tl.floor(tl.abs(value) / scale[:, None] + 0.5)
    code = tl.where(value < 0, -code, code)
    tl.store(codes + at, code.to(tl.int8), mask=(row < m)[:, None] & (column < i)[None, :])
    tl.store(scales + row, scale, mask=row < m)


@triton.jit
def weight_times_x(
    x, flags, x_codes, x_scales, codes, scales, out, m, o, tiles,
    i: tl.constexpr, ROWS: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    output = program // tiles * TILE + tl.arange(0, TILE)
    row = program % tiles * ROWS + tl.arange(0, ROWS)
    step = tl.arange(0, STEP)
    scale = tl.load(scales + output, mask=output < o, other=0.0)
    whole = tl.zeros((TILE, ROWS), tl.int32)
    large = tl.zeros((TILE, ROWS), tl.float32)
    for first in range(0, i, STEP):
        column = first + step
        inside = column < i
        of_weight = output[:, None].to(tl.int64) * i + column[None, :]
        of_x = row[None, :].to(tl.int64) * i + column[:, None]
        left = tl.load(codes + of_weight, mask=(output < o)[:, None] & inside[None, :], other=0)
        right = tl.load(x_codes + of_x, mask=(row < m)[None, :] & inside[:, None], other=0)
        whole += tl.dot(left, right)
        is_large = tl.load(flags + column, mask=inside, other=0).to(tl.int1)
        if tl.max(is_large.to(tl.int32), 0) == 1:
            mask = (row < m)[None, :] & is_large[:, None]
            value = tl.load(x + of_x, mask=mask, other=0.0)
            weight = (left.to(tl.float32) * scale[:, None]).to(value.dtype)
            large += tl.dot(weight, value, input_precision="ieee")
    x_scale = tl.load(x_scales + row, mask=row < m, other=0.0)
    small = whole.to(tl.float32) * (scale[:, None] * x_scale[None, :])
    tl.store(
        out + row[None, :].to(tl.int64) * o + output[:, None],
        (small + large).to(out.dtype.element_ty),
        mask=(row < m)[None, :] & (output < o)[:, None],
    )


def int8_matmul(x: Tensor, codes: Tensor, scales: Tensor, threshold: float = 6.0) -> Tensor:
    m, i = x.shape
    o = len(scales)
    out = torch.empty((m, o), dtype=x.dtype)
    if m:
        parts = -(-m // 32)
        maxima = torch.empty((parts, i), dtype=x.dtype)
        flags = torch.empty(i, dtype=torch.uint8)
        x_codes = torch.empty((m, i), dtype=torch.int8)
        x_scales = torch.empty(m, dtype=torch.float32)
        partial_maxima[parts, triton.cdiv(i, 64)](x, maxima, m, i=i, ROWS=32, COLUMNS=64)
        flag[(triton.cdiv(i, 128),)](maxima, flags, parts, threshold, i=i, COLUMNS=128)
        to_codes[(triton.cdiv(m, 2),)](
            x, flags, x_codes, x_scales, m, i=i, ROWS=2, COLUMNS=triton.next_power_of_2(i)
        )  # fmt: skip
        rows = 16 if m <= 16 else 64
        tiles = triton.cdiv(m, rows)
        tile = 128
        if tiles * triton.cdiv(o, tile) < 60:
            tile = 64
        grid = tiles * triton.cdiv(o, tile)
        weight_times_x[(grid,)](
            x, flags, x_codes, x_scales, codes, scales, out, m, o, tiles, i=i, ROWS=rows,
            TILE=tile, STEP=(64 if m > 16 else 128) if x.element_size() == 2 else 32, num_warps=8,
        )  # fmt: skip
    return out
