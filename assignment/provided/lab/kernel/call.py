"""A launch as the compiler sees it: all but what is in the tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from triton.runtime.jit import JITFunction


@dataclass(frozen=True)
class Pointer:
    """In place of a tensor.

    address: in bytes from where its storage begins, which on a GPU is at a multiple of 256.
    """

    dtype: torch.dtype
    address: int

    def data_ptr(self) -> int:
        return self.address


@dataclass(frozen=True)
class Call:
    """kernel[…](**named, **options), with a `Pointer` for each tensor."""

    kernel: JITFunction
    named: dict[str, object]
    options: dict[str, object]

    @classmethod
    def of(cls, kernel: JITFunction, named: dict[str, object], options: dict[str, object]) -> Call:
        return cls(kernel, {name: _without_contents(v) for name, v in named.items()}, options)


def _without_contents(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    return Pointer(value.dtype, value.storage_offset() * value.element_size())
