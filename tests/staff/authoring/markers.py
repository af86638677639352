"""The marker comments `# BEGIN SOLUTION` and `# END SOLUTION`: finding and pairing them."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass

BEGIN = "# BEGIN SOLUTION"
END = "# END SOLUTION"

# A marker in a wrong spelling would leave the solution in the stub, so whatever looks like one
# is either exact or a fault.
_EDGE = r"(?:begin|end|start|stop)"
LOOKS_LIKE_MARKER = re.compile(
    rf"#\W*(?:{_EDGE}[\W_]*(?:of[\W_]*)?solutions?\b|solutions?[\W_]*{_EDGE}s?\b)", re.IGNORECASE
)

Report = Callable[[int, str], None]
"""Takes a line and a message."""


@dataclass(frozen=True)
class Marker:
    line: int
    indent: str
    opens: bool


@dataclass(frozen=True)
class Span:
    """The lines of a region: its markers stand on `begin` and `end`."""

    begin: int
    end: int
    indent: str

    def holds(self, line: int) -> bool:
        return self.begin < line < self.end


def find_spans(source: str, report: Report) -> list[Span]:
    """Paired markers of a source that compiles; every fault goes to `report`."""
    return list(_pair(_markers(source, report), report))


def _markers(source: str, report: Report) -> Iterator[Marker]:
    # Only comments count: a string or docstring may speak of the markers.
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or not LOOKS_LIKE_MARKER.match(token.string):
            continue
        line, indent = token.start[0], token.line[: token.start[1]]
        if token.string.rstrip() not in (BEGIN, END):
            report(line, f"marker spelled {token.string!r}; write {BEGIN!r} or {END!r}")
        elif indent.strip():
            report(line, f"{token.string!r} must stand alone on its line")
        else:
            yield Marker(line, indent, token.string.rstrip() == BEGIN)


def _pair(markers: Iterator[Marker], report: Report) -> Iterator[Span]:
    opened: list[Marker] = []
    for marker in markers:
        if marker.opens:
            if opened:
                report(
                    marker.line,
                    f"{BEGIN!r} inside the region begun on line {opened[0].line}: "
                    "regions do not nest (or that one is never closed)",
                )
            opened.append(marker)
        elif not opened:
            report(marker.line, f"{END!r} without a {BEGIN!r} before it")
        else:
            begin = opened.pop()
            if begin.indent != marker.indent:
                report(
                    marker.line,
                    f"{END!r} is not indented as its {BEGIN!r} on line {begin.line}",
                )
            elif not opened:
                yield Span(begin.line, marker.line, begin.indent)
    for marker in opened:
        report(marker.line, f"{BEGIN!r} is never closed by an {END!r}")
