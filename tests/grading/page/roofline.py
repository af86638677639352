"""A predicted time under its chip's roofline, both axes logarithmic; the template draws it.

Places are percent of the picture, from the top left corner.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from assignment.provided.lab.roofline import Axes, axes
from assignment.provided.lab.roofline_picture import told
from assignment.provided.units import power_of_ten
from tests.grading.records import Figure
from tests.grading.roofline import SUBMISSION, chip_of, points_of

KINDS = {SUBMISSION: "yours"}  # else the label itself


@dataclass(frozen=True)
class Tick:
    at: float
    label: str


@dataclass(frozen=True)
class Dot:
    x: float
    y: float
    kind: str  # "yours", "ideal" or "reference"
    words: str


@dataclass(frozen=True)
class Picture:
    chip: str
    dots: tuple[Dot, ...]
    roof: tuple[tuple[float, float], ...]  # three corners
    columns: tuple[Tick, ...]  # FLOPs a byte
    rows: tuple[Tick, ...]  # FLOP/s

    @property
    def lines(self) -> list[tuple[tuple[float, float], tuple[float, float]]]:
        return list(pairwise(self.roof))


def roofline_picture(figure: Figure | None) -> Picture | None:
    """None where the figure has none."""
    points = points_of(figure)
    if figure is None or not points:
        return None
    chip = chip_of(figure)
    found = axes(points, chip)
    dots = (
        Dot(
            *_place(found.across(point.intensity), found.up(point.rate)),
            kind=KINDS.get(point.label, point.label),
            words=told(point, chip),
        )
        for point in points
    )
    return Picture(
        chip=chip.name,
        dots=tuple(dots),
        roof=tuple(_place(*corner) for corner in found.roof(chip)),
        columns=_columns(found),
        rows=tuple(
            Tick(_place(0, found.up(rate))[1], power_of_ten(rate, "FLOP/s")) for rate in found.rates
        ),
    )


def _columns(found: Axes) -> tuple[Tick, ...]:
    inner = found.intensities[:-1]  # the last would run off the page
    return tuple(Tick(_place(found.across(at), 0)[0], f"{at:g}") for at in inner)


def _place(across: float, up: float) -> tuple[float, float]:
    return round(100 * across, 2), round(100 * (1 - up), 2)
