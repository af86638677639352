"""How much of a cost's points a figure earns: by its ratio to the ideal, in three steps."""

from __future__ import annotations

import math
import sys
from enum import Enum
from fractions import Fraction

from tests.grading.records import Figure
from tests.grading.wording import amount, multiple, quantity


class Tier(Enum):
    """What a figure earns; the value is what a report says about it."""

    FULL = "full"
    TWO_THIRDS = "two thirds"
    ONE_THIRD = "one third"
    TOO_MUCH = "too much"
    IMPOSSIBLE = "below the possible"
    INVALID = "not a possible figure"

    @property
    def share(self) -> Fraction:
        thirds = {Tier.FULL: 3, Tier.TWO_THIRDS: 2, Tier.ONE_THIRD: 1}
        return Fraction(thirds.get(self, 0), 3)


LIMITS = {  # up to this multiple of the ideal
    Tier.FULL: Fraction(11, 10),
    Tier.TWO_THIRDS: Fraction(15, 10),
    Tier.ONE_THIRD: Fraction(3),
}
LOWEST = Fraction(9, 10)  # less work than this is work not done, or not counted


def tier(got: float, ideal: float) -> Tier:
    """The tier of `got` against `ideal`, compared exactly. An ideal of 0 is met by 0 only."""
    if not (is_amount(got) and is_amount(ideal)):
        return Tier.INVALID
    if Fraction(got) < LOWEST * Fraction(ideal):
        return Tier.IMPOSSIBLE
    fitting = (t for t, limit in LIMITS.items() if Fraction(got) <= limit * Fraction(ideal))
    return next(fitting, Tier.TOO_MUCH)


def ratio(got: float | None, ideal: float) -> float | None:
    """`got` as a multiple of `ideal`; None where that says nothing (no figure, NaN, ideal 0)."""
    if got is None or not (is_amount(got) and is_amount(ideal)) or ideal == 0:
        return None
    times = float(got) / float(ideal)
    return times if math.isfinite(times) else None


def describe(figure: Figure) -> str:
    """A line for a failing test: "copies: 1,420 bytes, 1.42× the ideal of 1,000: two thirds …", and
    what the figure's note says."""
    verdict = tier(figure.got, figure.ideal)
    times = ratio(figure.got, figure.ideal)
    against = "the ideal is" if times is None else f"{multiple(times)} the ideal of"
    earns = f"{verdict.value} of the points" if verdict.share else f"{verdict.value}, no points"
    got = quantity(figure.got, figure.unit)
    ideal = quantity(figure.ideal, "s") if figure.unit == "s" else amount(figure.ideal)
    note = f"; {figure.note}" if figure.note else ""
    return f"{figure.name}: {got}, {against} {ideal}: {earns}{note}"


def is_amount(number: float) -> bool:
    """A finite number, 0 or more. A submission's counter may send anything."""
    return type(number) in (int, float, Fraction) and 0 <= number <= sys.float_info.max
