"""Where to go on: always one file, one thing to look at, one section to read, one command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from tests.grading.course import Problem
from tests.grading.report import Failure, NextStep, ProblemScore, Run


def find_next_step(scores: Sequence[ProblemScore], run: Run) -> NextStep | None:
    """The first problem with points left to win, the core track before the electives; where that
    one waits for another, the other.

    Points that the grader withholds are not the student's to win: such a problem is passed over.
    """
    by_track = sorted(scores, key=lambda score: score.problem.track != "core")  # stable
    first = next((score for score in by_track if score.at_most < score.possible), None)
    if first is None or not first.waits_for:
        return first and _step(first, run)
    needed = first.waits_for[0]
    own = next((score for score in scores if score.problem == needed), None)
    return _step(own, run) if own else _step_to(needed, first, run)


def _step(score: ProblemScore, run: Run) -> NextStep:
    first = _first_failure(score)
    started = score.status != "not started"
    return _to(score.problem, _look_at(score, first), run, first, with_seed=started)


def _step_to(needed: Problem, score: ProblemScore, run: Run) -> NextStep:
    """To a problem that was not graded itself, but stops one that needs it."""
    stops = (f for f in score.failures if f.message.startswith(f"{needed.name}: "))
    return _to(needed, f"{score.problem.name} {score.needs}", run, next(stops, None))


def _to(
    problem: Problem, look_at: str, run: Run, failure: Failure | None, *, with_seed: bool = False
) -> NextStep:
    command = f".venv/bin/pytest {problem.tests} {run.options}".strip()
    if run.seed is not None and with_seed:
        command += f" --seed {run.seed}"
    place = failure.finding.place if failure and failure.finding else None
    return NextStep(
        problem=problem.name,
        title=problem.title,
        file=_file(problem, run),
        look_at=look_at,
        handout=f'{problem.unit}, "{problem.handout}"',
        command=command,
        line=place.line if place and place.file == problem.target else None,
    )


def _file(problem: Problem, run: Run) -> str:
    """Below the tree that was handed in; where that was one problem's file, the file by itself."""
    root = run.submission.rstrip("/")
    if not root.endswith(".py"):
        return f"{root}/{problem.target}"
    return root if f"/{root}".endswith(f"/{PurePath(problem.target).name}") else problem.target


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
