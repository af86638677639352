"""Is a tensor close enough to the truth, and if not, where does it first differ?"""

from __future__ import annotations

import torch
from torch import Tensor

SLACK = 4.0  # measured: no false rejection of textbook attention in 550 draws per dtype


def assert_close(
    got: Tensor,
    expected: Tensor,
    *,
    naive: Tensor | None = None,
    axes: str = "",
    what: str = "",
) -> None:
    """Assert max|got − expected| ≤ 4·max|naive − expected| + 4·eps(dtype of got)·max|expected|.

    Args:
        got: the submission's answer, any floating dtype.
        expected: the oracle's answer in float64, same shape.
        naive: the textbook form computed in the dtype under test: what rounding alone costs there.
        axes: names of the axes, such as "batch heads seq head_dim", for the message.
        what: what is compared, such as "keys", for the message.
    """
    what = f"{what}: " if what else ""
    _assert_tensor(got, expected, axes, what)
    assert got.is_floating_point(), f"{what}expected a floating dtype, got {_dtype(got)}"
    reference = expected.double()
    allowed = SLACK * torch.finfo(got.dtype).eps * _largest(reference)
    if naive is not None:
        allowed += SLACK * _largest(naive.double() - reference)
    error = (got.detach().double() - reference).abs()
    wrong = ~(error <= allowed)  # written so that NaN is wrong
    if wrong.any():
        raise AssertionError(
            f"{what}{_first_difference(wrong, got, reference, axes)}; largest difference "
            f"{_largest(error):.3g}, allowed {allowed:.3g}"
        )


def assert_equal(got: object, expected: object, *, axes: str = "", what: str = "") -> None:
    """Assert exact equality of tensors (shape and values), or of lists, numbers and the like."""
    what = f"{what}: " if what else ""
    if not isinstance(expected, Tensor):
        assert got == expected, f"{what}expected {expected!r}, got {got!r}"
        return
    _assert_tensor(got, expected, axes, what)
    wrong = got != expected.to(got.dtype) if got.numel() else torch.zeros(0, dtype=torch.bool)
    if wrong.any():
        raise AssertionError(what + _first_difference(wrong, got, expected, axes))


def _assert_tensor(got: object, expected: Tensor, axes: str, what: str) -> None:
    assert isinstance(got, Tensor), f"{what}expected a tensor, got {type(got).__name__}"
    if got.shape != expected.shape:
        names = f" [{', '.join(axes.split())}]" if axes else ""
        shapes = f"{list(expected.shape)}{names}, got {list(got.shape)}"
        raise AssertionError(f"{what}expected shape {shapes}")


def _first_difference(wrong: Tensor, got: Tensor, expected: Tensor, axes: str) -> str:
    index = tuple(wrong.nonzero()[0].tolist())
    names = (
        axes.split()
        if len(axes.split()) == len(index)
        else [f"axis {i}" for i in range(len(index))]
    )
    place = ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=True))
    return (
        f"first differs at {place or 'the only element'}: expected {_number(expected[index])}, "
        f"got {_number(got[index])}; {int(wrong.sum())} of {wrong.numel()} elements are off"
    )


def _number(element: Tensor) -> str:
    value = element.item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
