"""Texts beside the right ones: a message names the first token that differs, not both lists."""

from __future__ import annotations

from collections.abc import Sequence

from tests.grading.closeness import Mismatch, assert_equal

__tracebackhide__ = True


def assert_text(got: list[int], expected: list[int], *, what: str = "", hint: str = "") -> None:
    """That the new tokens are these.

    hint: what else is known, if they are not.
    """
    if not isinstance(got, list | tuple):
        raise _mismatch("new tokens", "a list", type(got).__name__, what, hint)
    pairs = enumerate(zip(got, expected, strict=False))
    first = next((i for i, (came, right) in pairs if came != right), None)
    if first is not None:
        right, came = str(expected[first]), str(got[first])
        raise _mismatch(f"new token {first}", right, came, what, hint)
    if len(got) != len(expected):
        right, came = (f"{len(tokens)} new tokens" for tokens in (expected, got))
        raise _mismatch("", right, came, what, hint)


def assert_texts(got: Sequence[list[int]], expected: Sequence[list[int]]) -> None:
    """Of each prompt."""
    assert_equal(len(got), len(expected), what="number of answers")
    for row, (new, right) in enumerate(zip(got, expected, strict=True)):
        assert_text(new, right, what=f"answer {row}")


def _mismatch(where: str, expected: str, got: str, what: str, hint: str) -> Mismatch:
    line = f"expected {expected}, got {got}"
    line = (f"{where}: " if where else "") + line + (f"; {hint}" if hint else "")
    return Mismatch(line, expected=expected, got=got, what=what, where=where, note=hint)
