"""What 8-bit products are checked against: codes as exact integers, everything else in float64.

Where a quotient is nearly in the middle between two codes, either may come out, depending on how it
was divided. Each such code may move an output by one step, and no other may.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from tests.grading.closeness import Mismatch

NEAR_A_TIE = 1e-4  # of a step: far more than float32 divides wrong
ROUNDINGS = 8  # of the dtype that the result comes in


@dataclass(frozen=True)
class Rows:
    """Rows as int8: codes and scales in float64, and which codes may be another."""

    codes: Tensor
    scale: Tensor
    near: Tensor

    @property
    def values(self) -> Tensor:
        return self.codes * self.scale


def rows_of(x: Tensor) -> Rows:
    """Each row by its absmax; a row of zeros, or of no columns, is zeros."""
    x = x.double()
    largest = x.abs().amax(dim=1, keepdim=True) if x.shape[1] else x.new_zeros(len(x), 1)
    scale = largest / 127
    steps = torch.where(scale > 0, x / scale.clamp(min=1e-300), 0)
    near = ((steps.abs() % 1) - 0.5).abs() < NEAR_A_TIE
    return Rows(steps.round(), scale, near)


def outliers(x: Tensor, threshold: float) -> list[int]:
    """Column by column."""
    rows = x.flatten(0, -2)
    return [i for i in range(x.shape[-1]) if any(abs(v) >= threshold for v in rows[:, i].tolist())]


@dataclass(frozen=True)
class Expected:
    """An output [T O], and how far from it each element may be."""

    value: Tensor
    allowed: Tensor


def expected(x: Tensor, weight: Tensor, threshold: float, *, whole_rows: bool) -> Expected:
    """x · weightᵀ with the outlier columns of x in 16 bits.

    whole_rows: the weight's scales are of all its columns, and the outliers meet dequantised ones;
    otherwise its scales are of the other columns, and the outliers meet the weight itself.
    """
    large = torch.zeros(x.shape[1], dtype=torch.bool)
    large[outliers(x, threshold)] = True
    left, right = rows_of(x[:, ~large]), rows_of(weight if whole_rows else weight[:, ~large])
    columns = Rows(right.codes, right.scale, right.near)
    met = weight.double()
    if whole_rows:
        met = right.values
        columns = Rows(right.codes[:, ~large], right.scale, right.near[:, ~large])
    parts = (left.codes @ columns.codes.T) * left.scale * columns.scale.T
    exact = x.double()[:, large] @ met[:, large].T
    # A code of x that moves by a step meets the weight's value, and the other way round.
    ties = (left.near * left.scale) @ columns.values.abs().T
    ties += left.values.abs() @ (columns.near * columns.scale).T
    if whole_rows:
        ties += x.double()[:, large].abs() @ (right.near * right.scale)[:, large].T
    eps = torch.finfo(x.dtype).eps
    sizes = x.double()[:, large].abs() @ met[:, large].abs().T + parts.abs()
    return Expected(parts + exact, ties + (ROUNDINGS + int(large.sum())) * eps * sizes)


def assert_product(got: Tensor, right: Expected, what: str) -> None:
    """
    Raises:
        Mismatch: an element is further off than it may be.
    """
    shape = list(right.value.shape)
    if not isinstance(got, Tensor) or list(got.shape) != shape:
        came = list(got.shape) if isinstance(got, Tensor) else type(got).__name__
        raise Mismatch(
            f"expected shape {shape} [token, output], got {came}",
            expected=str(shape), got=str(came), what=what,
        )  # fmt: skip
    wrong = ~((got.double() - right.value).abs() <= right.allowed + 1e-300)
    if wrong.any():
        token, output = wrong.nonzero()[0].tolist()
        value, came = right.value[token, output].item(), got[token, output].item()
        raise Mismatch(
            f"first differs at token {token}, output {output}: expected {value:.6g}, got "
            f"{came:.6g}; {int(wrong.sum())} of {wrong.numel()} elements are off",
            expected=f"{value:.6g}", got=f"{came:.6g}", what=what,
            where=f"token {token}, output {output}",
        )  # fmt: skip
