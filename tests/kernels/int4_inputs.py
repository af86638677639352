"""Weights of 4 bits in groups, packed here; rows of x to multiply with them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROWS, OUTPUTS = 64, 128  # of the ideal's tiles


@dataclass(frozen=True)
class Int4:
    """Arguments of `int4_matmul`, in order; what was packed: codes [O, I], zeros [O, groups]."""

    arguments: list
    codes: Tensor
    zeros: Tensor

    NAMES = ("x", "packed", "scales", "zero_points")

    @property
    def x(self) -> Tensor:
        return self.arguments[0]

    @property
    def scales(self) -> Tensor:
        return self.arguments[2]

    @property
    def group(self) -> int:
        return self.arguments[4]

    @property
    def flops(self) -> int:
        return 2 * len(self.x) * self.codes.numel()

    @property
    def weight(self) -> Tensor:
        """[O, I], float64: an input at a time."""
        weight = torch.empty(self.codes.shape, dtype=torch.float64)
        for i in range(weight.shape[1]):
            group = i // self.group
            steps = self.codes[:, i] - self.zeros[:, group]
            weight[:, i] = self.scales[:, group].double() * steps.double()
        return weight


def draw_int4(
    draw,
    rows: int,
    inputs: int,
    outputs: int,
    *,
    group: int = 128,
    dtype: torch.dtype = torch.float16,
    codes: tuple[int, int] = (0, 15),
    zeros: tuple[int, int] = (0, 15),
    scale: float = 0.02,
    x: Tensor | None = None,
) -> Int4:
    """Codes and zero points of chance, from the least to the most given here.

    scale: of the smallest weights; a group's is up to three times as large. x: or normal numbers.
    """
    groups = -(-inputs // group)
    drawn = draw.integers(codes[0], codes[1] + 1, outputs, inputs)
    zero_points = draw.integers(zeros[0], zeros[1] + 1, outputs, groups)
    scales = scale * (1 + 2 * draw.uniform(outputs, groups))
    x = draw.normal(rows, inputs) if x is None else x
    return of_codes(draw, x.to(dtype), drawn, zero_points, scales, group)


def of_codes(draw, x: Tensor, codes: Tensor, zeros: Tensor, scales: Tensor, group: int) -> Int4:
    arguments = [x, packed(draw, codes), scales, packed(draw, zeros), group]
    return Int4(arguments, codes, zeros)


def packed(draw, codes: Tensor) -> Tensor:
    """Eight to an int32, two to a byte; the bits of codes that do not exist are of chance."""
    outputs, many = codes.shape
    padded = torch.cat([codes, draw.integers(0, 16, outputs, -many % 8)], dim=1)
    in_bytes = padded[:, ::2] + 16 * padded[:, 1::2]
    return in_bytes.to(torch.uint8).contiguous().view(torch.int32)


def weight_bytes(int4: Int4) -> int:
    return sum(4 * int4.arguments[i].numel() for i in (1, 2, 3))


def least_bytes(int4: Int4, splits: int = 1) -> int:
    """What programs move at least that have tiles of 64 rows and 128 outputs: words, scales and
    zero points once for each 64 rows, x once for each 128 outputs, outputs once; of each split,
    parts in float32, written and read."""
    (rows, inputs), outputs, width = int4.x.shape, len(int4.codes), int4.x.element_size()
    weights = -(-rows // ROWS) * weight_bytes(int4)
    parts = 2 * splits * rows * outputs * 4 if splits > 1 else 0
    of_x = -(-outputs // OUTPUTS) * rows * inputs * width
    return weights + of_x + rows * outputs * width + parts
