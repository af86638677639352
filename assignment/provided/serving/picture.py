"""What a server did, as pictures: SVG text, for a notebook, the handout or a web page."""

import math
from collections.abc import Collection, Mapping, Sequence

from .spans import History, count_steps, read_steps
from .step import Step
from .svg import BLUE, GREY, INK, LINE, MARGIN, ORANGE, PALE, Drawing, Heading, number, text_width

HEAD, FOOT = 28, 26  # above the rows: numbers of steps, behind the heading; below: the key
WIDEST, LOWEST, TALLEST, ALL_ROWS = 28, 6, 20, 520  # a step's width, a row's height, the picture's
TALL, KEY = 0.84, 14  # of a row: what is tall in it; a row of the key
NAMES = {
    "waiting": "waits",
    "prefill": "prefill",
    "decode": "decode",
    "held": "no room in the step",
    "padding": "padding",
}


def timeline_svg(
    steps: Sequence[Step],
    *,
    title: str = "",
    slots: int | None = None,
    labels: Mapping[int, str] | None = None,
    unfinished: Collection[int] = (),
    columns: int = 0,
    width: int = 880,
) -> str:
    """Requests against steps: who waits, who is computed, who had to go.

    Args:
        steps: as `drive` returns them, or as an engine's `step` did one after another.
        slots: rows that a step has for requests; by default as many as one ever had.
        labels: what to call a request, by number; by default its number.
        unfinished: requests that go on after the last step.
        columns: room for so many steps, if there are fewer: the same for pictures to be compared.
        width: pixels. For paper, 600.
    """
    histories = read_steps(steps)
    counts = _counts(len(histories), steps, slots)
    names = {request: (labels or {}).get(request, str(request)) for request in histories}
    plot = _Plot(max(len(steps), columns), list(names.values()), width, title, counts)
    plot.axis()
    for row, history in enumerate(histories.values()):
        plot.spans(row, history)
    plot.rule()
    for row, (request, history) in enumerate(histories.items()):
        plot.marks(row, history, finished=request not in unfinished)
        plot.label(row, names[request])
    kinds = {span.kind for history in histories.values() for span in history.spans}
    plot.key(kinds, any(history.preempted for history in histories.values()))
    return str(plot.drawing)


def _counts(requests: int, steps: Sequence[Step], slots: int | None) -> list[str]:
    counts = count_steps(steps, slots)
    parts = [
        f"{requests:,} requests",
        f"{counts.steps:,} steps of {counts.slots} slots, {counts.useful_share:.0%} useful",
        f"{counts.tokens:,} tokens computed",
    ]
    if counts.again:
        parts.append(f"{counts.again:,} of them again")
    if counts.found:
        parts.append(f"{counts.found:,} found in the cache")
    if counts.preempted:
        parts.append(f"{counts.preempted:,} preempted")
    return parts


class _Plot:
    """Steps and rows: `x(step)` is where a step begins, `y(row)` the middle of a row."""

    def __init__(self, steps: int, names: list[str], width: int, title: str, counts: list[str]):
        self.steps, self.rows = max(steps, 1), len(names)
        self.left = MARGIN + 12 + max([24, *(text_width(name, 10) for name in names)])
        self.row = min(max(ALL_ROWS / max(self.rows, 1), LOWEST), TALLEST)
        self.cell = min((width - self.left - MARGIN - 6) / self.steps, WIDEST)
        self.numbers = False  # whether any prefill has its number of tokens in it
        heading = Heading(title, counts, width)
        self.head = HEAD + heading.height
        self.bottom = self.head + self.rows * self.row
        described = title or "Requests and steps", heading.text
        self.drawing = Drawing(width, self.bottom + FOOT, *described)
        heading.draw(self.drawing)

    def x(self, step: float) -> float:
        return self.left + step * self.cell

    def y(self, row: float) -> float:
        return self.head + (row + 0.5) * self.row

    def axis(self) -> None:
        """The numbers of some steps, and thin lines down from them."""
        self.drawing.text(MARGIN, self.head - 8, "step", 9, GREY)
        every = _round_step(36 / self.cell)
        offset = 0.5 if self.cell > 8 else 0
        for step in range(0, self.steps, every):
            x = self.x(step + offset)
            self.drawing.line(x, self.head - 4, x, self.bottom, PALE)
            self.drawing.text(x, self.head - 8, f"{step:,}", 9, GREY, anchor="middle")

    def spans(self, row: int, history: History) -> None:
        """Prefills last: where steps are thin, theirs are wider, to be seen."""
        for span in sorted(history.spans, key=lambda span: span.kind == "prefill"):
            width = len(span.tokens) * self.cell
            self._shape(span.kind, self.x(span.first), self.y(row), width, self.row)

    def _shape(self, kind: str, x: float, y: float, width: float, row: float) -> None:
        """Without colours, height tells them apart."""
        tall, low = TALL * row, 0.46 * row
        if kind == "prefill":
            self.drawing.box(x, y - tall / 2, max(width, 2), tall, ORANGE)
        elif kind == "decode":
            self.drawing.box(x, y - low / 2, width, low, BLUE)
        elif kind == "padding":
            self.drawing.box(x, y - low / 2, width, low, PALE, stroke=LINE)
        elif kind == "held":
            self.drawing.line(x, y, x + width, y, GREY, stroke_width=2, stroke_dasharray="2 3")
        else:
            self.drawing.line(x, y, x + width, y, LINE, stroke_width=1.5)

    def rule(self) -> None:
        """White lines between the steps, where these are wide enough; with them, fewer shapes."""
        if self.cell >= 4:
            places = [number(self.x(step)) for step in range(1, self.steps)]
            lines = "".join(f"M{x} {self.head}V{number(self.bottom)}" for x in places)
            self.drawing.path(lines, stroke="white", stroke_width=min(0.12 * self.cell, 1.5))

    def marks(self, row: int, history: History, finished: bool) -> None:
        """Its arrival, its end, when it lost its blocks, and the tokens of its prefills."""
        y, high = self.y(row), min(0.3 * self.row, 4)
        self.drawing.triangle(self.x(history.spans[0].first) - 1, y, high, GREY)
        last = [span for span in history.spans if span.kind != "padding"][-1]
        if finished and last.kind != "waiting":
            tall = TALL * self.row
            self.drawing.box(self.x(last.stop) - 1, y - tall / 2, 2, tall, INK)
        for step in history.preempted:
            self.drawing.cross(self.x(step + 0.5), y, high, INK)
        if self.row >= 14:
            self._numbers(y, history, min(0.56 * self.row, 9))

    def _numbers(self, y: float, history: History, size: float) -> None:
        for span in history.spans:
            if span.kind == "prefill":
                for step, tokens in enumerate(span.tokens, span.first):
                    if text_width(str(tokens), size) <= self.cell:
                        self.numbers = True
                        x = self.x(step + 0.5)
                        style = {"fill": "white", "anchor": "middle"}
                        self.drawing.text(x, y + 0.36 * size, str(tokens), size, **style)

    def label(self, row: int, name: str) -> None:
        if row % math.ceil(9 / self.row) == 0:
            size = 10 if self.row >= 10 else 9
            self.drawing.text(self.left - 10, self.y(row) + 3.5, name, size, GREY, anchor="end")

    def key(self, kinds: Collection[str], preempted: bool) -> None:
        """What the shapes mean, of those that there are."""
        self.at = MARGIN, self.bottom + 16
        for kind, meaning in NAMES.items():
            if kind in kinds:
                tokens = " and its tokens" if kind == "prefill" and self.numbers else ""
                self._shape(kind, *self._meaning(meaning + tokens), 14, KEY)
        x, y = self._meaning("arrives")
        self.drawing.triangle(x + 10, y, 4, GREY)
        x, y = self._meaning("has finished")
        self.drawing.box(x + 8, y - 5, 2, 10, INK)
        if preempted:
            x, y = self._meaning("is preempted")
            self.drawing.cross(x + 8, y, 4, INK)

    def _meaning(self, text: str) -> tuple[float, float]:
        """Write it, on the next line if it does not fit; the place for its shape before it."""
        (x, y), wide = self.at, 20 + text_width(text, 10)
        if x + wide > self.drawing.width:
            x, y = MARGIN, y + 17
            self.drawing.height += 17
        self.drawing.text(x + 20, y + 3.5, text, 10, GREY)
        self.at = x + wide + 10, y
        return x, y


def _round_step(least: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, … that is not below `least`."""
    power = 1
    while True:
        for part in (1, 2, 5):
            if power * part >= least:
                return power * part
        power *= 10
