"""Run-time shape checks of a submission's functions, compiled when a function is first called.

jaxtyping asks a type checker to wrap every function of a file; a test calls only a few of them, and
each child loads the file afresh.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from beartype import BeartypeConf, beartype

_beartype = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int may stand for a float


def check_when_called(function: Callable) -> Callable:
    """What beartype does to `function`, but the work starts at the first call."""

    @functools.wraps(function)
    def checked(*args, **kwargs):
        return compiled()(*args, **kwargs)

    @functools.cache
    def compiled() -> Callable:
        return _beartype(function)

    return checked
