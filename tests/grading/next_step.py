"""Where to go on: always one file, one thing to look at, one section to read, one command."""

from __future__ import annotations

from collections.abc import Sequence

from tests.grading.report import Failure, NextStep, ProblemScore, Run


def find_next_step(scores: Sequence[ProblemScore], run: Run) -> NextStep | None:
    """The first problem with points left to win, the core track before the electives.

    Points that the grader withholds are not the student's to win: such a problem is passed over.
    """
    by_track = sorted(scores, key=lambda score: score.problem.track != "core")  # stable
    first = next((score for score in by_track if score.at_most < score.possible), None)
    return first and _step(first, run)


def _step(score: ProblemScore, run: Run) -> NextStep:
    problem = score.problem
    command = f".venv/bin/pytest {problem.tests} {run.options}".strip()
    if run.seed is not None and score.status != "not started":
        command += f" --seed {run.seed}"
    first = _first_failure(score)
    file = problem.target
    place = first.finding.place if first and first.finding else None
    return NextStep(
        problem=problem.name,
        title=problem.title,
        file=f"{run.submission.rstrip('/')}/{file}",
        look_at=_look_at(score, first),
        handout=f'{problem.unit}, "{problem.handout}"',
        command=command,
        line=place.line if place and place.file == file else None,
    )


def _first_failure(score: ProblemScore) -> Failure | None:
    """The first function that is not written, else the first failure."""
    unwritten = [failure for failure in score.failures if failure.unwritten]
    return next(iter((*unwritten, *score.failures)), None)


def _look_at(score: ProblemScore, first: Failure | None) -> str:
    if first:
        message = first.message.removeprefix(f"{score.problem.name}: ")
        return message or f"{first.tests[0]} fails"
    names = [cost.name for cost in score.costs if cost.points < cost.possible]
    return f"right, but it costs more than it needs to: {', '.join(names)}"
