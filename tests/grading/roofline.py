"""Where a predicted time stands under its chip's roofline."""

from __future__ import annotations

import math
from dataclasses import replace

from assignment.provided.lab import CHIPS, Chip
from assignment.provided.lab.roofline import Point
from assignment.provided.lab.roofline_picture import roofline_text, told
from tests.grading.records import Figure

SUBMISSION = "this submission"


def chip_of(figure: Figure) -> Chip:
    return CHIPS[figure.roofline.chip]


def points_of(figure: Figure | None) -> list[Point]:
    """The submission's, the ideal's and, where it is known, the reference's.

    None at all where there is no picture to draw: of a cost that is no time, or of figures that no
    task has.
    """
    if figure is None or figure.roofline is None or figure.roofline.chip not in CHIPS:
        return []
    work = figure.roofline
    ways = [
        (SUBMISSION, work.bytes, figure.got),
        ("ideal", work.ideal_bytes, figure.ideal),
        ("reference", work.reference_bytes, figure.reference),
    ]
    numbers = [(label, *map(_amount, (work.flops, moved, time))) for label, moved, time in ways]
    points = [Point(*way) for way in numbers if None not in way]
    return points if len(points) > 1 and points[0].label == SUBMISSION else []


def in_a_line(figure: Figure) -> list[str]:
    """Of the submission alone; no line where there is nothing to draw."""
    return [
        told(replace(point, label=f"on the {chip_of(figure).name}"), chip_of(figure))
        for point in points_of(figure)[:1]
    ]


def in_lines(figure: Figure) -> list[str]:
    """A picture of characters."""
    points = points_of(figure)
    return roofline_text(points, chip_of(figure)).splitlines() if points else []


def _amount(value: float | None) -> float | None:
    """A number above 0; a submission's counter may send anything."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return value if 0 < value < math.inf else None
