"""What the tests of kernels share: memory full of anything, bit by bit."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.grading.closeness import assert_equal

__tracebackhide__ = True

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
FAR = [(-300, -300), (300, 300), (-300, 300)]  # lowest and highest scores of three requests
GROUPS = [  # heads, KV heads, width, block size; no ratio of heads is the number of KV heads
    (6, 2, 16, 16), (9, 3, 80, 5), (28, 4, 64, 32), (4, 4, 16, 16), (8, 1, 80, 1),
]  # fmt: skip
INTEGERS = {2: torch.int16, 4: torch.int32}  # by bytes


def noise(draw, *shape: int, dtype: torch.dtype) -> Tensor:
    """Bits of chance: numbers of all sizes, infinities, NaN of all kinds."""
    kind = INTEGERS[dtype.itemsize]
    most = 2 ** (8 * dtype.itemsize - 1)
    return draw.integers(-most, most, *shape).to(kind).view(dtype)


def bits(values: Tensor) -> Tensor:
    """Floats as integers of the same bits, so that NaN is equal to itself."""
    return values.view(INTEGERS[values.element_size()])


def assert_same_bits(got: Tensor, expected: Tensor, *, axes: str, what: str) -> None:
    """Told in numbers, where they tell the difference: NaN has many forms, and −0 is equal to 0."""
    if not isinstance(got, Tensor) or (got.dtype, got.shape) != (expected.dtype, expected.shape):
        assert_equal(got, expected, axes=axes, what=what)
        raise AssertionError(f"{what}: expected {expected.dtype}, got {got.dtype}")
    same = bits(got) == bits(expected)
    if not same.all():
        numbers = [values.masked_fill(same, 0) for values in (got, expected)]
        assert_equal(*numbers, axes=axes, what=what)
    assert_equal(bits(got), bits(expected), axes=axes, what=f"{what}, as integers of the same bits")
