"""A launch's tensors as data: each storage once, and how a tensor lies in it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import triton.language as tl
from torch import Tensor


@dataclass
class Packed:
    """The parameters of a launch.

    values: by name, what is no tensor. dtypes: by name, "fp32" of `tl.float32`. views: by name,
    [storage, dtype, offset, shape, stride] of a tensor. storages: by number, all bytes. fresh:
    storages that nobody has written yet.
    """

    values: dict[str, object] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    views: dict[str, list] = field(default_factory=dict)
    storages: dict[int, Tensor] = field(default_factory=dict)
    fresh: list[int] = field(default_factory=list)


class Unpackable(ValueError):
    """Views that do not lie in their storages."""


def pack(named: dict[str, object], numbers: dict[int, int]) -> Packed:
    """numbers: of the storages that were packed before, by address; new ones are added."""
    packed = Packed()
    for name, value in named.items():
        if isinstance(value, tl.constexpr):
            value = value.value
        if isinstance(value, tl.dtype):
            packed.dtypes[name] = value.name
            continue
        if not isinstance(value, Tensor):
            packed.values[name] = value
            continue
        storage = value.untyped_storage()
        number = numbers.setdefault(storage.data_ptr(), len(numbers))
        packed.storages[number] = bytes_of(value)
        packed.views[name] = [
            number, value.dtype, value.storage_offset(), list(value.shape), list(value.stride()),
        ]  # fmt: skip
    return packed


def bytes_of(tensor: Tensor) -> Tensor:
    """The whole storage behind a tensor, as bytes that share its memory."""
    return torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())


def unpack(packed: Packed) -> dict[str, object]:
    """The parameters, with tensors that share memory where the packed ones did.

    Raises:
        Unpackable: a view reaches beyond its storage, or makes no sense.
    """
    named = packed.values | {name: tl.dtype(dtype) for name, dtype in packed.dtypes.items()}
    for name, (number, dtype, offset, shape, stride) in packed.views.items():
        sizes = [offset, *shape, *stride]
        if len(shape) != len(stride) or not all(type(n) is int and n >= 0 for n in sizes):
            raise Unpackable(f"{name}: the shape makes no sense")
        raw = packed.storages[number]
        span = offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True))
        if 0 not in shape and (span + 1) * dtype.itemsize > raw.numel():
            raise Unpackable(f"{name}: it reaches beyond its storage")
        storage = raw.untyped_storage()
        named[name] = torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)
    return named
