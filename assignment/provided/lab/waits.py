"""Which calls ask for what is in a tensor.

The contents are on the GPU. Who asks for them, as `int(lengths.max())` or `x[mask]`, whose length
nobody else knows, waits until everything that was launched before has ended. Shapes, strides and
dtypes the CPU knows itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
UNTAGGED = {"equal", "allclose"}  # operators that answer as those do
BY_A_MASK = {"index", "index_put", "index_put_"}
FETCHING = {"tolist", "cpu", "__repr__", "__format__"}  # calls; on a CPU no operator is behind them


def is_fetching(name: str, args: tuple, kwargs: dict) -> bool:
    """Of a tensor's method: whether it brings the contents here."""
    where = [value for value in (*args[1:], *kwargs.values()) if isinstance(value, str)]
    return name in FETCHING or (name == "to" and "cpu" in where)


def is_asking(operator: torch._ops.OpOverload, args: tuple, kwargs: dict) -> bool:
    """Of an ATen operator: whether its result is a number, or its shape is one that depends on it.

    `x[mask] = 0` has to know nothing of the mask, and no more has `repeat_interleave` if it is told
    how many there are.
    """
    name = operator.overloadpacket.__name__
    if name in BY_A_MASK:
        fills = name != "index" and args[2].numel() == 1
        return not fills and any(map(_is_mask, args[1]))
    if name == "repeat_interleave" and kwargs.get("output_size") is not None:
        return False
    return name in UNTAGGED or not TAGS.isdisjoint(operator.tags)


def _is_mask(index: Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)
