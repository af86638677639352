"""From what pytest reports of one graded test to its record."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest

from tests.grading.errors import GraderError, describe, is_unwritten, needs_no_type
from tests.grading.findings import find
from tests.grading.records import Figure, Finding, TestRecord

PRINTED = "printed by the submission"  # title of a report's section
PRINTED_BELOW = f"\n\n{PRINTED}:\n"
LONGEST_MESSAGE = 20_000  # characters; a submission can raise an error of any length
LONGEST_TRACE = 16_000


def record(
    call: pytest.CallInfo,
    report: pytest.TestReport,
    *,
    problem: str,
    group: str | None,
    cost: str | None,
    figure: Figure | None,
    files: Mapping[str, str] | None = None,
) -> TestRecord:
    """The record of a test's call, or of what failed around it: that is the grader's fault.

    Args:
        files: of the course's problems, by file. Where a test stops at what is not written in the
            file of another problem, the message says so.
    """
    error = call.excinfo.value if call.excinfo else None
    at_fault = isinstance(error, GraderError) or (error is not None and call.when != "call")
    outcome = "passed" if report.passed else "grader error" if at_fault else "failed"
    printed = next((text for title, text in report.sections if title == PRINTED), "")
    details = _ends(report.longreprtext, LONGEST_TRACE)
    message = "" if error is None else _message(error)
    failed = outcome == "failed" and error is not None
    finding = find(error, message, problem, figure) if failed else None
    unwritten = error is not None and is_unwritten(error)
    if unwritten and (other := _of_another(finding, problem, files or {})):
        unwritten, message = False, f"{other}: {message}"
    return TestRecord(
        test=report.nodeid,
        problem=problem,
        group=group,
        cost=cost,
        outcome=outcome,
        message="" if report.passed else message,
        details="" if report.passed else details + (f"{PRINTED_BELOW}{printed}" if printed else ""),
        unwritten=unwritten,
        seconds=call.duration,
        figure=figure,
        finding=finding,
    )


def _of_another(finding: Finding | None, problem: str, files: Mapping[str, str]) -> str:
    """The other problem whose file was at work; "" if there is none."""
    if finding is None or finding.place is None:
        return ""
    file = "/".join(finding.place.file.split("/")[-2:])
    other = files.get(file, problem)
    return other if other != problem else ""


def _message(error: BaseException) -> str:
    """The error in at most three lines, with its type where the text alone would puzzle."""
    text, name = describe(error)[:LONGEST_MESSAGE], type(error).__name__
    if isinstance(error, KeyError) and getattr(error, "__notes__", ()):
        text = str(error.args[0])[:LONGEST_MESSAGE]  # it crossed as a text: str() quotes it again
    if isinstance(error, AssertionError) and not text.startswith("assert "):
        text = text.partition("\nassert ")[0]  # a line of the test's own needs no "assert 1 == 2"
    if isinstance(error, pytest.fail.Exception):
        text = _not_raised(text)
    elif not needs_no_type(error):
        text = f"{name}: {text}"
    lines = [line.strip() for line in text.splitlines() if line.strip(" -")]
    return "\n".join(lines[:3]) or name


def _not_raised(text: str) -> str:
    """What `pytest.raises` says when nothing came, in the words of every other failure."""
    if not text.startswith("DID NOT RAISE "):
        return text
    names = re.findall(r"\w+(?=[,)']|$)", text)  # ValueError; any of (ValueError, IndexError)
    return f"expected {' or '.join(names)}, got no error"


def _ends(text: str, limit: int) -> str:
    """Both ends of a text that is too long: a traceback begins in the test, ends in the error."""
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}\n[…]\n{text[-half:]}"
