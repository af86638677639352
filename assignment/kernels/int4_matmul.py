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
    raise NotImplementedError
