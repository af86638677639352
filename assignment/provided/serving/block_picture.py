"""Who holds which block of a paged cache, as a picture."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .svg import (
    BLUE,
    BROWN,
    GREEN,
    GREY,
    INK,
    LINE,
    MARGIN,
    ORANGE,
    PALE,
    PURPLE,
    Drawing,
    Heading,
    text_width,
)

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, BROWN)  # of requests, by number; their names are there, too
KEPT = "#c3ccd6"
GAP = 6
TOP = 14  # above the tables, behind the heading
ROW, TALL = 24, 14  # of a table: its row, and the blocks in it
WIDE = 32  # a block of a table, at most
BLOCK = 47  # a block of the pool; its numbers stand above it
NUMBERS = 12
MANY = 100  # more blocks than that are drawn small, without numbers


@dataclass(frozen=True)
class _Block:
    holders: tuple[int, ...]
    filled: int  # tokens
    kept: bool


def block_tables_svg(
    tables: Mapping[int, Sequence[int]],
    lengths: Mapping[int, int],
    num_blocks: int,
    block_size: int,
    *,
    published: Collection[int] = (),
    title: str = "",
    labels: Mapping[int, str] | None = None,
    width: int = 880,
) -> str:
    """The block tables of all requests, and the pool with the holders of each block.

    Args:
        tables, lengths: by request, as `PagedCache.table` and `length` return them.
        num_blocks, block_size: of the pool, in blocks and tokens.
        published: blocks whose content a later request may find. Those of them that are free are
            drawn as kept.
        labels: what to call a request, by number; by default "request" and its number.
        width: pixels. For paper, 600.
    """
    names = {number: (labels or {}).get(number, f"request {number}") for number in sorted(tables)}
    blocks = _blocks(tables, lengths, num_blocks, block_size, published)
    picture = _Picture(names, tables, blocks, block_size, width, title)
    for number in names:
        picture.table(number, tables[number], lengths[number])
    for block in range(num_blocks):
        picture.block(block)
    picture.key()
    return str(picture.drawing)


def _blocks(
    tables: Mapping[int, Sequence[int]],
    lengths: Mapping[int, int],
    num_blocks: int,
    block_size: int,
    published: Collection[int],
) -> list[_Block]:
    holders: list[list[int]] = [[] for _ in range(num_blocks)]
    filled = [0] * num_blocks
    for number in sorted(tables):
        for index, block in enumerate(tables[number]):
            holders[block].append(number)
            there = min(lengths[number] - index * block_size, block_size)
            filled[block] = max(filled[block], there)
    return [
        _Block(tuple(who), filled[block], not who and block in published)
        for block, who in enumerate(holders)
    ]


def _counts(blocks: Sequence[_Block], block_size: int) -> list[str]:
    held = [block for block in blocks if block.holders]
    shared = sum(len(block.holders) > 1 for block in held)
    parts = [f"{len(held)} of {len(blocks)} blocks held"]
    if shared:
        parts.append(f"{shared} by several")
    if held:
        filled = sum(block.filled for block in held)
        parts.append(f"{filled:,} of their {len(held) * block_size:,} slots filled")
    if any(block.kept for block in blocks):
        parts.append(f"{sum(block.kept for block in blocks)} free ones kept")
    return parts


class _Picture:
    """Tables above, the pool below."""

    def __init__(
        self,
        names: Mapping[int, str],
        tables: Mapping[int, Sequence[int]],
        blocks: Sequence[_Block],
        block_size: int,
        width: int,
        title: str,
    ):
        self.names, self.blocks, self.block_size = names, blocks, block_size
        self.colours = {number: COLOURS[number % len(COLOURS)] for number in names}
        self.rows = {number: row for row, number in enumerate(names)}
        self.left = MARGIN + 84 + max((text_width(name) for name in names.values()), default=0)
        longest = max((len(table) for table in tables.values()), default=0)
        self.cell = min((width - self.left - MARGIN) / max(longest, 1), WIDE)

        heading = Heading(title, _counts(blocks, block_size), width)
        self.top = TOP + heading.height
        small = len(blocks) > MANY
        self.side, self.above = (BLOCK // 2, 0) if small else (BLOCK, NUMBERS)
        most = int((width - 2 * MARGIN + GAP) // (self.side + GAP))
        self.columns = math.ceil(len(blocks) / math.ceil(len(blocks) / most))
        self.pool = self.top + ROW * len(names) + (14 if names else 0)
        self.line = self.above + TALL + GAP + 4
        height = self.pool + self.line * math.ceil(len(blocks) / self.columns) + 24
        self.drawing = Drawing(width, height, title or "Block tables", heading.text)
        heading.draw(self.drawing)

    def table(self, number: int, table: Sequence[int], length: int) -> None:
        y = self.top + ROW * self.rows[number]
        base = y + TALL - 3
        tokens = f"{length:,} token{'s' if length != 1 else ''}"
        bold = {"fill": self.colours[number], "font_weight": "bold"}
        self.drawing.text(MARGIN, base, self.names[number], **bold)
        self.drawing.text(self.left - 12, base, tokens, 10, GREY, anchor="end")
        wide = 0.88 * self.cell
        numbered = all(text_width(str(block), 9) < wide for block in table)
        for index, block in enumerate(table):
            x = self.left + index * self.cell
            there = min(length - index * self.block_size, self.block_size)
            self._filled(x, y, wide, [number], there)
            if numbered:
                self.drawing.text(x + wide / 2, base, str(block), 9, INK, anchor="middle")

    def block(self, number: int) -> None:
        block = self.blocks[number]
        x = MARGIN + number % self.columns * (self.side + GAP)
        y = self.pool + number // self.columns * self.line + self.above
        self._filled(x, y, self.side, block.holders, block.filled, block.kept)
        if self.above:
            self.drawing.text(x, y - 3, str(number), 9, GREY)
            who = " ".join(self._short(holder) for holder in block.holders)
            if text_width(who, 9) > self.side:
                who = f"{len(block.holders)} hold it" if len(block.holders) > 1 else ""
            if who:
                middle = {"anchor": "middle", "font_weight": "bold"}
                self.drawing.text(x + self.side / 2, y + TALL - 3.5, who, 9, **middle)

    def _short(self, number: int) -> str:
        return self.names[number].removeprefix("request ")

    def _filled(
        self,
        x: float,
        y: float,
        width: float,
        holders: Sequence[int],
        filled: int,
        kept: bool = False,
    ) -> None:
        """A block: filled from the left, with one stripe for each holder."""
        self.drawing.box(x, y, width, TALL, PALE if holders else "white")
        part = width * filled / self.block_size
        tall = TALL / max(len(holders), 1)
        thin = tall - (1 if 1 < len(holders) <= 5 else 0)  # some white between the stripes
        for stripe, holder in enumerate(holders):
            self.drawing.box(x, y + stripe * tall, part, thin, self.colours[holder], opacity=0.6)
        if kept:
            self.drawing.box(x, y, width, TALL, KEPT)
            self.drawing.path(_hatch(x, y, width), stroke="white", stroke_width=1.5)
        stroke = GREY if holders or kept else LINE
        self.drawing.box(x, y, width, TALL, stroke=stroke, stroke_width=0.8)

    def key(self) -> None:
        """A block that is held, shared, kept and free, as far as there are such."""
        x, y = float(MARGIN), self.drawing.height - 20
        found = [
            ("held by one request", [b for b in self.blocks if len(b.holders) == 1]),
            ("held by several", [b for b in self.blocks if len(b.holders) > 1]),
            ("free, and found by those that begin alike", [b for b in self.blocks if b.kept]),
            ("free", [b for b in self.blocks if not b.holders and not b.kept]),
        ]
        for meaning, blocks in found:
            if blocks:
                self._filled(x, y, 20, blocks[0].holders[:3], self.block_size, blocks[0].kept)
                self.drawing.text(x + 26, y + TALL - 3, meaning, 10, GREY)
                x += 44 + text_width(meaning, 9)


def _hatch(x: float, y: float, width: float) -> str:
    """Slanted strokes through a block."""
    starts = range(0, int(width - TALL) + 1, 6)
    return "".join(f"M{x + start:.1f} {y + TALL:.1f}l{TALL} {-TALL}" for start in starts)
