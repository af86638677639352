"""Numbers and other people's text as a report may show them."""

from __future__ import annotations

import datetime
import math
import unicodedata
from collections.abc import Sequence
from fractions import Fraction

from assignment.provided.units import seconds

CENT = Fraction(1, 100)


def points(value: Fraction) -> str:
    """At most two decimals, none that say nothing: 4, 2.8, 3.73."""
    return f"{float(round(value, 2)):.2f}".rstrip("0").rstrip(".")


def rounded(values: Sequence[Fraction], total: Fraction | None = None) -> list[Fraction]:
    """Values in hundredths whose sum is the rounded sum of `values`.

    Each is its value rounded down or up: the largest remainders go up. A value that is a whole
    number of hundredths stays. `total`, the sum already rounded elsewhere, may be the next
    hundredth below the exact sum or above it.
    """
    down = [value // CENT * CENT for value in values]
    total = round(sum(values, Fraction(0)), 2) if total is None else total
    missing = int((total - sum(down, Fraction(0))) / CENT)
    by_remainder = sorted(range(len(values)), key=lambda i: down[i] - values[i])
    return [down[i] + (CENT if i in by_remainder[:missing] else 0) for i in range(len(values))]


def amount(number: float) -> str:
    """A count: 1,234,567, 0.5, 1e+30; what is no number by its own name (nan, inf)."""
    try:
        if abs(number) >= 1e15:
            return f"{number:.3g}"
        whole = number == int(number) or abs(number) >= 1000
        return f"{round(number):,}" if whole else f"{number:,.3f}".rstrip("0")
    except (ValueError, OverflowError, TypeError):
        return one_line(str(number), 20)


def quantity(number: float, unit: str) -> str:
    """A count and its unit: 1,420 bytes; seconds in the part of them that fits: 2.63 µs."""
    if unit == "s" and isinstance(number, int | float) and 0 < number < math.inf:
        return seconds(number)
    return f"{amount(number)} {unit}"


def multiple(times: float) -> str:
    """A ratio: 1.04×, 45×, 0.002×."""
    if times >= 1e6:
        return f"{times:.1e}×"
    if times < 0.1:
        return f"{times:.1g}×"
    return f"{times:.2f}×" if times < 9.995 else f"{times:,.0f}×"


def day(date: datetime.date) -> str:
    """12 February 2027."""
    return f"{date.day} {date:%B %Y}"


def moment(time: str) -> str:
    """11 February 2027, 09:30 UTC; a time that is not ISO 8601 as it is."""
    try:
        at = datetime.datetime.fromisoformat(time)
    except ValueError:
        return one_line(time, 40)
    zone = at.tzname() or ""
    return f"{day(at)}, {at:%H:%M} {zone}".rstrip()


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def clean(text: str, limit: int) -> str:
    """`text` without what could disturb a terminal or a page, cut to `limit` characters.

    Control and formatting characters (escape sequences, right-to-left overrides) and lone
    surrogates become "�"; new lines and tabs stay.
    """
    cut = text[:limit]
    shown = "".join(c if c in "\n\t" or _is_harmless(c) else "�" for c in cut.replace("\r\n", "\n"))
    left = len(text) - limit
    return f"{shown} … ({left:,} more characters)" if left > 0 else shown


def one_line(text: str, limit: int) -> str:
    """The first line that says something, cleaned, cut to `limit` characters with an ellipsis."""
    lines = (line.strip() for line in text[:20_000].splitlines())
    first = " ".join(clean(next((line for line in lines if line), ""), 20_000).split())
    return first if len(first) <= limit else first[: limit - 1].rstrip() + "…"


def _is_harmless(character: str) -> bool:
    return unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
