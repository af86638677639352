"""What work costs: floating-point operations and bytes moved."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Cost:
    """Floating-point operations, and bytes of memory read and written."""

    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.flops + other.flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
        )


class LeftTorch(RuntimeError):
    """Work went where the counter cannot see it."""


def touched_bytes(tensor: Tensor) -> int:
    """Bytes of the different elements that a tensor shows.

    An expanded dimension (stride 0) shows the same elements again, and the windows of an `unfold`
    overlap: an element counts once.
    """
    if tensor.layout is not torch.strided:
        raise LeftTorch(f"tensors of layout {tensor.layout} are not counted: use dense ones")
    if tensor.is_contiguous():
        return tensor.numel() * tensor.element_size()
    if tensor.numel() == 0:
        return 0
    elements = span = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        if stride:
            elements *= size
            span += (size - 1) * stride
    return min(elements, span) * tensor.element_size()
