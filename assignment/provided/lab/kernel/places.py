"""A place in memory as a student would write it: an index into a tensor."""

from __future__ import annotations

from collections.abc import Sequence


def index_of(offset: int, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...] | None:
    """The element of a tensor that is `offset` elements after its first; None between its rows.

    What lies outside has an index, too: one that the first axis does not have, as [3, 0] or [-1, 7]
    of shape [3, 8].
    """
    index = [0] * len(shape)
    axes = [axis for axis, size in enumerate(shape) if size != 1 and strides[axis]]
    axes = sorted(axes, key=lambda axis: -strides[axis]) or list(range(len(shape)))[-1:]
    for axis in axes:
        index[axis], offset = divmod(offset, max(strides[axis], 1))
    inner_are_inside = all(index[axis] < shape[axis] for axis in axes[1:])
    return tuple(index) if offset == 0 and inner_are_inside else None
