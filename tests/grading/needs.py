"""Problems that are made of others' answers: which of those are not right yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.grading.course import Course, Problem
from tests.grading.report import ProblemScore


def with_needs(course: Course, scores: Sequence[ProblemScore]) -> list[ProblemScore]:
    """The scores, each with what it waits for: it cannot be right before."""
    graded = {score.problem.name: score for score in scores}
    return [_with_needs(course, score, graded) for score in scores]


def _with_needs(
    course: Course, score: ProblemScore, graded: dict[str, ProblemScore]
) -> ProblemScore:
    if score.status in ("full", "not started"):
        return score
    needed = [course.problems[name] for name in score.problem.needs]
    waits_for = [problem for problem in needed if _is_wrong(problem, score, graded)]
    ungraded = [problem for problem in needed if problem.name not in graded]
    return replace(score, waits_for=tuple(waits_for), ungraded=tuple(ungraded))


def _is_wrong(needed: Problem, score: ProblemScore, graded: dict[str, ProblemScore]) -> bool:
    """Whether a group of it fails; where it was not graded, whether it is what stops a test."""
    if needed.name in graded:
        return any(part.state in ("failed", "unwritten") for part in graded[needed.name].groups)
    return any(failure.message.startswith(f"{needed.name}: ") for failure in score.failures)
