"""What is known, what is shown, and what is to run next. It knows no terminal, process or clock."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from tests.grading.course import Course, Problem
from tests.grading.report import Failure, ProblemScore, Report, Run, Total
from tests.grading.watch.plan import first_open, neighbour, next_run

HINTS = 2  # steps: the docstring's, then what to read and to run


@dataclass
class Job:
    """Problems whose tests are running."""

    problems: tuple[str, ...]
    heard: float  # when the last sign of life came, on any clock
    tests: int = 0  # 0 until they are collected
    done: int = 0
    cancelled: bool = False


@dataclass(frozen=True)
class Result:
    """What the last run of a problem came to."""

    score: ProblemScore
    run: Run
    at: str  # the time of day, for people


@dataclass
class Session:
    """A student's sitting. The fields say what is; the methods, what happens.

    Args:
        order: the problems, in the order in which they are worked on.
        current: the problem on the screen; None until it is known which is the first that is open.
        has_stub: whether a problem's file still has a function that is not written.
    """

    course: Course
    order: tuple[str, ...]
    seed: int
    submission: str = "assignment"  # as the student gave it
    current: str | None = None
    has_stub: Callable[[str], bool] = lambda name: True
    results: dict[str, Result] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    job: Job | None = None
    faults: tuple[str, ...] = ()  # the grader's own
    listing: bool = False  # all problems are shown, not the current one
    cursor: str | None = None  # in that list
    hint: int = 0  # how many steps of it are shown

    def __post_init__(self) -> None:
        self.stale = set(self.order)

    # What happens.

    def save(self, problems: Collection[str]) -> None:
        """Files were saved on which these problems' results depend."""
        self.stale |= set(problems)

    def start(self, now: float) -> Job | None:
        """The next job, which begins now; None when nothing is to do."""
        names = next_run(self.order, self.current, self.stale, self.has_stub)
        if not names:
            return None
        self.stale -= set(names)
        self.job = Job(names, heard=now)
        return self.job

    def hear(self, now: float, *, tests: int | None = None) -> None:
        """The job has collected its tests, or has finished one more."""
        if self.job:
            self.job.heard = now
            if tests is None:
                self.job.done += 1
            else:
                self.job.tests = tests

    def finish(self, report: Report, at: str) -> None:
        """The job's results are there. Those that a save has overtaken are forgotten."""
        self.job, self.faults = None, report.faults
        for score in report.problems:
            if score.problem.name not in self.stale:
                self.results[score.problem.name] = Result(score, report.run, at)
        if self.current is None:
            self.current = first_open(self.order, self.scores)
        if self.result and self.result.score.status == "full":
            self.hint = 0

    def give_up(self, fault: str = "") -> None:
        """The job ended without results: cancelled, or by the grader's own fault."""
        if self.job and not fault:
            self.stale |= set(self.job.problems)
        self.faults = (fault,) if fault else self.faults
        self.job = None

    def press(self, key: str) -> None:
        """A key that the keys' line tells; others do nothing."""
        if self.current is None:
            return
        if self.listing and key in ("down", "up", "j", "k", "enter", "esc"):
            self._press_in_list(key)
        elif key in ("n", "p"):
            self.go_to(self.next(1 if key == "n" else -1))
        elif key == "l":
            self.listing, self.cursor = not self.listing, self.current
        elif key in ("h", "esc"):
            self.hint = 0 if key == "esc" else (self.hint + 1) % (HINTS + 1)
            self.listing = False

    def _press_in_list(self, key: str) -> None:
        names = listed(self.course)
        at = names.index(self.cursor or names[0])
        if key == "enter":
            self.go_to(names[at])
        elif key == "esc":
            self.listing = False
        else:
            self.cursor = names[(at + (1 if key in ("down", "j") else -1)) % len(names)]

    def go_to(self, problem: str) -> None:
        """Show this problem."""
        if problem != self.current:
            self.hint = 0
        self.current, self.listing, self.cursor = problem, False, problem

    def renew(self, seed: int) -> None:
        """Run the current problem again, on the inputs of another seed."""
        self.seed = seed
        self.save({self.current} if self.current else set(self.order))

    # What is.

    @property
    def overtaken(self) -> bool:
        """Whether the running job should end: it is useless now, or another is more urgent."""
        if self.job is None or self.job.cancelled:
            return False
        return bool(self.stale & set(self.job.problems)) or self.current in self.stale

    @property
    def busy(self) -> bool:
        """Whether the current problem's result is on its way."""
        running = self.job.problems if self.job else ()
        return self.current is None or self.current in running or self.current in self.stale

    @property
    def problem(self) -> Problem | None:
        return self.course.problems[self.current] if self.current else None

    @property
    def result(self) -> Result | None:
        """The current problem's, as far as it is known."""
        return self.results.get(self.current or "")

    @property
    def scores(self) -> dict[str, ProblemScore]:
        return {name: result.score for name, result in self.results.items()}

    def next(self, step: int = 1) -> str:
        """The problem to go on with; with step −1, the one before."""
        full = {name for name, score in self.scores.items() if score.status == "full"}
        return neighbour(self.order, self.current or self.order[0], full, step)

    def total(self, track: str) -> Total:
        """Points so far, of the whole track's."""
        problems = [p for p in self.course.problems.values() if p.track == track]
        earned = (self.results[p.name].score.points for p in problems if p.name in self.results)
        return Total(sum(earned, Fraction(0)), sum((p.points for p in problems), Fraction(0)))


def new_seed() -> int:
    """Of one sitting: the inputs stay while the code changes. Short, for it is typed."""
    return secrets.randbelow(10_000)


def first_failure(score: ProblemScore) -> Failure | None:
    """What to look at: the first failure of what is written, else the first unwritten function."""
    return min(score.failures, key=lambda failure: failure.unwritten, default=None)


def listed(course: Course) -> Sequence[str]:
    """The problems in the order of the list: by unit."""
    return [name for unit in course.units for name, p in course.problems.items() if p.unit == unit]
