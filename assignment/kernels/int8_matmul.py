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
    raise NotImplementedError
