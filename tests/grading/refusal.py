"""A call that must be refused; one that is not is named in the failure."""

from __future__ import annotations

from collections.abc import Callable

from tests.grading.closeness import Mismatch

__tracebackhide__ = True  # pytest's word: a traceback ends in the test, not here


def assert_value_error(what: str, target: Callable, *args: object) -> None:
    """Assert that target(*args), which the failure calls `what`, raises ValueError."""
    try:
        target(*args)
    except ValueError:
        return
    expected, got = "ValueError", "no error"
    raise Mismatch(f"expected {expected}, got {got}", expected=expected, got=got, what=what)
