"""The roofline: what a chip can reach at best, by how many FLOPs a byte there are to do.

Source: Williams, Waterman and Patterson, "Roofline: an insightful visual performance model for
multicore architectures", Communications of the ACM 52(4), 2009.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

APART = 1.5  # factor between a point and the end of an axis, at least


class HasRoof(Protocol):
    """A `Chip`, or a `GPU` of the kernel lab."""

    @property
    def name(self) -> str: ...

    @property
    def flops_per_second(self) -> float: ...

    @property
    def bandwidth(self) -> float: ...


@dataclass(frozen=True)
class Point:
    """One way to do a task.

    flops: of the task, the same for all ways to do it: what a way pads or does twice is no use.
    bytes: that it moves. seconds: that it takes. All above 0, or a ValueError.
    """

    label: str
    flops: float
    bytes: float
    seconds: float

    def __post_init__(self):
        for name in ("flops", "bytes", "seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} of {self.label!r}: {getattr(self, name)}, not above 0")

    @property
    def intensity(self) -> float:
        """FLOPs a byte."""
        return self.flops / self.bytes

    @property
    def rate(self) -> float:
        """FLOP/s."""
        return self.flops / self.seconds


def roof(chip: HasRoof, intensity: float) -> float:
    """FLOP/s that the chip reaches at best, in 16 bits."""
    return min(chip.flops_per_second, chip.bandwidth * intensity)


def ridge(chip: HasRoof) -> float:
    """The intensity from which on arithmetic limits, no longer memory."""
    return chip.flops_per_second / chip.bandwidth


@dataclass(frozen=True)
class Axes:
    """Of a picture in which both are logarithmic: from one power of ten to another.

    left, right: intensity. bottom, top: FLOP/s.
    """

    left: float
    right: float
    bottom: float
    top: float

    def across(self, intensity: float) -> float:
        """0 at the left end, 1 at the right."""
        return math.log(intensity / self.left) / math.log(self.right / self.left)

    def up(self, rate: float) -> float:
        """0 at the bottom, 1 at the top."""
        return math.log(rate / self.bottom) / math.log(self.top / self.bottom)

    def roof(self, chip: HasRoof) -> list[tuple[float, float]]:
        """Its three corners, as (across, up): at the left end, at the ridge, at the right end."""
        corners = (self.left, ridge(chip), self.right)
        return [(self.across(at), self.up(roof(chip, at))) for at in corners]

    @property
    def intensities(self) -> list[float]:
        """Powers of ten from end to end."""
        return _powers(self.left, self.right)

    @property
    def rates(self) -> list[float]:
        return _powers(self.bottom, self.top)


def axes(points: Sequence[Point], chip: HasRoof) -> Axes:
    """Such that the ridge and all points lie inside, none of them at the left or the bottom."""
    left, right = _decades([ridge(chip), *(point.intensity / APART for point in points)])
    rates = [roof(chip, left), chip.flops_per_second, *(point.rate / APART for point in points)]
    return Axes(left, right, *_decades(rates))


def _decades(values: Iterable[float]) -> tuple[float, float]:
    """The powers of ten below and above; two at least."""
    exponents = [math.log10(value) for value in values]
    low, high = math.floor(min(exponents)), math.ceil(max(exponents))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _powers(first: float, last: float) -> list[float]:
    low, high = round(math.log10(first)), round(math.log10(last))
    return [10.0**exponent for exponent in range(low, high + 1)]
