"""The roofline as a picture, for pages and notebooks, and as text, for terminals."""

from collections.abc import Sequence
from itertools import pairwise

from ..serving.svg import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    INK,
    LINE,
    LINE_OF_TEXT,
    MARGIN,
    ORANGE,
    PALE,
    PURPLE,
    Drawing,
    Heading,
)
from ..units import large, power_of_ten
from .roofline import Axes, HasRoof, Point, axes, roof

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, BROWN)  # of points, in their order
LEFT, BELOW = 74, 36  # pixels: beside the axis of rates, below that of intensities
MARKS = "123456789"
COLUMNS, ROWS = 60, 12  # of the text


def roofline_svg(
    points: Sequence[Point], gpu: HasRoof, *, title: str = "", width: int = 520, height: int = 240
) -> str:
    """All points under the roof of a chip, both axes logarithmic.

    Args:
        points: the first is drawn on top of the others. At most nine.
        gpu: a `GPU`, or a `Chip`.
        width, height: pixels; the height is that of the plot alone.
    """
    picture = _Picture(axes(points, gpu), gpu, title, width, height, len(points))
    picture.grid()
    picture.roof(gpu)
    for number, point in reversed(list(enumerate(points))):
        picture.point(number, point)
    for number, point in enumerate(points):
        picture.key(number, told(point, gpu))
    return str(picture.drawing)


def roofline_text(points: Sequence[Point], gpu: HasRoof) -> str:
    """The same in characters, at most 60 in a line: the roof in dots, the points by number."""
    found = axes(points, gpu)
    left = max(len(power_of_ten(rate, "")) for rate in found.rates) + 1
    canvas = [[" "] * (COLUMNS - left) for _ in range(ROWS)]
    last = COLUMNS - left - 1
    for column in range(last + 1):
        intensity = found.left * (found.right / found.left) ** (column / last)
        canvas[_row(found, roof(gpu, intensity))][column] = "·"
    for number, point in reversed(list(enumerate(points))):
        canvas[_row(found, point.rate)][round(found.across(point.intensity) * last)] = MARKS[number]
    names = {_row(found, rate): power_of_ten(rate, "") for rate in found.rates}
    lines = [f"{gpu.name}: FLOP/s by FLOP/byte"]
    lines += [f"{names.get(i, ''):>{left - 1}}│{''.join(row)}" for i, row in enumerate(canvas)]
    lines += [" " * (left - 1) + "└" + "─" * (last + 1), _intensity_names(found, left, last)]
    lines += [f"{MARKS[number]} {told(point, gpu)}" for number, point in enumerate(points)]
    return "\n".join(line.rstrip() for line in lines)


def told(point: Point, gpu: HasRoof) -> str:
    """Where a point lies: "yours: 3.9 FLOP/byte, 12.1 TFLOP/s, 94% of the roof"."""
    share = point.rate / roof(gpu, point.intensity)
    rate = large(point.rate, "FLOP/s")
    return f"{point.label}: {point.intensity:.3g} FLOP/byte, {rate}, {share:.0%} of the roof"


class _Picture:
    def __init__(
        self, found: Axes, gpu: HasRoof, title: str, width: float, height: float, points: int
    ):
        rates = large(gpu.flops_per_second, "FLOP/s"), large(gpu.bandwidth, "B/s")
        heading = Heading(title, [gpu.name, *rates], width)
        self.axes, self.top = found, heading.height + 2 * MARGIN
        self.wide, self.high = width - LEFT - 2 * MARGIN, height
        self.bottom = self.top + height
        whole = self.bottom + BELOW + LINE_OF_TEXT * points + MARGIN
        self.drawing = Drawing(width, whole, title or "Roofline", heading.text)
        heading.draw(self.drawing)

    def at(self, across: float, up: float) -> tuple[float, float]:
        return LEFT + across * self.wide, self.bottom - up * self.high

    def grid(self) -> None:
        for intensity in self.axes.intensities:
            x, _ = self.at(self.axes.across(intensity), 0)
            self.drawing.line(x, self.top, x, self.bottom, PALE)
            self.drawing.text(x, self.bottom + 14, f"{intensity:g}", fill=GREY, anchor="middle")
        for rate in self.axes.rates:
            _, y = self.at(0, self.axes.up(rate))
            self.drawing.line(LEFT, y, LEFT + self.wide, y, PALE)
            self.drawing.text(LEFT - 6, y + 4, power_of_ten(rate, "FLOP/s"), 10, GREY, anchor="end")
        self.drawing.line(LEFT, self.bottom, LEFT + self.wide, self.bottom, LINE)
        middle = LEFT + self.wide / 2
        self.drawing.text(middle, self.bottom + 30, "FLOP/byte", fill=GREY, anchor="middle")

    def roof(self, gpu: HasRoof) -> None:
        corners = [self.at(*corner) for corner in self.axes.roof(gpu)]
        for start, end in pairwise(corners):
            self.drawing.line(*start, *end, stroke=INK, stroke_width=2)

    def point(self, number: int, point: Point) -> None:
        """The first is a disc, each other a ring around where it would be: all can be seen."""
        x, y = self.at(self.axes.across(point.intensity), self.axes.up(point.rate))
        self._mark(number, x, y)

    def key(self, number: int, text: str) -> None:
        y = self.bottom + BELOW + LINE_OF_TEXT * (number + 1)
        self._mark(number, MARGIN + 12, y - 4, growing=False)
        self.drawing.text(MARGIN + 26, y, text)

    def _mark(self, number: int, x: float, y: float, growing: bool = True) -> None:
        colour, radius = COLOURS[number % len(COLOURS)], 4.5
        if not number:
            self.drawing.circle(x, y, radius, fill=colour)
            return
        radius += 3 * number if growing else 0
        self.drawing.circle(x, y, radius, stroke=colour, stroke_width=2)


def _row(found: Axes, rate: float) -> int:
    return round((1 - found.up(rate)) * (ROWS - 1))


def _intensity_names(found: Axes, left: int, last: int) -> str:
    line = [" "] * COLUMNS
    for intensity in found.intensities:
        text = f"{intensity:g}"
        start = left + round(found.across(intensity) * last) - len(text) // 2
        start = min(start, COLUMNS - len(text))
        line[start : start + len(text)] = text
    return "".join(line)
