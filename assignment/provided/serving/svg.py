"""A drawing as SVG text. Nothing needs to be installed, and the same calls give the same text."""

from collections.abc import Iterable
from html import escape

# As in the handout's drawings.
INK, GREY, LINE, PALE = "#1d2430", "#6b7280", "#b9c0c9", "#e9ecf0"
BLUE, ORANGE, GREEN, PURPLE, BROWN = "#2b5f8f", "#cf6a17", "#3d7a57", "#7a5195", "#9c755f"

MARGIN, LINE_OF_TEXT = 10, 17


class Heading:
    """A title, if there is one, and below it some parts with dots between, on as many lines as they
    take. `height` is theirs."""

    def __init__(self, title: str, parts: Iterable[str], width: float):
        self.title, self.lines = title, []
        for part in parts:
            longer = f"{self.lines[-1]} · {part}" if self.lines else part
            if self.lines and text_width(longer) <= width - 2 * MARGIN:
                self.lines[-1] = longer
            else:
                self.lines.append(part)
        self.height = LINE_OF_TEXT * (len(self.lines) + bool(title))

    @property
    def text(self) -> str:
        return " · ".join(self.lines)

    def draw(self, drawing: "Drawing") -> None:
        if self.title:
            drawing.text(MARGIN, 18, self.title, 13, font_weight="bold")
        for line, text in enumerate(self.lines, bool(self.title)):
            drawing.text(MARGIN, 18 + LINE_OF_TEXT * line, text, fill=GREY)


class Drawing:
    """Shapes on white ground, one above the other. Lengths are pixels, from the top left corner;
    width and height may still change.

    title and description are what a reader without eyes gets; any text may stand in them.
    """

    def __init__(self, width: float, height: float, title: str, description: str):
        self.width, self.height = width, height
        self._title, self._description = title, description
        self._shapes: list[str] = []

    def box(
        self, x: float, y: float, width: float, height: float, fill: str = "none", **style
    ) -> None:
        self._add("rect", x=x, y=y, width=width, height=height, fill=fill, **style)

    def line(self, x: float, y: float, to_x: float, to_y: float, stroke: str, **style) -> None:
        self._add("line", x1=x, y1=y, x2=to_x, y2=to_y, stroke=stroke, **style)

    def circle(self, x: float, y: float, radius: float, fill: str = "none", **style) -> None:
        self._add("circle", cx=x, cy=y, r=radius, fill=fill, **style)

    def path(self, d: str, fill: str = "none", **style) -> None:
        self._add("path", d=d, fill=fill, **style)

    def triangle(self, x: float, y: float, high: float, fill: str) -> None:
        """It points right, to x; above and below y it is `high`."""
        corners = [(x - 1.3 * high, y - high), (x - 1.3 * high, y + high), (x, y)]
        self.path("M" + "L".join(f"{number(a)} {number(b)}" for a, b in corners) + "Z", fill)

    def cross(self, x: float, y: float, high: float, stroke: str) -> None:
        """Two strokes through (x, y), with some white around them."""
        ends = [(x - high, y - high, x + high, y + high), (x - high, y + high, x + high, y - high)]
        for colour, width in (("white", 4), (stroke, 1.6)):
            for end in ends:
                self.line(*end, stroke=colour, stroke_width=width)

    def text(
        self, x: float, y: float, text: str, size: float = 11, fill: str = INK, **style
    ) -> None:
        """One line. `y` is its base; `anchor` is "start", "middle" or "end", and stands at x."""
        style["text_anchor"] = style.pop("anchor", "start")
        self._add("text", text, x=x, y=y, font_size=size, fill=fill, **style)

    def _add(self, name: str, text: str = "", **attributes) -> None:
        written = "".join(
            f' {key.replace("_", "-")}="{_value(value)}"' for key, value in attributes.items()
        )
        end = f">{escape(text)}</{name}>" if text else "/>"
        self._shapes.append(f"<{name}{written}{end}")

    def __str__(self) -> str:
        width, height = number(self.width), number(self.height)
        label = ". ".join(part for part in (self._title, self._description) if part)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
                f'width="{width}" height="{height}" font-family="system-ui, sans-serif" '
                f'role="img" aria-label="{escape(label)}">',
                f"<title>{escape(self._title)}</title>",
                f"<desc>{escape(self._description)}</desc>",
                f'<rect x="0" y="0" width="{width}" height="{height}" fill="white"/>',
                *self._shapes,
                "</svg>\n",
            ]
        )


def number(value: float) -> str:
    """At most two decimals."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def text_width(text: str, size: float = 11) -> float:
    """About how wide it is, whatever the font: rather too much than too little."""
    return 0.58 * size * len(text)


def _value(value: object) -> str:
    return number(value) if isinstance(value, int | float) else escape(str(value))
