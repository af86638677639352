"""Run-time shape checks of a submission's functions, compiled when a function is first called.

jaxtyping asks a type checker to wrap every function of a file; a test calls only a few of them, and
each child loads the file afresh.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from beartype import beartype


def check_when_called(function: Callable) -> Callable:
    """What `beartype(function)` does, but the work starts at the first call."""

    @functools.wraps(function)
    def checked(*args, **kwargs):
        return compiled()(*args, **kwargs)

    @functools.cache
    def compiled() -> Callable:
        return beartype(function)

    return checked
