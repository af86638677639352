"""Comparing single numbers, in the words of tests.grading.closeness."""

from __future__ import annotations

import math
from collections.abc import Sequence

from assignment.provided.lab import Cost
from tests.grading.closeness import Mismatch

__tracebackhide__ = True  # pytest's word: a traceback ends in the test, not here


def assert_number(got: object, expected: float | None, what: str) -> None:
    """`got` is `expected` up to rounding: 1e-9 of it. None is None, and infinity is infinity."""
    plain = isinstance(got, int | float) and not isinstance(got, bool)
    if expected is None or not plain:
        right = got is expected
    else:
        right = math.isclose(got, expected, rel_tol=1e-9)
    if not right:
        raise _mismatch(repr(expected), repr(got), what)


def assert_numbers(got: Sequence[object], expected: Sequence[float], what: str) -> None:
    """As `assert_number`, one by one."""
    if len(got) != len(expected):
        raise _mismatch(f"{len(expected)} numbers", f"{len(got)}", what)
    for index, pair in enumerate(zip(got, expected, strict=True)):
        assert_number(*pair, what=f"{what}[{index}]")


def assert_cost(got: object, expected: Cost, what: str) -> None:
    """Each count of `got` equals that of `expected`, and is an int where that one is."""
    if not isinstance(got, Cost):
        raise _mismatch("a Cost", repr(got), what)
    for name, right in vars(expected).items():
        count, of_what = getattr(got, name), f"{name} of {what}"
        if count != right:
            raise _mismatch(repr(right), repr(count), of_what)
        if type(right) is int and type(count) is not int:
            raise _mismatch(f"the int {right}", f"the {type(count).__name__} {count}", of_what)


def _mismatch(expected: str, got: str, what: str) -> Mismatch:
    return Mismatch(f"expected {expected}, got {got}", expected=expected, got=got, what=what)
