"""A cost as bars on one scale, the multiples of the ideal. Drawing them is the template's part.

The scale is the same on every page and ends a little behind the last multiple that earns anything:
there a longer bar runs off, and its number says how far. Everything is in percent of the width.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from tests.grading.report import CostScore
from tests.grading.tiers import LIMITS, Tier, ratio
from tests.grading.wording import multiple, one_line, quantity

END = Fraction(18, 5)  # the right end, in multiples of the ideal
SHARES = {Tier.FULL: "all", Tier.TWO_THIRDS: "⅔", Tier.ONE_THIRD: "⅓"}  # else none


@dataclass(frozen=True)
class Bar:
    label: str
    kind: str  # "yours", "ideal", "reference" or "beside"
    multiple: str
    amount: str
    width: float
    beyond: bool  # longer than the scale


@dataclass(frozen=True)
class Zone:
    """From one limit to the next: what a figure that ends there earns."""

    start: float
    width: float
    name: str  # of the tier
    share: str
    up_to: str  # its end, as a multiple; empty for the last

    @property
    def middle(self) -> float:
        return round(self.start + self.width / 2, 2)


@dataclass(frozen=True)
class Chart:
    name: str
    tests: int  # how many measured it; the worst is drawn
    bars: tuple[Bar, ...]

    @property
    def zones(self) -> tuple[Zone, ...]:
        return ZONES


def cost_chart(cost: CostScore) -> Chart | None:
    """The submission, ideal, reference, and what the test compares with.

    None without a figure, or where multiples say nothing (an ideal of 0, a figure not a number).
    """
    figure = cost.figure
    if figure is None or ratio(figure.got, figure.ideal) is None:
        return None
    rows = [("this submission", "yours", figure.got), ("ideal", "ideal", figure.ideal)]
    rows += [("reference", "reference", figure.reference)]
    rows += [(name, "beside", value) for name, value in figure.beside.items()]
    bars = [_bar(*row, figure.ideal, figure.unit) for row in rows]
    return Chart(cost.name, cost.tests, tuple(bar for bar in bars if bar))


def _bar(label: str, kind: str, value: float | None, ideal: float, unit: str) -> Bar | None:
    times = ratio(value, ideal)
    if times is None:
        return None
    return Bar(
        label=one_line(label, 60),
        kind=kind,
        multiple=multiple(times),
        amount=quantity(value, unit),
        width=_percent(min(times, END)),
        beyond=times > END,
    )


def _zones() -> tuple[Zone, ...]:
    ends = [*LIMITS.values(), END]
    tiers = [*LIMITS, Tier.TOO_MUCH]
    starts = [Fraction(0), *ends]
    return tuple(
        Zone(
            start=_percent(start),
            width=_percent(end - start),
            name=tier.name.lower().replace("_", "-"),
            share=SHARES.get(tier, "0"),
            up_to=f"{float(end):g}×" if tier in LIMITS else "",
        )
        for start, end, tier in zip(starts, ends, tiers, strict=False)
    )


def _percent(multiple: float | Fraction) -> float:
    return round(float(multiple / END) * 100, 2)


ZONES = _zones()
