"""Integers of fewer bits than a GPU's, so that a small cache shows what a large one does.

An offset of type int32 comes to its end at 2³¹: in a cache of 4 GiB, which no test can hold. Where
int32 has 16 bits, the same kernel comes to the same end in a cache of 64 KiB.
"""

from __future__ import annotations

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

BITS = 32  # of a GPU
GROWING = {np.add, np.subtract, np.multiply, np.left_shift}  # what may leave the range


def wrapped(handle: TensorHandle, bits: int) -> TensorHandle:
    """int32 and uint32 modulo 2^bits; other dtypes as they are."""
    if bits == BITS or handle.dtype.scalar not in (tl.int32, tl.uint32):
        return handle
    unused = BITS - bits
    return TensorHandle((handle.data << unused) >> unused, handle.dtype, handle.attr)


def given_as_int64(value: object, bits: int) -> bool:
    """Whether a launch passes this number as int64, as it does with those beyond 2³¹."""
    return bits < BITS and type(value) is int and not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1)
