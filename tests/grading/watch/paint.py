"""Brushes for a page: lines of styled text that fit a console's width and character set."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from tests.grading.terminal import PLAIN, PLAIN_TEXT, STATE_STYLES, SYMBOLS, WIDEST
from tests.grading.wording import clean

PLAIN_LETTERS = PLAIN_TEXT | str.maketrans(
    {"✓": "+", "✗": "x", "−": "-", "–": "-", "↑": "up", "↓": "/down"}
)
MOST = 6  # lines of a paragraph: enough to see what it is; `make grade` shows the rest


class Paint:
    """Knows the console: how wide it is, and which characters it can show."""

    def __init__(self, console: Console):
        self._console = console
        self.width = max(min(console.width, WIDEST), 1)
        self._encoding = console.encoding or "ascii"
        self._plain = not self._can_show("".join(SYMBOLS.values()))
        self.symbols = PLAIN if self._plain else SYMBOLS

    def line(self, *parts: str | tuple[str, str] | Text) -> Text:
        """One line, cut where it is too wide."""
        text = self._shown(Text.assemble(*parts))
        text.truncate(self.width, overflow="crop" if self._plain else "ellipsis")
        return text

    def spread(self, left: Text, right: Text) -> Text:
        """A line with `left` at its beginning, cut if need be, and `right` at its end."""
        left, right = self._shown(left), self._shown(right)
        room = max(self.width - right.cell_len - 1, 1)
        left.truncate(room, overflow="crop" if self._plain else "ellipsis", pad=True)
        return Text.assemble(left, " ", right)

    def paragraph(self, text: str, indent: int = 0, style: str = "") -> list[Text]:
        """Text of any length, also a student's own, on as many lines as it needs."""
        whole = self._shown(Text(clean(text, 2000), style))
        lines = whole.wrap(self._console, max(self.width - indent, 10), overflow="fold")[:MOST]
        return [Text(" " * indent) + line for line in lines]

    def flow(self, items: Iterable[Text], gap: int = 3) -> list[Text]:
        """Items side by side, on as many lines as they need, none broken."""
        lines: list[Text] = []
        for item in map(self._shown, items):
            if lines and lines[-1].cell_len + gap + item.cell_len <= self.width:
                lines[-1] = Text.assemble(lines[-1], " " * gap, item)
            else:
                lines.append(item)
        return lines

    def command(self, words: list[str], indent: int = 0) -> list[Text]:
        """A command that can be copied although it goes over several lines."""
        lines = [words[0]]
        for word in words[1:]:
            if cell_len(lines[-1]) + cell_len(word) + 3 + indent <= self.width:
                lines[-1] += f" {word}"
            else:
                lines[-1] += " \\"
                lines.append(f"  {word}")
        texts = (self._shown(Text(" " * indent + line, "bold")) for line in lines)
        return [part for text in texts for part in text.wrap(self._console, self.width)]

    def bar(self, share: Fraction, cells: int, style: str) -> Text:
        """A bar that is filled to `share`, whole only at 1."""
        filled = int(share * cells)
        rest = self.symbols["rest"] * (cells - filled)
        return Text.assemble((self.symbols["bar"] * filled, style), (rest, "dim"))

    def mark(self, state: str) -> tuple[str, str]:
        """The sign of a group's or cost's state."""
        return self.symbols.get(state, "!"), STATE_STYLES.get(state, "magenta")

    def fit(self, text: str, cells: int) -> str:
        """Text of exactly this width."""
        shown = self._shown(Text(text)).plain
        if cell_len(shown) > cells:
            shown = set_cell_size(shown, cells - 1) + ("." if self._plain else "…")
        return set_cell_size(shown, cells)

    def _shown(self, text: Text) -> Text:
        if self._plain:
            plain = text.plain.translate(PLAIN_LETTERS)
            text.plain = plain.encode(self._encoding, "replace").decode(self._encoding, "replace")
        return text

    def _can_show(self, text: str) -> bool:
        try:
            text.encode(self._encoding)
        except (UnicodeEncodeError, LookupError):
            return False
        return True
