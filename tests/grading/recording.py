"""From what pytest reports of one graded test to its record."""

from __future__ import annotations

import pytest

from tests.grading.errors import GraderError, describe, is_unwritten, needs_no_type
from tests.grading.records import Figure, TestRecord

PRINTED = "printed by the submission"  # title of a report's section


def record(
    call: pytest.CallInfo,
    report: pytest.TestReport,
    *,
    problem: str,
    group: str | None,
    cost: str | None,
    figure: Figure | None,
) -> TestRecord:
    """The record of a test's call, or of what failed around it: that is the grader's fault."""
    error = call.excinfo.value if call.excinfo else None
    at_fault = isinstance(error, GraderError) or (error is not None and call.when != "call")
    printed = next((text for title, text in report.sections if title == PRINTED), "")
    details = report.longreprtext + (f"\n\n{PRINTED}:\n{printed}" if printed else "")
    return TestRecord(
        test=report.nodeid,
        problem=problem,
        group=group,
        cost=cost,
        outcome="passed" if report.passed else "grader error" if at_fault else "failed",
        message="" if report.passed else _message(error),
        details="" if report.passed else details,
        unwritten=error is not None and is_unwritten(error),
        seconds=call.duration,
        figure=figure,
    )


def _message(error: BaseException | None) -> str:
    """The error in at most three lines, with its type where the text alone would puzzle."""
    if error is None:
        return ""
    text, name = describe(error), type(error).__name__
    if not (needs_no_type(error) or isinstance(error, pytest.fail.Exception)):
        text = f"{name}: {text}"
    lines = [line.strip() for line in text.splitlines() if line.strip(" -")]
    return "\n".join(lines[:3]) or name
