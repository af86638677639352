"""What a graded run comes to: the data that the terminal, results.json and report.html show."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from tests.grading.course import Course, Problem
from tests.grading.records import Figure, Finding, TestRecord
from tests.grading.tiers import Tier, ratio
from tests.grading.wording import amount, multiple, quantity, rounded


@dataclass(frozen=True)
class Run:
    """What was graded, and how. No point depends on it."""

    submission: str = "assignment"  # as the user gave it; file names in the report start with it
    mode: str = "in-process"  # or "isolated"
    seed: int | None = None
    started: str = ""  # ISO 8601
    seconds: float = 0.0
    versions: dict[str, str | None] = field(default_factory=dict)  # None: not installed
    options: str = ""  # what plain pytest needs to see the same tree: "--submission assignment"
    notes: tuple[str, ...] = ()  # on the files handed in: what was left out, renamed, is missing
    walls: dict[str, str] = field(default_factory=dict)  # name: "" if it stood, else why it did not


@dataclass(frozen=True)
class GroupScore:
    """A correctness group. Its state:

    "passed", "failed", "unwritten" (only stubs failed), "grader error" or "no tests".
    """

    name: str
    is_gate: bool
    weight: Fraction
    state: str
    passed: int
    tests: int
    points: Fraction
    possible: Fraction


@dataclass(frozen=True)
class CostScore:
    """A cost; its state is as a group's. `figure` is the worst one measured, `tier` its tier.

    Both are None where there is nothing to show: a test failed without a figure, or none ran.
    """

    name: str
    counted_by: str
    share: Fraction
    state: str
    tests: int
    figure: Figure | None
    tier: Tier | None
    points: Fraction
    possible: Fraction

    @property
    def wrong_output(self) -> bool:
        """A cost test that fails with a perfect figure failed for what was computed."""
        return self.tier is Tier.FULL and self.state == "failed"

    @property
    def result(self) -> str:
        """The state, seen with the figure: "partial" where it earns a part of the points."""
        if self.state not in ("passed", "failed") or self.tier is None or self.wrong_output:
            return self.state
        if self.tier is Tier.FULL:
            return "passed"
        return "partial" if self.tier.share else "failed"

    @property
    def verdict(self) -> str:
        """What was measured and what it earns, in a few words: "1.42× the ideal, two thirds"."""
        if self.figure is None:
            words = {"unwritten": "not written", "failed": "not measured"}
            return words.get(self.state, self.state)
        if self.tier is Tier.INVALID:
            return f"{amount(self.figure.got)}: {self.tier.value}"
        times = ratio(self.figure.got, self.figure.ideal)
        got = f"{quantity(self.figure.got, self.figure.unit)}, the ideal is 0"
        measured = got if times is None else f"{multiple(times)} the ideal"
        if self.tier is Tier.FULL:
            return f"{measured}, wrong output" if self.wrong_output else measured
        return f"{measured}, {self.tier.value}"

    @property
    def beside(self) -> dict[str, float]:
        """Multiples of the ideal to compare with: the reference's, then what the test names."""
        if self.figure is None:
            return {}
        figures = {"reference": self.figure.reference, **self.figure.beside}
        multiples = {name: ratio(value, self.figure.ideal) for name, value in figures.items()}
        return {name: times for name, times in multiples.items() if times is not None}


@dataclass(frozen=True)
class Failure:
    """One distinct failure message and the tests that it cost; `details` are the first one's."""

    message: str
    details: str
    tests: tuple[str, ...]
    unwritten: bool
    finding: Finding | None = None  # the first one's, too


@dataclass(frozen=True)
class ProblemScore:
    """A problem. Its status: "full", "partial", "failing", "not started" (only stubs failed),

    or "grader error": then `points` are provisional, and `at_most` is what they can still become.
    """

    problem: Problem
    status: str
    points: Fraction
    at_most: Fraction
    groups: tuple[GroupScore, ...]
    costs: tuple[CostScore, ...]
    failures: tuple[Failure, ...]
    faults: tuple[str, ...]  # the grader's own, one line each
    records: tuple[TestRecord, ...]
    waits_for: tuple[Problem, ...] = ()  # it needs them, and they are not right yet
    ungraded: tuple[Problem, ...] = ()  # it needs them, and this run has not graded them

    @property
    def needs(self) -> str:
        """What is to be said of the problems that it needs; empty where that is nothing."""
        if self.waits_for:
            wrong = [problem.name for problem in self.waits_for]
            verb, them = ("is", "it") if len(wrong) == 1 else ("are", "them")
            first = f"{' and '.join(wrong)} {verb} not right yet: solve {them} first"
            return f"needs {', '.join(self.problem.needs)}; {first}"
        if self.ungraded:
            names = ", ".join(problem.name for problem in self.ungraded)
            return f"needs {names}, which this run has not graded"
        return ""

    @property
    def possible(self) -> Fraction:
        return self.problem.points

    @property
    def gate(self) -> GroupScore | None:
        """The group without which nothing counts; None where each counts for itself."""
        return next((group for group in self.groups if group.is_gate), None)

    @property
    def broken(self) -> bool:
        """Every test failed for one reason: then its parts tell nothing more."""
        return len(self.failures) == 1 and len(self.failures[0].tests) == len(self.records)


@dataclass(frozen=True)
class Total:
    points: Fraction
    possible: Fraction


@dataclass(frozen=True)
class NextStep:
    """Where to go on: the first problem that is not full, core track first."""

    problem: str
    title: str
    file: str
    look_at: str
    handout: str
    command: str
    line: int | None = None  # of the file, where it is known


@dataclass(frozen=True)
class Report:
    """Everything there is to show."""

    course: Course
    run: Run
    problems: tuple[ProblemScore, ...]
    faults: tuple[str, ...]  # the grader's own, that belong to no problem
    next_step: NextStep | None  # None when nothing is left that the student could win

    @property
    def core(self) -> Total:
        return _total(self._track("core"))

    @property
    def electives(self) -> Total:
        return _total(self._track("elective"))

    @property
    def counted(self) -> tuple[ProblemScore, ...]:
        """Of which problems the score is: the core track's; where none was graded, all."""
        return tuple(self._track("core")) or self.problems

    @property
    def score(self) -> Total:
        return _total(self.counted)

    @property
    def beside(self) -> Total | None:
        """The electives, where they stand beside the score."""
        return self.electives if self._track("core") and self._track("elective") else None

    @property
    def provisional(self) -> bool:
        return bool(self.faults) or any(score.faults for score in self.problems)

    @property
    def shown(self) -> dict[str, Fraction]:
        """Points by problem in hundredths, so that what is shown adds up to the total shown."""
        shown: dict[str, Fraction] = {}
        for track in (self._track("core"), self._track("elective")):
            cents = rounded([score.points for score in track])
            shown |= {score.problem.name: cent for score, cent in zip(track, cents, strict=True)}
        return shown

    def shown_parts(self, score: ProblemScore) -> list[tuple[Fraction, Fraction]]:
        """(points, possible) of a problem's groups and costs in hundredths.

        They add up to what is shown of the problem, and a part that earns all shows the same
        number twice.
        """
        parts = (*score.groups, *score.costs)
        total = self.shown[score.problem.name]
        earned = rounded([part.points for part in parts], total)
        lost = rounded([part.possible - part.points for part in parts], score.possible - total)
        return [(won, won + rest) for won, rest in zip(earned, lost, strict=True)]

    def _track(self, track: str) -> list[ProblemScore]:
        return [score for score in self.problems if score.problem.track == track]


def _total(scores: Iterable[ProblemScore]) -> Total:
    zero, scores = Fraction(0), list(scores)
    return Total(sum((s.points for s in scores), zero), sum((s.possible for s in scores), zero))
