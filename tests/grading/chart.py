"""A cost as a bar chart: where each bar, line and label goes. Drawing it is the template's part."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.grading.report import CostScore
from tests.grading.tiers import LIMITS, ratio
from tests.grading.wording import amount, multiple, one_line

LABELS, PLOT, NUMBERS = 190, 300, 170  # widths of the three columns
ROW, BAR, AXIS = 24, 14, 20  # heights
LINEAR_TO = 8.0  # beyond this multiple of the ideal a linear scale would flatten the rest
TICKS = {False: (0, 1, 2, 3, 4, 5, 6, 7, 8), True: tuple(10.0**k for k in range(-6, 16))}


@dataclass(frozen=True)
class Bar:
    label: str
    multiple: str
    amount: str
    kind: str  # "ideal", "reference", "yours" or "beside"
    y: float
    width: float


@dataclass(frozen=True)
class Line:
    x: float
    label: str


@dataclass(frozen=True)
class Chart:
    """Everything in pixels of a picture `width` × `height`; bars start at x = `left`."""

    title: str
    width: int
    height: int
    left: int
    bottom: int  # the y of the axis
    bars: tuple[Bar, ...]
    ticks: tuple[Line, ...]
    limits: tuple[Line, ...]  # up to which multiple a figure earns how much
    is_log: bool


def cost_chart(cost: CostScore) -> Chart | None:
    """Ideal, reference, submission and what the test compares with, as multiples of the ideal.

    None without a figure, or where multiples say nothing (an ideal of 0, a figure not a number).
    """
    figure = cost.figure
    if figure is None or ratio(figure.got, figure.ideal) is None:
        return None
    rows = [("ideal", "ideal", figure.ideal), ("reference", "reference", figure.reference)]
    rows += [("this submission", "yours", figure.got)]
    rows += [(name, "beside", value) for name, value in figure.beside.items()]
    known = [(name, kind, value, ratio(value, figure.ideal)) for name, kind, value in rows]
    known = [row for row in known if row[-1] is not None]
    scale = _Scale([times for *_, times in known])
    bottom = ROW * len(known) + 4
    return Chart(
        title=f"{cost.name}, in multiples of the ideal",
        width=LABELS + PLOT + NUMBERS,
        height=bottom + AXIS,
        left=LABELS,
        bottom=bottom,
        bars=tuple(
            Bar(
                one_line(name, 28),
                multiple(times),
                f"{amount(value)} {figure.unit}",
                kind,
                i * ROW + (ROW - BAR) / 2,
                scale.width(times),
            )
            for i, (name, kind, value, times) in enumerate(known)
        ),
        ticks=scale.lines({tick: f"{tick:g}×" for tick in TICKS[scale.is_log]}),
        limits=scale.lines({float(limit): step.value for step, limit in LIMITS.items()}),
        is_log=scale.is_log,
    )


class _Scale:
    """Linear from 0, or logarithmic where one figure is far above the rest."""

    def __init__(self, multiples: list[float]):
        top = max(3.2, *multiples)  # far enough for all tiers to show
        self.is_log = top > LINEAR_TO
        above_zero = [times for times in multiples if times > 0]
        self._low = min(0.5, *above_zero) / 1.2 if self.is_log else 0.0
        self._top = top

    def width(self, times: float) -> float:
        """Pixels from the left of the plot; 0 for what lies left of it."""
        if not self.is_log:
            return round(times / self._top * PLOT, 1)
        if times <= self._low:
            return 0.0
        return round(math.log(times / self._low) / math.log(self._top / self._low) * PLOT, 1)

    def lines(self, labels: dict[float, str]) -> tuple[Line, ...]:
        inside = {at: label for at, label in labels.items() if self._low <= at <= self._top}
        return tuple(Line(LABELS + self.width(at), label) for at, label in inside.items())
