"""Is a tensor close enough to the truth, and if not, where does it first differ?"""

from __future__ import annotations

import torch
from torch import Tensor

from tests.grading.transport.proxy import Handle

__tracebackhide__ = True  # pytest's word: a traceback ends in the test, not here
SLACK = 4.0  # measured: no false rejection of textbook attention in 550 draws per dtype


class Mismatch(AssertionError):
    """A failed comparison: its line, and the parts that a report shows one by one."""

    __module__ = "builtins"  # pytest then calls it "Mismatch", without a path before it

    def __init__(
        self,
        line: str,
        *,
        expected: str,
        got: str,
        what: str = "",
        where: str = "",
        note: str = "",
    ):
        super().__init__(f"{what}: {line}" if what else line)
        self.expected, self.got = expected, got
        self.what, self.where, self.note = what, where, note


def assert_close(
    got: Tensor,
    expected: Tensor,
    *,
    naive: Tensor | None = None,
    axes: str = "",
    what: str = "",
) -> None:
    """Assert max|got − expected| ≤ 4·max|naive − expected| + 4·eps·max|expected|.

    eps is that of got's dtype, and at most that of naive's (of bfloat16 if there is none).

    Args:
        got: the submission's answer, any floating dtype.
        expected: the oracle's answer in float64, same shape.
        naive: the textbook form computed in the dtype under test: what rounding alone costs there.
        axes: names of the axes, such as "batch heads seq head_dim", for the message.
        what: what is compared, such as "keys", for the message.
    Raises:
        Mismatch: they differ.
    """
    _check_tensor(got, expected, axes, what)
    if not got.is_floating_point():
        raise _mismatch("a floating dtype", _dtype(got), what)
    reference = expected.double()
    coarsest = torch.bfloat16 if naive is None else naive.dtype  # a float8 would excuse anything
    eps = min(torch.finfo(dtype).eps for dtype in (got.dtype, coarsest))
    allowed = SLACK * eps * _largest(reference)
    if naive is not None:
        allowed += SLACK * _largest(naive.double() - reference)
    error = (got.detach().double() - reference).abs()
    wrong = ~(error <= allowed)  # written so that NaN is wrong
    if wrong.any():
        far = f"largest difference {_largest(error):.3g}, allowed {allowed:.3g}"
        raise _first_difference(wrong, got, reference, axes, what, far)


def assert_equal(got: object, expected: object, *, axes: str = "", what: str = "") -> None:
    """Assert exact equality of tensors (shape and values), or of lists, numbers and the like."""
    if not isinstance(expected, Tensor):
        if isinstance(got, Tensor) and got.numel() != 1:  # == would compare element by element
            raise _mismatch(repr(expected), f"a tensor of shape {list(got.shape)}", what)
        if not got == expected:
            raise _mismatch(repr(expected), repr(got), what)
        return
    _check_tensor(got, expected, axes, what)
    if (got.dtype is torch.bool) != (expected.dtype is torch.bool):
        raise _mismatch(f"dtype {_dtype(expected)}", _dtype(got), what)
    wrong = _exact(got) != _exact(expected) if got.numel() else torch.zeros(0, dtype=torch.bool)
    if wrong.any():
        raise _first_difference(wrong, got, expected, axes, what)


def _check_tensor(got: object, expected: Tensor, axes: str, what: str) -> None:
    if not isinstance(got, Tensor):
        raise _mismatch("a tensor", _kind(got), what)
    if got.shape != expected.shape:
        names = f" [{', '.join(axes.split())}]" if axes else ""
        shape = f"{list(expected.shape)}{names}"
        raise _mismatch(f"shape {shape}", str(list(got.shape)), what)


def _mismatch(expected: str, got: str, what: str) -> Mismatch:
    return Mismatch(f"expected {expected}, got {got}", expected=expected, got=got, what=what)


def _first_difference(
    wrong: Tensor, got: Tensor, expected: Tensor, axes: str, what: str, far: str = ""
) -> Mismatch:
    index = tuple(wrong.nonzero()[0].tolist())
    names = axes.split()
    if len(names) != len(index):
        names = [f"axis {i}" for i in range(len(index))]
    where = ", ".join(f"{name} {i}" for name, i in zip(names, index, strict=True))
    right, came = _number(expected[index]), _number(got[index])
    if wrong.numel() == 1:
        note, line = far, f"expected {right}, got {came}" + (f"; {far}" if far else "")
        return Mismatch(line, expected=right, got=came, what=what, where=where, note=note)
    note = f"{int(wrong.sum())} of {wrong.numel()} elements are off" + (f"; {far}" if far else "")
    line = f"first differs at {where}: expected {right}, got {came}; {note}"
    return Mismatch(line, expected=right, got=came, what=what, where=where, note=note)


def _exact(tensor: Tensor) -> Tensor:
    """In the widest dtype of its kind, so that a comparison rounds neither side."""
    return tensor.double() if tensor.is_floating_point() else tensor


def _kind(value: object) -> str:
    """What came in place of a tensor, in its author's words."""
    if isinstance(value, Handle):  # stands for an object on the submission's side
        return repr(value).removeprefix("<").removesuffix(" of the submission>")
    return "None" if value is None else type(value).__name__


def _number(element: Tensor) -> str:
    value = element.item()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _largest(values: Tensor) -> float:
    return float(values.abs().max()) if values.numel() else 0.0


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
