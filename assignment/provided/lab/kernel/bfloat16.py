"""bfloat16 in Triton's interpreter: it keeps the bits as uint16, and computes with those integers.

Here a bfloat16 becomes the float32 of the same value, the operation is done, and the result is
rounded to nearest, ties to even, as the hardware does it.
"""

from __future__ import annotations

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

NAN = 0x7FC0  # a quiet one


def is_bfloat16(handle: object) -> bool:
    return isinstance(handle, TensorHandle) and handle.dtype.scalar == tl.bfloat16


def widened(handle: TensorHandle) -> TensorHandle:
    """As float32, exactly; other dtypes as they are."""
    if not is_bfloat16(handle):
        return handle
    return TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)


def rounded(handle: TensorHandle) -> TensorHandle:
    """float32 to bfloat16."""
    values = np.ascontiguousarray(handle.data, dtype=np.float32)
    bits = values.view(np.uint32)
    up = 0x7FFF + ((bits >> 16) & 1)  # with 0x8000 in the middle, half of the ties would go wrong
    high = ((bits + up.astype(np.uint32)) >> 16).astype(np.uint16)
    return TensorHandle(np.where(np.isnan(values), np.uint16(NAN), high), tl.bfloat16)
