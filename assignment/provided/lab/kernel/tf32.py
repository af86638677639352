"""TF32 in Triton's interpreter, which multiplies float32 exactly where a GPU does not.

Unless a `tl.dot` of float32 asks for "ieee", it is done by tensor cores. Of an operand they read
the sign, 8 bits of exponent and the first 10 of the mantissa. What lies below is cut off, not
rounded: the compiler hands them the float32 as it is, with no cvt before the mma in its PTX for
sm_80, sm_89 and sm_90. Sources: that PTX; the documentation of `tl.dot` in Triton 3.7;
triton-lang/triton, issue 4574, 2024, where rounding first made the digits PyTorch's.

"tf32x3", a sum of three such products, is nearly float32, and exact here. A T4 has no TF32, and
would be exact: here it is cut all the same.
"""

from __future__ import annotations

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime.interpreter import TensorHandle

TF32 = "tf32"  # under which FLOPs of such products are counted
KEPT = np.uint32(0xFFFF_E000)  # of the 23 bits of the mantissa, 10


def is_tf32(operand: TensorHandle, precision: ir.INPUT_PRECISION) -> bool:
    """Triton puts its default in where a kernel says nothing: "tf32"."""
    return operand.dtype.scalar == tl.float32 and precision == ir.INPUT_PRECISION.TF32


def truncated(handle: TensorHandle) -> TensorHandle:
    """float32, as tensor cores read it."""
    cut = (handle.data.view(np.uint32) & KEPT).view(np.float32)
    return TensorHandle(np.where(np.isnan(handle.data), handle.data, cut), tl.float32)
