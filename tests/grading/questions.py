"""A file of answers in words: its tests are questions, and an open one is no failure."""

from __future__ import annotations

from tests.grading.report import ProblemScore
from tests.grading.wording import plural


def left_to_answer(score: ProblemScore) -> str:
    """What is left of a file of answers: "2 questions not right, 1 not answered"."""
    wrong = sum(len(failure.tests) for failure in score.failures if not failure.unwritten)
    empty = sum(len(failure.tests) for failure in score.failures if failure.unwritten)
    if not wrong:
        return f"{plural(empty, 'question')} not answered"
    return f"{plural(wrong, 'question')} not right" + (f", {empty} not answered" if empty else "")
