"""Activations with a few outlier columns, and weights in 8 bits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """Arguments of `int8_matmul`: x [M I], codes [O I], scales [O]."""

    x: Tensor
    codes: Tensor
    scales: Tensor
    threshold: float = 6.0

    @property
    def arguments(self) -> list:
        return [self.x, self.codes, self.scales, self.threshold]

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(M, I, O)"""
        return *self.x.shape, len(self.codes)

    def is_outlier(self) -> Tensor:
        """[I], column by column."""
        return torch.tensor(
            [any(abs(value) >= self.threshold for value in column) for column in self.x.T.tolist()],
            dtype=torch.bool,
        )


def draw_case(
    draw,
    rows: int,
    inputs: int,
    outputs: int,
    *,
    columns: Sequence[int] = (),
    dtype: torch.dtype = torch.float16,
    threshold: float = 6.0,
    most: int = 127,
) -> Case:
    """x below the threshold of 6 but for `columns`, with one value each, in a row of its own. No
    two rows are of one size, and no two outputs.

    most: |code| of the weight.
    """
    size = 10 ** -draw.uniform(rows, 1)
    x = (0.9 * size * draw.normal(rows, inputs)).clamp(-5, 5)
    for i, column in enumerate(columns):
        x[(7 * i + rows // 2) % rows, column] = (-1) ** i * (20 + 9 * i)
    return Case(
        x.to(dtype), codes_of(draw, outputs, inputs, most), scales_of(draw, outputs), threshold
    )


def around_the_threshold(draw, dtype: torch.dtype, threshold: float) -> Case:
    """Rows with one large value each, in a column of its own: the last number below the threshold,
    which is from 4 to 8, or the first that is not, of either sign. Half of the outputs have no
    weight there: they show in what steps the rest of the row comes, the large value's or its own.
    """
    step = 4 * torch.finfo(dtype).eps  # between numbers from 4 to 8
    near = torch.tensor(threshold, dtype=dtype).double() + step * torch.arange(-1, 2)
    is_below = near < threshold
    ends = torch.stack([near[is_below][-1], near[~is_below][0]]).to(dtype)
    x = (0.01 * draw.normal(4, 60)).to(dtype)
    columns = draw.permutation(60)[:4]
    x[torch.arange(4), columns] = torch.cat([ends, -ends])
    codes = codes_of(draw, 30, 60)
    codes[::2, columns] = 0
    return Case(x, codes, scales_of(draw, 30), threshold)


def codes_of(draw, outputs: int, inputs: int, most: int = 127) -> Tensor:
    return draw.integers(-most, most + 1, outputs, inputs).to(torch.int8)


def scales_of(draw, outputs: int) -> Tensor:
    return 0.005 + 0.01 * draw.uniform(outputs)


def least_bytes(case: Case) -> int:
    """The weight's codes and scales once for each 64 rows. x once to look for outliers and once to
    quantise it; its codes and scales written once, and read once for each 128 outputs; so are its
    outliers. A bit for each column, written once, and read by each row and each 64 · 128 outputs.
    Outputs once."""
    rows, inputs, outputs = case.sizes
    width, row_tiles, output_tiles = case.x.element_size(), -(-rows // 64), -(-outputs // 128)
    weight = (inputs + 4) * outputs * row_tiles
    codes = rows * (inputs + 4) * (1 + output_tiles)
    outliers = rows * int(case.is_outlier().sum()) * width * output_tiles
    flags = -(-inputs // 8) * (1 + rows + row_tiles * output_tiles)
    return weight + 2 * rows * inputs * width + codes + outliers + flags + rows * outputs * width
