"""How far off a right answer may be: what the oracles of several kernels share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from tests.grading.closeness import Mismatch
from tests.grading.kernels.boundary import Seen

__tracebackhide__ = True
TF32 = 'products in TF32 (see input_precision="ieee")'


@contextmanager
def tf32_is_told(seen: Seen) -> Iterator[None]:
    """Inside, a result that is off says so if it may come from products in TF32."""
    try:
        yield
    except Mismatch as error:
        in_tf32 = any("tf32" in launch.dot_flops for launch in seen.launches)
        if in_tf32 and error.got != "nan":  # which would have another cause
            error.args = (f"{TF32}; {error}",)  # in front: a long line is cut where it is shown
            error.note = f"{error.note}; {TF32}" if error.note else TF32
        raise


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
