"""The report as the page shows it: every number a text, every width a percentage."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from tests.grading.page.chart import Chart, cost_chart
from tests.grading.page.failures import Allowance, Failures, view_failures
from tests.grading.page.roofline import Picture, roofline_picture
from tests.grading.report import CostScore, GroupScore, ProblemScore, Report
from tests.grading.wording import plural, points

ROOM = 1_200_000  # bytes of failures: the page opens at once, whatever a submission prints


@dataclass(frozen=True)
class Segment:
    """A piece of a bar: where it lies, and how much of it is filled."""

    start: float
    width: float
    filled: float
    tone: str
    label: str


@dataclass(frozen=True)
class PartView:
    """A group or a cost."""

    name: str
    state: str
    words: str
    points: str
    possible: str
    chart: Chart | None = None
    roofline: Picture | None = None


@dataclass(frozen=True)
class ProblemView:
    score: ProblemScore
    points: str
    bar: tuple[Segment, ...]  # by part
    groups: tuple[PartView, ...]
    costs: tuple[PartView, ...]
    failures: Failures
    handout: str  # address of its section, or ""

    @property
    def tone(self) -> str:
        return tone(self.score.status)

    @property
    def whole(self) -> Segment:
        share = self.score.points / self.score.possible
        return Segment(0, 100, _percent(share), self.tone, "")


@dataclass(frozen=True)
class UnitView:
    title: str
    due: datetime.date | None
    points: str  # of the core track, and what electives add
    bar: tuple[Segment, ...]
    problems: tuple[ProblemView, ...]


def view_units(report: Report, handout: str) -> list[UnitView]:
    """The units that have problems in the report, in the course's order."""
    allowance = Allowance(ROOM)
    problems = [_view_problem(report, score, handout, allowance) for score in report.problems]
    units = []
    for name, unit in report.course.units.items():
        if mine := tuple(p for p in problems if p.score.problem.unit == name):
            scores = [problem.score for problem in mine]
            earned = _unit_points(report, scores)
            units.append(UnitView(unit.title, unit.due, earned, strip(scores), mine))
    return units


def _unit_points(report: Report, scores: list[ProblemScore]) -> str:
    """8.2 / 14 in the core track; +3 / 3 of electives; 8.2 / 14 + 3 of both."""
    sums = {}
    for track in ("core", "elective"):
        mine = [score for score in scores if score.problem.track == track]
        earned = sum((report.shown[score.problem.name] for score in mine), Fraction(0))
        sums[track] = earned, sum((score.possible for score in mine), Fraction(0))
    (core, most), (extra, most_extra) = sums["core"], sums["elective"]
    if not most:
        return f"+{points(extra)} / {points(most_extra)}"
    return f"{points(core)} / {points(most)}" + (f" + {points(extra)}" if most_extra else "")


def _view_problem(
    report: Report, score: ProblemScore, handout: str, allowance: Allowance
) -> ProblemView:
    parts = (*score.groups, *score.costs)
    shown = report.shown_parts(score)
    lost = {part.name: rest - won for part, (won, rest) in zip(parts, shown, strict=True)}
    is_code = score.problem.file is None
    views = [_view_part(part, *pair, is_code) for part, pair in zip(parts, shown, strict=True)]
    return ProblemView(
        score=score,
        points=points(report.shown[score.problem.name]),
        bar=segments((p.possible, p.points, tone(_result(p)), p.name) for p in parts),
        groups=tuple(views[: len(score.groups)]),
        costs=tuple(views[len(score.groups) :]),
        failures=view_failures(score, lost, report.run, allowance),
        handout=f"{handout}#nameddest={score.problem.name}" if handout else "",
    )


def _view_part(
    part: GroupScore | CostScore, earned: Fraction, possible: Fraction, is_code: bool
) -> PartView:
    is_cost = isinstance(part, CostScore)
    return PartView(
        name=part.name,
        state=_result(part),
        words=part.verdict if is_cost else _group_words(part, is_code),
        points=points(earned),
        possible=points(possible),
        chart=cost_chart(part) if is_cost else None,
        roofline=roofline_picture(part.figure) if is_cost else None,
    )


def _group_words(group: GroupScore, is_code: bool) -> str:
    words = {
        "unwritten": "not written" if is_code else "not answered",
        "grader error": "the grader's fault",
        "no tests": "no tests",
    }
    tests = plural(group.tests, "test")
    done = tests if group.passed == group.tests else f"{group.passed} of {tests}"
    return words.get(group.state, done)


def _result(part: GroupScore | CostScore) -> str:
    return part.result if isinstance(part, CostScore) else part.state


def tone(state: str) -> str:
    """The colour's name for a problem's status or a part's state."""
    return {
        "full": "good", "passed": "good", "partial": "some", "failing": "bad", "failed": "bad",
        "not started": "rest", "unwritten": "rest",
    }.get(state, "fault")  # fmt: skip


def strip(scores: Iterable[ProblemScore]) -> tuple[Segment, ...]:
    """Problems side by side as one bar."""
    return segments((s.possible, s.points, tone(s.status), s.problem.title) for s in scores)


def segments(pieces: Iterable[tuple[Fraction, Fraction, str, str]]) -> tuple[Segment, ...]:
    """(possible, points, tone, label) side by side, together 100 percent wide."""
    pieces = list(pieces)
    total = sum((piece[0] for piece in pieces), Fraction(0))
    start, found = Fraction(0), []
    for possible, earned, colour, label in pieces:
        width = possible / total
        filled = _percent(earned / total)
        found.append(Segment(_percent(start), _percent(width), filled, colour, label))
        start += width
    return tuple(found)


def _percent(share: Fraction) -> float:
    return round(float(share) * 100, 2)
