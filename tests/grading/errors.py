"""What can go wrong between the grader and a submission."""

from __future__ import annotations

import re
import traceback

UNWRITTEN = "is not written yet"
UNANSWERED = "is not answered yet"  # a question of a file that is no module


class SubmissionError(Exception):
    """The submission is at fault: something is missing, it crashed, hung, or answered nonsense."""


class SubmissionTimeout(SubmissionError):
    """The submission did not answer in time."""


class OutOfTime(BaseException):
    """A test took too long in the grader's own process, with what the submission made it do.

    No Exception: a test that expects one must not take it for that.
    """


class GraderError(Exception):
    """The grader itself is at fault; a student is never charged for it."""


class ServerDied(GraderError):
    """The process that makes the children is gone, or cannot make one."""


def describe(error: BaseException) -> str:
    """The error in the words that help its author most."""
    kind, text = type(error).__name__, str(error)
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if kind == "NotImplementedError" and not text and frames:
        return f"{frames[-1].f_code.co_qualname} {UNWRITTEN}"
    if kind == "TypeCheckError":
        return _describe_shapes(text)
    if kind == "BdbQuit":
        return "a breakpoint() is left in the code: run the test with pytest to use it"
    return text


def is_unwritten(error: BaseException) -> bool:
    """Whether a stub raised it; torch has NotImplementedErrors of its own, and they are bugs."""
    return isinstance(error, NotImplementedError) and describe(error).endswith(
        (UNWRITTEN, UNANSWERED)
    )


def needs_no_type(error: BaseException) -> bool:
    """Whether `describe` says it all, so that the exception's type would only be noise."""
    plain = AssertionError | SubmissionError | OutOfTime | NotImplementedError
    return isinstance(error, plain) or type(error).__name__ in ("TypeCheckError", "BdbQuit")


def _describe_shapes(report: str) -> str:
    """jaxtyping's report of several lines in one: who, what came, what was expected, which axes."""
    where = re.search(
        r"checking the (return value|parameters) of submission\.(?:\w+\.){2}(\S+)\.", report
    )
    argument = re.search(r"typechecking parameter '(\w+)'", report)
    actual = re.search(r"Actual value: (.*)", report)
    expected = re.search(r"Expected type: (.*)\.", report)
    if not (where and actual and expected):
        return report
    got = f"got {argument[1]} =" if argument else "returned"
    wanted = re.sub(r"<class '(.*)'>", r"\1", expected[1]).replace("jaxtyping.", "")
    axes = ", ".join(re.findall(r"^(\w+=\d+)$", report, re.MULTILINE))
    line = f"{where[2]} {got} {actual[1].removesuffix('(torch)')}, expected {wanted}"
    return f"{line} with {axes}" if axes else line
