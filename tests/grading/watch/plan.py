"""Which problem comes next, and which tests to run next."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from tests.grading.course import Course
from tests.grading.report import ProblemScore


def in_order(course: Course, unit: str | None = None) -> tuple[str, ...]:
    """All problems' names: the core track before the electives, as the report's next step has it.

    With a unit, that one's problems are first, and what comes after them.
    """
    by_track = sorted(course.problems.values(), key=lambda problem: problem.track != "core")
    start = next((i for i, problem in enumerate(by_track) if problem.unit == unit), 0)
    return tuple(problem.name for problem in (*by_track[start:], *by_track[:start]))


def first_open(order: Sequence[str], scores: Mapping[str, ProblemScore]) -> str | None:
    """The first problem that is not full; None while one before it is not known.

    The first of all when none is left.
    """
    for name in order:
        if name not in scores:
            return None
        if scores[name].status != "full":
            return name
    return order[0]


def neighbour(order: Sequence[str], current: str, full: Collection[str], step: int) -> str:
    """The problem after (step 1) or before (−1) `current`, round and round, that is not full.

    Just the nearest when all others are.
    """
    at = order.index(current)
    others = [order[(at + step * i) % len(order)] for i in range(1, len(order))]
    return next((name for name in others if name not in full), (*others, current)[0])


def next_run(
    order: Sequence[str],
    current: str | None,
    stale: Collection[str],
    has_stub: Callable[[str], bool],
) -> tuple[str, ...]:
    """What to run next of the `stale` problems: the current one at once, the others one by one.

    Where no problem is current yet, all up to the first with a stub in it run together: that one
    cannot be full, so the first that is not is among them.
    """
    waiting = [name for name in order if name in stale]
    if current in waiting:
        return (current,)
    if current is not None:
        return tuple(waiting[:1])
    stop = next((i for i, name in enumerate(waiting) if has_stub(name)), len(waiting))
    return tuple(waiting[: stop + 1])
