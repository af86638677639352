"""In one process: what official grading would not take of a kernel is refused before it runs."""

from __future__ import annotations

from types import FunctionType

from triton.runtime.jit import JITFunction

from .description import describe
from .rebuild import check

__tracebackhide__ = True

_checked: set[FunctionType] = set()


def check_kernel(kernel: JITFunction) -> None:
    """Look at a kernel and its helpers, once.

    Raises:
        NotDescribable, NotAllowed: as where the kernel is sent away.
    """
    if kernel.fn not in _checked:
        check(describe(kernel))
        _checked.add(kernel.fn)
