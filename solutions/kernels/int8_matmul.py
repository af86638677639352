"""LLM.int8() in three kernels: an 8-bit product, and its outlier columns in 16 bits.

A decode step is bound by the bytes of the weight, so its codes are read once, for both parts. Which
columns are outliers only the GPU knows, and nobody asks it: a first kernel flags them, a second
quantises what is left of the activation, and a third multiplies.

Axes: M rows of an activation, I inputs, O outputs.
Source: Dettmers, Lewis, Belkada, Zettlemoyer, 2022, arXiv:2208.07339.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int8
from torch import Tensor

# BEGIN SOLUTION
FLAGGED = 32  # columns of a program that looks for outliers
OUTPUTS = 128  # of a program that multiplies, unless too few programs are left
INPUTS = 128  # that it multiplies at once; 32 in float32, which no tensor core multiplies
SMALLEST = tl.constexpr(2.0**-126)  # normal float32
MULTIPROCESSORS = 132  # of an H100; half of them move nearly all that its memory can give


@triton.jit
def _flag_kernel(
    x, flags, threshold, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """flags: a bit for each column, 8 in a byte: whether any row has an outlier there."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    largest = tl.zeros((COLUMNS,), tl.float32)
    for first in range(0, rows, ROWS):
        row = first + tl.arange(0, ROWS)
        values = tl.load(
            x + row.to(tl.int64)[:, None] * WIDTH + column[None, :],
            mask=(row < rows)[:, None] & (column < WIDTH)[None, :],
            other=0.0,
        )
        largest = tl.maximum(largest, tl.max(tl.abs(values.to(tl.float32)), 0))
    bits = (largest >= threshold).to(tl.int32) << (column % 8)
    byte = tl.program_id(0) * (COLUMNS // 8) + tl.arange(0, COLUMNS // 8)
    packed = tl.sum(tl.reshape(bits, (COLUMNS // 8, 8)), 1).to(tl.uint8)
    tl.store(flags + byte, packed, mask=byte < tl.cdiv(WIDTH, 8))


@triton.jit
def _quantise_kernel(x, flags, codes, scales, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    """One row: 0 in the outlier columns, and the rest by its own largest value."""
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, COLUMNS)
    there = column < WIDTH
    values = tl.load(x + row * WIDTH + column, mask=there, other=0.0).to(tl.float32)
    byte = tl.load(flags + column // 8, mask=there, other=0).to(tl.int32)
    values = tl.where(((byte >> (column % 8)) & 1) > 0, 0.0, values)
    scale = tl.maximum(tl.max(tl.abs(values), 0) / 127, SMALLEST)
    tl.store(codes + row * WIDTH + column, tl.floor(values / scale + 0.5).to(tl.int8), mask=there)
    tl.store(scales + row, scale)


@triton.jit
def _product_kernel(
    x, flags, x_codes, x_scales, codes, scales, out, rows, outputs,
    WIDTH: tl.constexpr, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, INPUTS: tl.constexpr,
):  # fmt: skip
    """A tile of outputs. In a tile of inputs without an outlier there is one product, of codes."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    of_rows, of_outputs = (row < rows)[:, None], (output < outputs)[:, None]
    row_start = row.to(tl.int64)[:, None] * WIDTH
    output_start = output.to(tl.int64)[:, None] * WIDTH
    small = tl.zeros((ROWS, OUTPUTS), tl.int32)
    large = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for first in range(0, WIDTH, INPUTS):
        column = first + tl.arange(0, INPUTS)
        there = (column < WIDTH)[None, :]
        left = tl.load(x_codes + row_start + column[None, :], mask=of_rows & there, other=0)
        right = tl.load(codes + output_start + column[None, :], mask=of_outputs & there, other=0)
        small = tl.dot(left, tl.trans(right), small, out_dtype=tl.int32)
        byte = tl.load(flags + column // 8, mask=column < WIDTH, other=0).to(tl.int32)
        if tl.max(byte, 0) > 0:
            # Of 8 columns, 16 bytes a thread, none is loaded where none is an outlier.
            wanted = of_rows & (byte > 0)[None, :]
            values = tl.load(x + row_start + column[None, :], mask=wanted, other=0.0)
            is_outlier = ((byte >> (column % 8)) & 1)[None, :] > 0
            values = tl.where(is_outlier, values, 0.0).to(values.dtype)
            wide = tl.trans(right.to(values.dtype))  # exact: 16 bits hold every code
            large = tl.dot(values, wide, large, input_precision="ieee")
    x_scale = tl.load(x_scales + row, mask=row < rows, other=0.0)
    scale = tl.load(scales + output, mask=output < outputs, other=0.0)
    result = (small.to(tl.float32) * x_scale[:, None] + large) * scale[None, :]
    tl.store(
        out + row.to(tl.int64)[:, None] * outputs + output[None, :],
        result.to(out.dtype.element_ty),
        mask=of_rows & (output < outputs)[None, :],
    )


# END SOLUTION


def int8_matmul(
    x: Float[Tensor, "M I"],
    codes: Int8[Tensor, "O I"],
    scales: Float[Tensor, "O"],
    threshold: float = 6.0,
) -> Float[Tensor, "M O"]:
    """x · weightᵀ, where weight = scales[:, None] · codes: as `Int8Linear` does it, in kernels.

    1. A column of x is an outlier if any |value| in it is ≥ threshold, in this x. These columns
       meet the weight as it is, in the dtype of x, with sums in float32.
    2. What is left of x is quantised by rows: scale = max|value| / 127, at least the smallest
       normal float32; code = value / scale, rounded; in the middle either way.
    3. Codes are multiplied, with sums in int32, and go back by the row's scale · the output's.
    4. Both parts are added.

    Args:
        x: float16, bfloat16 or float32; finite; contiguous, as all tensors here. M may be 0. Not
            changed; nothing is.
        codes: int8, −127 … 127, of a weight that was quantised by rows, one for each output.
        scales: float32, one for each output.
        threshold: of outliers; infinite for none.

    Returns:
        In the dtype of x. All of it is computed by kernels, and the launcher asks the GPU for
        nothing. Programs of a launch run in any order: none may read what another of them writes.

    Hint: flags, then codes, then products: three launches. In a tile of inputs without an outlier
    one product is enough; the other one's weight is there already. Tensor cores take 16 rows at
    once: pad. A good answer reads the weight's codes once for each 64 rows, those of x once for
    each 128 outputs, and has smaller tiles where that leaves too few programs. About 100 lines with
    the kernels.
    """
    # BEGIN SOLUTION
    (rows, inputs), outputs = x.shape, len(codes)
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    if not rows:
        return out
    flags = torch.empty(triton.cdiv(inputs, 8), dtype=torch.uint8, device=x.device)
    x_codes = torch.empty(rows, inputs, dtype=torch.int8, device=x.device)
    x_scales = torch.empty(rows, dtype=torch.float32, device=x.device)
    most_rows = min(64, max(16, triton.next_power_of_2(rows)))
    columns = triton.next_power_of_2(inputs)
    _flag_kernel[(triton.cdiv(inputs, FLAGGED),)](
        x, flags, threshold, rows, WIDTH=inputs, ROWS=most_rows, COLUMNS=FLAGGED
    )  # fmt: skip
    _quantise_kernel[(rows,)](
        x, flags, x_codes, x_scales, WIDTH=inputs, COLUMNS=columns,
        num_warps=min(16, max(1, columns // 512)),
    )  # fmt: skip
    is_half, row_tiles = x.element_size() == 2, triton.cdiv(rows, most_rows)
    tile = _outputs_of_a_program(outputs, row_tiles)
    _product_kernel[row_tiles, triton.cdiv(outputs, tile)](
        x, flags, x_codes, x_scales, codes, scales, out, rows, outputs, WIDTH=inputs,
        ROWS=most_rows, OUTPUTS=tile, INPUTS=INPUTS if is_half else 32,
        num_warps=4 if is_half and most_rows == 16 else 8,
    )  # fmt: skip
    return out
    # END SOLUTION


# BEGIN SOLUTION
def _outputs_of_a_program(outputs: int, row_tiles: int) -> int:
    """As many as save bytes, or fewer, until half of the multiprocessors have a program."""
    tile = OUTPUTS
    while tile > 16 and row_tiles * triton.cdiv(outputs, tile) < MULTIPROCESSORS // 2:
        tile //= 2
    return tile


# END SOLUTION
