"""A quantised tensor: what is kept of it."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Quantized:
    """x [..., C] ≈ scale · (code − zero_point), where many elements share scale and zero point.

    codes: integers, of x's shape: int8 if symmetric, else uint8, also where fewer bits are used.
    scale: float32. Its shape says who shares one:
        per "tensor"    [1, ..., 1]            all elements
        per "row"       [..., 1]               the C elements of a row
        per "column"    [1, ..., 1, C]         all elements of a column
        per g, an int   [..., ceil(C / g)]     g neighbours of a row; the last group may be shorter
    zero_point: uint8, of scale's shape; None if symmetric, where it is 0.
    per: as above.
    """

    codes: Tensor
    scale: Tensor
    zero_point: Tensor | None
    per: str | int


def number_of_groups(columns: int, group: int) -> int:
    """Groups of `group` elements in a row of `columns`, a short last one included."""
    return -(-columns // group)
