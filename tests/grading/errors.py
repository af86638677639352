"""What can go wrong between the grader and a submission."""

from __future__ import annotations

import traceback


class SubmissionError(Exception):
    """The submission is at fault: something is missing, it crashed, hung, or answered nonsense."""


class GraderError(Exception):
    """The grader itself is at fault; a student is never charged for it."""


def describe(error: BaseException) -> str:
    """The error's own text; for a stub's bare NotImplementedError, which function is a stub."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, NotImplementedError) and not str(error) and frames:
        return f"{frames[-1].f_code.co_qualname} is not written yet"
    return str(error)
