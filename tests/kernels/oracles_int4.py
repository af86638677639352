"""What products with 4-bit weights are checked against: the definition, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.grading.closeness import assert_close
from tests.kernels.int4_inputs import Int4

__tracebackhide__ = True
WAYS = 4  # to round weights


def products(int4: Int4) -> Tensor:
    """[M, O] in float64, of the codes as they were before they were packed."""
    return int4.x.double() @ int4.weight.T


def assert_products(got: Tensor, int4: Int4) -> None:
    """Row by row: a small one's outputs are as close as a large one's."""
    x = int4.x
    assert got.dtype == x.dtype, f"expected the dtype of x, {x.dtype}, got {got.dtype}"
    shape = [len(x), len(int4.codes)]
    assert list(got.shape) == shape, f"expected [M, O], {shape}, got {list(got.shape)}"
    weight = int4.weight
    expected = x.double() @ weight.T
    naive = _roughest(x, weight, expected).to(x.dtype)
    for row in range(len(x)):
        what = f"row {row} of {len(x)}, {x.shape[1]} inputs in groups of {int4.group}"
        assert_close(got[row], expected[row], naive=naive[row], axes="output", what=what)


def _roughest(x: Tensor, weight: Tensor, expected: Tensor) -> Tensor:
    """With weights rounded in 4 ways, up where this bit of the input is set, by half a step of the
    dtype of x, and summed one by one in float32, where x has that: for each output what is furthest
    off. Of a few outputs, one way may be right by luck."""
    column = torch.arange(weight.shape[1])
    half = torch.finfo(x.dtype).eps / 2
    furthest = expected
    for way in range(WAYS):
        rounded = x.double() * (1 + (2 * ((column >> way) % 2) - 1) * half)
        if x.dtype == torch.float32:
            found = _one_by_one(rounded.float(), weight.float(), column.roll(2**way))
        else:
            found = rounded @ weight.T
        is_further = (found - expected).abs() > (furthest - expected).abs()
        furthest = torch.where(is_further, found, furthest)
    return furthest


def _one_by_one(x: Tensor, weight: Tensor, order: Tensor) -> Tensor:
    """Sums that are rounded to float32 after each input, in this order; in float64 then."""
    sums = torch.zeros(len(x), len(weight))
    for i in order.tolist():
        sums += x[:, i, None] * weight[:, i]
    return sums.double()
