"""What 8-bit products in kernels are checked against: the definition, in float64.

Where a quotient is nearly in the middle between two codes, either may come out, depending on how it
was divided. Each such code may move an output by one step of it, and no other may.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.grading.closeness import Mismatch
from tests.kernels.int8_inputs import Case

__tracebackhide__ = True

NEAR_A_TIE = 1e-4  # of a step: several times what float32 divides wrong
ROUNDINGS = 4  # of the dtype of x: the weight's, each part's, their sum's
FLOAT32 = torch.finfo(torch.float32)


@dataclass(frozen=True)
class Expected:
    """An output [M O], and how far from it each element may be."""

    value: Tensor
    allowed: Tensor


def expected(case: Case) -> Expected:
    x, outlier = case.x.double(), case.is_outlier()
    weight = case.codes.double() * case.scales.double()[:, None]
    left = x.masked_fill(outlier, 0)
    scale = (left.abs().amax(1, keepdim=True) / 127).clamp(min=FLOAT32.tiny)
    steps = left / scale
    near = ((steps.abs() % 1) - 0.5).abs() < NEAR_A_TIE
    small = (steps.round() @ case.codes.double().T) * scale * case.scales.double()
    met = x[:, outlier], weight[:, outlier].T
    large = met[0] @ met[1]
    sizes = small.abs() + met[0].abs() @ met[1].abs()
    kind = torch.finfo(case.x.dtype)
    roundings = ROUNDINGS * kind.eps + FLOAT32.eps * int(outlier.sum())
    allowed = (near * scale) @ weight.abs().T + roundings * sizes
    return Expected(small + large, allowed + ROUNDINGS * kind.eps * kind.tiny)


def assert_product(got: Tensor, case: Case) -> None:
    """Element by element: rows are of many sizes, and a large one would excuse a small one's.

    Raises:
        Mismatch: an element is further off than it may be.
    """
    right = expected(case)
    shape, what = list(right.value.shape), "M × I × O = {} × {} × {}".format(*case.sizes)
    if not isinstance(got, Tensor) or list(got.shape) != shape:
        came = list(got.shape) if isinstance(got, Tensor) else type(got).__name__
        raise Mismatch(
            f"expected shape {shape} [row, output], got {came}",
            expected=str(shape), got=str(came), what=what,
        )  # fmt: skip
    assert got.dtype == case.x.dtype, f"expected the dtype of x, {case.x.dtype}, got {got.dtype}"
    far = (got.double() - right.value).abs()
    wrong = ~(far <= right.allowed)  # written so that NaN is wrong
    if wrong.any():
        row, output = wrong.nonzero()[0].tolist()
        value, came = right.value[row, output].item(), got[row, output].item()
        raise Mismatch(
            f"first differs at row {row}, output {output}: expected {value:.6g}, got {came:.6g}, "
            f"allowed {right.allowed[row, output]:.2g}; {int(wrong.sum())} of {wrong.numel()} "
            f"elements are off; {int(case.is_outlier().sum())} outlier columns",
            expected=f"{value:.6g}", got=f"{came:.6g}", what=what,
            where=f"row {row}, output {output}",
        )  # fmt: skip
