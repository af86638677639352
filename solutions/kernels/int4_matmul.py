"""Products with a 4-bit weight, which becomes 16 bits where it is multiplied and nowhere else.

A decode step is bound by the bytes of the weights, and 4 bits are a quarter of 16. Who dequantises
first, and multiplies then, reads a quarter, writes all, and reads all again. Here a program loads
words of eight codes, spreads them in its registers, and gives them to the tensor cores, for up to
64 rows of x at once.

Axes: M rows of x (tokens), I inputs, O outputs. Sources: Frantar et al., 2022, arXiv:2210.17323
(4 bits in groups, a kernel that dequantises as it goes); Lin et al., 2023, arXiv:2306.00978, §4.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int32
from torch import Tensor

# BEGIN SOLUTION
MOST_ROWS = 64  # of x that a program multiplies with the weights it has loaded
OUTPUTS = 128  # of a program: by so many x is loaded once
STEP_BYTES = 128  # of a row of x: 64 inputs of 16 bits are a sector of their codes
LEAST_INPUTS = 256  # of a split: below it the parts weigh more than what is gained
SUMMED = 32  # outputs of a program that adds parts
MULTIPROCESSORS = 132  # that there should be work for: those of an H100


@triton.jit
def _product_kernel(
    x, packed, scales, zero_points, out, rows, outputs, steps, share,
    INPUTS: tl.constexpr, GROUP: tl.constexpr, STEP: tl.constexpr, ROWS: tl.constexpr,
    OUTPUTS: tl.constexpr,
):  # fmt: skip
    """A tile of rows and outputs, over one split of the inputs.

    A step's inputs are of one group. Weights are the left operand: 128 outputs fill the 64 rows
    that an H100 multiplies at once, and few rows of x are enough for its columns.
    out: [S, M, O], of S splits.
    """
    WORDS: tl.constexpr = tl.cdiv(INPUTS, 8)
    GROUPS: tl.constexpr = tl.cdiv(INPUTS, GROUP)
    STEPS: tl.constexpr = tl.cdiv(GROUP, STEP)  # of a group
    split = tl.program_id(2)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.program_id(1) * OUTPUTS + tl.arange(0, OUTPUTS)
    is_row, is_output = row < rows, output < outputs
    eight = tl.arange(0, 8)
    x_rows = x + row.to(tl.int64)[:, None] * INPUTS
    packed_rows = packed + output[:, None] * WORDS
    begin = split * share
    end = tl.minimum(begin + share, steps)

    sums = tl.zeros((OUTPUTS, ROWS), tl.float32)
    for octet in range(begin // (8 * STEPS), tl.cdiv(end, 8 * STEPS)):
        # Eight groups share a word of zero points, and their scales are one sector.
        zero_word = tl.load(
            zero_points + output * tl.cdiv(GROUPS, 8) + octet, mask=is_output, other=0
        )
        octet_scales = tl.load(
            scales + output[:, None] * GROUPS + (8 * octet + eight)[None, :],
            mask=is_output[:, None] & (8 * octet + eight < GROUPS)[None, :],
            other=0.0,
        )
        first = tl.maximum(begin, octet * 8 * STEPS)
        for step in range(first, tl.minimum(end, (octet + 1) * 8 * STEPS)):
            group, within = step // STEPS, step % STEPS
            scale = tl.sum(tl.where((eight == group % 8)[None, :], octet_scales, 0.0), 1)
            zero = (zero_word >> (4 * (group % 8))) & 15
            word = group * (GROUP // 8) + within * (STEP // 8) + tl.arange(0, STEP // 8)
            is_word = word < tl.minimum((group + 1) * (GROUP // 8), WORDS)
            words = tl.load(
                packed_rows + word[None, :], mask=is_output[:, None] & is_word[None, :], other=0
            )
            codes = (words[:, :, None] >> (4 * eight)[None, None, :]) & 15
            whole = tl.reshape(codes, (OUTPUTS, STEP)) - zero[:, None]
            column = group * GROUP + within * STEP + tl.arange(0, STEP)
            is_column = column < tl.minimum((group + 1) * GROUP, INPUTS)
            values = tl.load(
                x_rows + column[None, :], mask=is_row[:, None] & is_column[None, :], other=0.0
            )
            weights = (whole.to(tl.float32) * scale[:, None]).to(values.dtype)
            sums += tl.dot(weights, tl.trans(values), input_precision="ieee")
    at = (split.to(tl.int64) * rows + row)[:, None] * outputs + output[None, :]
    tl.store(
        out + at,
        tl.trans(sums).to(out.dtype.element_ty),
        mask=is_row[:, None] & is_output[None, :],
    )


@triton.jit
def _sum_kernel(parts, out, splits, numbers, MOST: tl.constexpr, TILE: tl.constexpr):
    """The sum over splits of a tile of outputs; `numbers` of them are in each split."""
    at, split = tl.program_id(0) * TILE + tl.arange(0, TILE), tl.arange(0, MOST)
    each = tl.load(
        parts + split.to(tl.int64)[:, None] * numbers + at[None, :],
        mask=(split < splits)[:, None] & (at < numbers)[None, :],
        other=0.0,
    )
    tl.store(out + at, tl.sum(each, 0).to(out.dtype.element_ty), mask=at < numbers)


# END SOLUTION


def int4_matmul(
    x: Float[Tensor, "M I"],
    packed: Int32[Tensor, "O words"],
    scales: Float[Tensor, "O groups"],
    zero_points: Int32[Tensor, "O zero_words"],
    group: int,
) -> Float[Tensor, "M O"]:
    """out[m, o] = Σ_i x[m, i] · scales[o, g] · (code[o, i] − zero_point[o, g]),  g = i // group

    The buffers are those of `compression.quantization.QuantizedLinear(weight, 4, per=group)`. Eight
    codes, or zero points, to an int32: number j of a row in bits 4·(j mod 8) … 4·(j mod 8) + 3 of
    word j // 8. Number 7 holds the sign bit, so half of all words are negative.

    Args:
        x: float16, bfloat16 or float32; contiguous, as all tensors here. Not changed; nothing is.
            M from 0, mostly up to 64; M·I and M·O may be beyond 2³¹, the other tensors are not.
        packed: codes 0 … 15, words = ⌈I / 8⌉. The bits of codes that do not exist may be anything,
            as may those of zero points.
        scales: float32, at least 2⁻¹²⁶, groups = ⌈I / group⌉. The last group may be shorter: of
            576 inputs in groups of 128 it has 64. I need not be a multiple of 8.
        zero_points: 0 … 15, zero_words = ⌈groups / 8⌉.
        group: inputs that share a scale and a zero point, a multiple of 8; may be more than I.

    Returns:
        In the dtype of x, summed in float32. A weight may be rounded to the dtype of x before it is
        multiplied. All of it is computed by kernels: no dequantised weight is ever in memory. The
        launcher asks the GPU for nothing.

    Raises:
        ValueError: group is not a multiple of 8, or below 8.

    The least bytes: words, scales and zero points once for each 64 rows of x; x once for each 128
    outputs; the outputs once. Where that makes too few programs for the chip, split the inputs,
    write parts in float32, and add them with a second kernel: no atomics.

    Hint: a step of the loop lies within one group; `words[:, :, None] >> …`, then `tl.reshape`.
    Eight groups have one word of zero points: when is it loaded? About 100 lines with both kernels.
    """
    # BEGIN SOLUTION
    if group < 8 or group % 8:
        raise ValueError(f"group: expected a multiple of 8, got {group}")
    rows, inputs = x.shape
    outputs = len(packed)
    out = torch.empty(rows, outputs, dtype=x.dtype, device=x.device)
    if rows == 0:
        return out
    group = min(group, 8 * triton.cdiv(inputs, 8))
    step = min(STEP_BYTES // x.element_size(), max(16, triton.next_power_of_2(group)))
    steps = (inputs // group) * triton.cdiv(group, step) + triton.cdiv(inputs % group, step)
    tile = max(16, min(MOST_ROWS, triton.next_power_of_2(rows)))
    grid = triton.cdiv(rows, tile), triton.cdiv(outputs, OUTPUTS)
    share = triton.cdiv(steps, _enough_splits(grid[0] * grid[1], inputs))
    splits = triton.cdiv(steps, share)  # of `share` steps; the last may have fewer, not none
    parts = out
    if splits > 1:
        parts = torch.empty(splits, rows, outputs, dtype=torch.float32, device=x.device)
    _product_kernel[(*grid, splits)](
        x, packed, scales, zero_points, parts, rows, outputs, steps, share,
        INPUTS=inputs, GROUP=group, STEP=step, ROWS=tile, OUTPUTS=OUTPUTS,
    )  # fmt: skip
    if splits > 1:
        _sum_kernel[(triton.cdiv(rows * outputs, SUMMED),)](
            parts, out, splits, rows * outputs, MOST=triton.next_power_of_2(splits), TILE=SUMMED
        )
    return out
    # END SOLUTION


# BEGIN SOLUTION
def _enough_splits(programs: int, inputs: int) -> int:
    """As many as there are multiprocessors for, but none of a few inputs."""
    return max(1, min(MULTIPROCESSORS // programs, inputs // LEAST_INPUTS))


# END SOLUTION
