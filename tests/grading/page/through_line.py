"""Where this grade stands on the course's through-line: one model on one chip, made faster.

A technique is earned by its problem, in full. A design is a model built from some techniques; the
station of a student is the best design of those they have earned. `through_line.json` has the
figures, staff's `python -m tests.staff.authoring.through_line` writes it.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.grading.report import Report

FILE = Path(__file__).with_name("through_line.json")
BREAK = 0.1  # seconds a token: what takes longer is drawn behind a break of the axis
SHOWN, BEYOND = 82, 94  # percent of the width: where the axis breaks, and what lies behind it
LARGEST, LEAST = 15, 2.5  # radii in pixels; the area is that of a sequence's keys and values


@dataclass(frozen=True)
class Technique:
    name: str
    title: str
    problem: str
    means: str


@dataclass(frozen=True)
class Design:
    """latency: seconds a token. throughput: tokens a second with as many sequences as fit."""

    techniques: frozenset[str]
    latency: float
    throughput: float
    largest_batch: int | None
    kv_bytes_per_sequence: float
    weight_bytes: float


@dataclass(frozen=True)
class Line:
    model: str
    chip: str
    length: int
    batch: int
    techniques: tuple[Technique, ...]
    designs: tuple[Design, ...]

    def best(self, earned: Collection[str]) -> Design:
        """The design of most throughput among those that need nothing else."""
        possible = [design for design in self.designs if design.techniques <= set(earned)]
        return max(possible, key=lambda design: design.throughput)


@dataclass(frozen=True)
class Figures:
    """A design as text."""

    milliseconds: str
    throughput: str
    sequences: str
    megabytes: str


@dataclass(frozen=True)
class Dot:
    """x, y: percent of the picture. radius: pixels. beyond: behind the break of the axis."""

    x: float
    y: float
    radius: float
    beyond: bool


@dataclass(frozen=True)
class Station:
    """What all techniques up to this one come to."""

    number: int
    title: str
    problem: str  # "" at the start
    earned: bool
    figures: Figures
    dot: Dot


@dataclass(frozen=True)
class Tick:
    at: float  # percent
    label: str


@dataclass(frozen=True)
class Ahead:
    """The first technique that would help, and the best design with it."""

    title: str
    used: tuple[str, ...]
    figures: Figures


@dataclass(frozen=True)
class Picture:
    line: Line
    stations: tuple[Station, ...]
    start: Figures
    you: Figures
    here: Dot
    station: int | None  # the number of the station where the student is; None beside the trail
    used: tuple[str, ...]  # titles of what the student's design is made of
    next: Ahead | None
    techniques: tuple[Technique, ...]  # those that are drawn
    columns: tuple[Tick, ...]
    rows: tuple[Tick, ...]
    beyond: str  # milliseconds of the start, if it lies behind the break

    @property
    def steps(self) -> Iterable[tuple[Station, Station]]:
        return pairwise(self.stations)

    @property
    def walked(self) -> int:
        """The last station up to which nothing is left out."""
        return next((s.number - 1 for s in self.stations if not s.earned), len(self.stations) - 1)


def view_through_line(report: Report) -> Picture | None:
    """None where there is no line, or its first technique is not graded here."""
    line = load(FILE)
    graded = {score.problem.name: score.status == "full" for score in report.problems}
    if line is None or line.techniques[0].problem not in graded:
        return None
    techniques = [technique for technique in line.techniques if technique.problem in graded]
    earned = [technique.name for technique in techniques if graded[technique.problem]]
    return _picture(line, techniques, earned)


@functools.cache
def load(file: Path) -> Line | None:
    """The figures; None where there is no such file, or no technique in it."""
    if not file.is_file():
        return None
    data = json.loads(file.read_text(encoding="utf-8"))
    techniques = tuple(Technique(**entry) for entry in data.pop("techniques"))
    designs = tuple(
        Design(**(entry | {"techniques": frozenset(entry["techniques"])}))
        for entry in data.pop("designs")
    )
    return Line(**data, techniques=techniques, designs=designs) if techniques else None


def _picture(line: Line, techniques: list[Technique], earned: list[str]) -> Picture:
    names = [technique.name for technique in techniques]
    trail = [line.best(names[:number]) for number in range(len(names) + 1)]
    scale = _Scale([line.best(earned), *trail])
    yours, start = line.best(earned), trail[0]
    stations = tuple(
        Station(
            number=number,
            title=techniques[number - 1].title if number else "no cache",
            problem=techniques[number - 1].problem if number else "",
            earned=number == 0 or names[number - 1] in earned,
            figures=_figures(design),
            dot=scale.dot(design),
        )
        for number, design in enumerate(trail)
    )
    return Picture(
        line=line,
        stations=stations,
        start=_figures(start),
        you=_figures(yours),
        here=scale.dot(yours),
        station=len(earned) if earned == names[: len(earned)] else None,
        used=_titles(techniques, yours),
        next=_ahead(line, techniques, earned),
        techniques=tuple(techniques),
        columns=scale.columns(),
        rows=scale.rows(),
        beyond=_figures(start).milliseconds if start.latency > BREAK else "",
    )


def _ahead(line: Line, techniques: list[Technique], earned: list[str]) -> Ahead | None:
    now = line.best(earned).throughput
    for technique in techniques:
        design = line.best([*earned, technique.name])
        if design.throughput > now:
            return Ahead(technique.title, _titles(techniques, design), _figures(design))
    return None


def _titles(techniques: list[Technique], design: Design) -> tuple[str, ...]:
    """What a design is made of, in the course's order."""
    return tuple(t.title for t in techniques if t.name in design.techniques)


class _Scale:
    """From seconds and tokens a second to the picture; linear, and broken behind BREAK."""

    def __init__(self, designs: list[Design]):
        latencies = [design.latency for design in designs if design.latency <= BREAK]
        self.widest = 1.06 * max(latencies, default=BREAK) or BREAK
        self.highest = 1.08 * max(design.throughput for design in designs) or 1
        self.most = max(design.kv_bytes_per_sequence for design in designs) or 1

    def dot(self, design: Design) -> Dot:
        beyond = design.latency > BREAK
        x = BEYOND if beyond else SHOWN * design.latency / self.widest
        y = 100 - 100 * design.throughput / self.highest
        radius = LARGEST * math.sqrt(design.kv_bytes_per_sequence / self.most)
        return Dot(round(x, 2), round(y, 2), round(max(radius, LEAST), 1), beyond)

    def columns(self) -> tuple[Tick, ...]:
        steps = _steps(1000 * self.widest)
        return tuple(Tick(round(SHOWN * ms / 1000 / self.widest, 2), f"{ms:g}") for ms in steps)

    def rows(self) -> tuple[Tick, ...]:
        steps = _steps(self.highest)
        return tuple(Tick(round(100 - 100 * n / self.highest, 2), f"{n:,g}") for n in steps)


def _steps(end: float) -> list[float]:
    """Two to six round numbers below `end`: multiples of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(end))
    step = next(power * part for part in (0.2, 0.5, 1, 2) if end / (power * part) < 7)
    return [step * n for n in range(1, math.ceil(end / step))]


def _figures(design: Design) -> Figures:
    held = design.kv_bytes_per_sequence
    return Figures(
        milliseconds=_three_digits(1000 * design.latency),
        throughput=_three_digits(design.throughput),
        sequences="–" if design.largest_batch is None else f"{design.largest_batch:,}",
        megabytes=f"{held / 1e6:,.0f}",
    )


def _three_digits(number: float) -> str:
    """At least three: 0.123, 9.97, 23.8, 1,793."""
    decimals = max(0, 2 - math.floor(math.log10(number))) if number > 0 else 0
    return f"{number:,.{decimals}f}"
