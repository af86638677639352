"""How far off a right answer may be: what the oracles of several kernels share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__tracebackhide__ = True


def two_steps_off(values: Tensor, bit: int) -> Tensor:
    """Rounded by two steps of their dtype, upwards where this bit of the last index is set."""
    is_up = (torch.arange(values.shape[-1]) >> bit) % 2
    return values * (1 + (4 * is_up - 2) * torch.finfo(values.dtype).eps)


def furthest(expected: Tensor, ways: Sequence[Tensor]) -> Tensor:
    """For each number the way that is furthest off: one way to round may be right by luck."""
    stacked = torch.stack(list(ways))
    return stacked.gather(0, (stacked.double() - expected).abs().argmax(0, keepdim=True))[0]


def root_mean_square(difference: Tensor) -> float:
    return difference.double().pow(2).mean().sqrt().item()
