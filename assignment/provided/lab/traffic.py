"""Bytes that one call of an ATen operator reads and writes.

Read are the tensors that come in, each once; written are the new tensors that come out, or the
target of an in-place operator. Gathering and scattering touch the elements they address, not the
whole tensor they address them in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from .cost import Cost, touched_bytes

# In-place operators that overwrite their target without reading it.
OVERWRITING = {
    "copy", "fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential", "geometric",
    "cauchy", "log_normal",
}  # fmt: skip

# The result is elements picked from the first argument; here, the argument that says which.
GATHERING = {
    "index": "indices", "index_select": "index", "gather": "index", "take": "index",
    "embedding": "indices", "masked_select": "mask",
}  # fmt: skip


def total_bytes(tensors: Iterable[Tensor]) -> int:
    """Touched bytes; tensors that show the very same memory count once."""
    different = {(t.data_ptr(), t.dtype, t.shape, t.stride()): t for t in tensors}
    return sum(map(touched_bytes, different.values()))


def scatter_cost(name: str, given: dict) -> Cost:
    """Cost of an in-place operator of SCATTERING: it changes only the elements it addresses."""
    addressed = SCATTERING[name](given)
    target = given["self"]
    # The values may be one number for all, or more than the index uses.
    values = [
        given[key] for key in ("src", "source", "values") if isinstance(given.get(key), Tensor)
    ]
    read = sum(min(touched_bytes(v), addressed * v.element_size()) for v in values)
    read += total_bytes(_indices(given))
    written = addressed * target.element_size()
    if not _accumulates(name, given):
        return Cost(0, read, written)
    return Cost(addressed if target.is_floating_point() else 0, read + written, written)


def _accumulates(name: str, given: dict) -> bool:
    by_name = name in ("index_add", "scatter_add", "scatter_reduce", "index_reduce")
    return by_name or bool(given.get("accumulate")) or given.get("reduce") is not None


def _indices(given: dict) -> list[Tensor]:
    single = [given[key] for key in ("index", "mask") if key in given]
    return single + [index for index in given.get("indices", ()) if index is not None]


def _indexed(given: dict) -> int:
    """Elements of self[indices], where a mask stands for the places at which it is true."""
    sizes, shapes = [], []  # of the dimensions that are not indexed; of the indices
    remaining = list(given["self"].shape)
    for index in given["indices"]:
        if index is None:
            sizes.append(remaining.pop(0))
        elif index.dtype in (torch.bool, torch.uint8):
            del remaining[: index.dim()]
            shapes.append((int(index.count_nonzero()),))
        else:
            del remaining[0]
            shapes.append(index.shape)
    return math.prod(sizes + remaining) * math.prod(np.broadcast_shapes(*shapes))


def _masked(given: dict) -> int:
    return int(given["mask"].expand_as(given["self"]).count_nonzero())


def _slices(given: dict) -> int:
    return given["index"].numel() * given["self"].select(given["dim"], 0).numel()


def _index_elements(given: dict) -> int:
    return given["index"].numel()


# How many elements of `self` each one addresses.
SCATTERING: dict[str, Callable[[dict], int]] = {
    "index_put": _indexed,
    "_index_put_impl": _indexed,
    "masked_fill": _masked,
    "masked_scatter": _masked,
    "index_fill": _slices,
    "index_copy": _slices,
    "index_add": _slices,
    "index_reduce": _slices,
    "scatter": _index_elements,
    "scatter_add": _index_elements,
    "scatter_reduce": _index_elements,
    "put": _index_elements,
}
