"""The course as data: tests/course.toml, read and checked; every fault is a CourseError."""

from __future__ import annotations

import datetime
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

from tests.grading.course_file import (
    NAME,
    PROBLEM_NAME,
    CourseError,
    Table,
    a_date,
    a_file,
    a_points,
    a_text,
    a_track,
    a_weights,
    some_problems,
)

COUNTERS = ("grader", "submission")
MOST_FOR_COSTS = Fraction(3, 10)
MOST_FOR_SUBMISSION_COUNTED = Fraction(2, 10)  # a counter in the student's process can be fooled


@dataclass(frozen=True)
class Unit:
    """A section of the lecture."""

    name: str
    title: str
    due: datetime.date | None


@dataclass(frozen=True)
class Cost:
    """A cost that carries `share` of its problem's points."""

    name: str
    share: Fraction
    counted_by: str  # "grader" or "submission"


@dataclass(frozen=True)
class Problem:
    """One graded file. `groups` maps a correctness group to its weight; the first is the gate.

    A file that is no module holds answers: each group is a question of its own, and none a gate.
    `needs` are problems whose answers this one is made of; all others are gradable alone.
    """

    name: str  # "attention.kv_cache"
    title: str
    track: str
    points: Fraction
    handout: str
    groups: dict[str, Fraction]
    costs: dict[str, Cost]
    file: str | None = None  # what is handed in, where it is no module: "review.toml"
    needs: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return self.name.split(".")[0]

    @property
    def module(self) -> str:
        return self.name.split(".")[1]

    @property
    def target(self) -> str:
        """Where a tree has its file: "attention/kv_cache.py", "review.toml"."""
        return self.file or f"{self.unit}/{self.module}.py"

    @property
    def tests(self) -> str:
        """Its test file: "tests/attention/test_kv_cache.py"."""
        return f"tests/{self.unit}/test_{self.module}.py"

    @property
    def gate(self) -> str | None:
        return None if self.file else next(iter(self.groups))

    @property
    def correctness_share(self) -> Fraction:
        return 1 - sum((cost.share for cost in self.costs.values()), Fraction(0))

    @property
    def grader_costs(self) -> dict[str, Fraction]:
        return self._costs_of("grader")

    @property
    def submission_costs(self) -> dict[str, Fraction]:
        return self._costs_of("submission")

    def _costs_of(self, counter: str) -> dict[str, Fraction]:
        return {c.name: c.share for c in self.costs.values() if c.counted_by == counter}

    def group_points(self, group: str) -> Fraction:
        """What a group is worth: weight / Σ weights × correctness share × points."""
        share = self.groups[group] / sum(self.groups.values())
        return share * self.correctness_share * self.points

    def cost_points(self, cost: str) -> Fraction:
        """What a cost is worth: share × points."""
        return self.costs[cost].share * self.points


@dataclass(frozen=True)
class Course:
    """Units and problems, both in the order of the file."""

    title: str
    units: dict[str, Unit]
    problems: dict[str, Problem]

    @property
    def answers(self) -> dict[str, Problem]:
        """The problems whose file is no module, by that file's name: "review.toml"."""
        return {problem.file: problem for problem in self.problems.values() if problem.file}


def load_course(path: Path | str) -> Course:
    """Read a course file. Raises CourseError when it is missing, not TOML, or unclear anywhere."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text, parse_float=Decimal)  # Decimal keeps 0.1 exact
    except (OSError, UnicodeDecodeError) as error:
        raise CourseError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise CourseError(f"{path}: not valid TOML: {error}") from None
    top = Table(data, path.name)
    title = top.take("title", a_text)
    units = {name: _unit(name, table) for name, table in top.tables("units", NAME, "units.{}")}
    problems = {
        name: _problem(name, table, units)
        for name, table in top.tables("problems", PROBLEM_NAME, "problem {}")
    }
    _refuse_shared_files(top, problems)
    _refuse_needs_not_met(top, problems)
    top.refuse_the_rest()
    return Course(title, units, problems)


def _unit(name: str, table: Table) -> Unit:
    unit = Unit(name, table.take("title", a_text), table.take("due", a_date, default=None))
    table.refuse_the_rest()
    return unit


def _problem(name: str, table: Table, units: dict[str, Unit]) -> Problem:
    unit = name.split(".")[0]
    if unit not in units:
        table.fault(f"unit {unit!r} is not in the file", f"a table [units.{unit}]")
    problem = Problem(
        name=name,
        title=table.take("title", a_text),
        track=table.take("track", a_track),
        points=table.take("points", a_points),
        handout=table.take("handout", a_text),
        groups=table.take("groups", a_weights),
        costs=_costs(table),
        file=table.take("file", a_file, default=None),
        needs=table.take("needs", some_problems, default=()),
    )
    table.refuse_the_rest()
    return problem


def _refuse_shared_files(top: Table, problems: dict[str, Problem]) -> None:
    owners: dict[str, str] = {}
    for problem in problems.values():
        owner = owners.setdefault(problem.target, problem.name)
        if owner != problem.name:
            top.fault(f"{owner} and {problem.name} have the file {problem.file!r}", "one each")


def _refuse_needs_not_met(top: Table, problems: dict[str, Problem]) -> None:
    """What a problem needs comes before it: the file is in the order to solve them in."""
    before: list[str] = []
    for problem in problems.values():
        for name in problem.needs:
            if name not in before:
                top.fault(f"{problem.name} needs {name!r}", "a problem that stands before it")
        before.append(problem.name)


def _costs(problem: Table) -> dict[str, Cost]:
    costs: dict[str, Cost] = {}
    table = problem.table("costs")
    for counter in COUNTERS:
        for name, share in table.take(counter, a_weights, default={}).items():
            if name in costs:
                table.fault(f"{name!r} is under both counters", "each cost under one of them")
            costs[name] = Cost(name, share, counter)
    table.refuse_the_rest()
    counted_there = [cost for cost in costs.values() if cost.counted_by == "submission"]
    _check_sum(table, "the shares", list(costs.values()), MOST_FOR_COSTS)
    _check_sum(table, "submission's shares", counted_there, MOST_FOR_SUBMISSION_COUNTED)
    return costs


def _check_sum(table: Table, what: str, costs: list[Cost], most: Fraction) -> None:
    total = sum(cost.share for cost in costs)
    if total > most:
        table.fault(f"{what} sum to {float(total):g}", f"at most {float(most):g}")
