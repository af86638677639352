"""A tree of candidates, as a picture: SVG text, for a notebook or the handout."""

from collections.abc import Sequence
from itertools import count

from ..serving.svg import BLUE, GREY, INK, LINE, MARGIN, PALE, Drawing, Heading, text_width

ROW, GAP, PAD, SIZE = 26, 34, 9, 11  # a leaf's height, between columns, beside a label, its letters
BOX = 19  # the height of a node


def tree_svg(
    parents: Sequence[int],
    labels: Sequence[str],
    path: Sequence[int],
    *,
    title: str = "",
    token: str = "",
) -> str:
    """The nodes column by column: the root on the left, each node to the right of its parent.

    Args:
        parents: of each node; node 0 is the root, parents[0] = −1, and parents[i] < i.
        labels: the text of each node, such as its token. An empty one is a node of padding.
        path: accepted nodes, root first; they are filled.
        token: the token that comes after the path, if it is to be shown.

    Raises:
        ValueError: there are not as many labels as parents, or path does not go down from the root.
    """
    if len(labels) != len(parents):
        raise ValueError(f"labels: {len(labels)}, for {len(parents)} nodes")
    if [parents[node] for node in path] != [-1, *path][: len(path)]:
        raise ValueError(f"path: {list(path)} does not go down from the root")
    return str(_Tree(parents, labels, path, title, token).drawing)


class _Tree:
    def __init__(
        self,
        parents: Sequence[int],
        labels: Sequence[str],
        path: Sequence[int],
        title: str,
        token: str,
    ):
        shown, parents, accepted = list(labels), list(parents), set(path)
        if token and path:  # a node like any other, but dashed
            parents.append(path[-1])
            shown.append(token)
        depths, rows = _places(parents)
        lefts, width = _columns(depths, shown)
        counts = [
            f"{max(len(labels) - 1, 0)} guesses",
            f"{max(depths[: len(labels)], default=0)} deep",
            f"{max(len(path) - 1, 0)} accepted",
        ]
        wide = max(width, 260.0, text_width(title, 13) + 2 * MARGIN)
        heading = Heading(title, counts, wide)
        top = heading.height + MARGIN
        height = top + ROW * (max(rows, default=0) + 1) + MARGIN
        words = " ".join(shown[node] for node in path)
        described = ". ".join([heading.text, f"The path: {words}"] if words else [heading.text])
        self.drawing = Drawing(wide, height, title or "A tree of candidates", described)
        heading.draw(self.drawing)
        middles = [top + ROW * (row + 0.5) for row in rows]
        for node, parent in enumerate(parents):
            if parent >= 0:
                start = lefts[depths[parent]] + _width(shown[parent]), middles[parent]
                end = lefts[depths[node]], middles[node]
                self._edge(start, end, node in accepted, node == len(labels))
        for node, label in enumerate(shown):
            place = lefts[depths[node]], middles[node]
            self._node(place, label, node in accepted, node == len(labels))

    def _edge(
        self, start: tuple[float, float], end: tuple[float, float], accepted: bool, last: bool
    ) -> None:
        (x, y), (to_x, to_y) = start, end
        middle = to_x - GAP / 2
        style = {"stroke": BLUE, "stroke_width": 2} if accepted else {"stroke": LINE}
        dashes = {"stroke": BLUE, "stroke_dasharray": "3 3"} if last else {}
        curve = f"M{x:.1f} {y:.1f}H{to_x - GAP:.1f}"
        curve += f"C{middle:.1f} {y:.1f} {middle:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
        self.drawing.path(curve, **style | dashes)

    def _node(self, place: tuple[float, float], label: str, accepted: bool, last: bool) -> None:
        (x, y), width = place, _width(label)
        if last:
            box = {"fill": "white", "stroke": BLUE, "stroke_dasharray": "3 3"}
        else:
            box = {"fill": BLUE if accepted else PALE}
        self.drawing.box(x, y - BOX / 2, width, BOX, rx=3, **box)
        text = {"fill": "white" if accepted else INK, "anchor": "middle"}
        if label:
            self.drawing.text(x + width / 2, y + 0.35 * SIZE, label, SIZE, **text)
        else:
            self.drawing.cross(x + width / 2, y, 3, GREY)


def _places(parents: Sequence[int]) -> tuple[list[int], list[float]]:
    """Column and row of each node. Leaves stand one below the other, in the order of a walk; the
    others in the middle of their children."""
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    columns, rows, leaves = [0] * len(parents), [0.0] * len(parents), count()

    def settle(node: int, column: int) -> None:
        columns[node] = column
        for child in children[node]:
            settle(child, column + 1)
        below = [rows[child] for child in children[node]]
        rows[node] = (below[0] + below[-1]) / 2 if below else next(leaves)

    if parents:
        settle(0, 0)
    return columns, rows


def _columns(depths: Sequence[int], labels: Sequence[str]) -> tuple[list[float], float]:
    """Where each column begins, and where the last one ends."""
    lefts, x = [], float(MARGIN)
    for depth in range(max(depths, default=-1) + 1):
        lefts.append(x)
        x += max(_width(label) for at, label in zip(depths, labels, strict=True) if at == depth)
        x += GAP
    return lefts, max(x - GAP, 0) + MARGIN


def _width(label: str) -> float:
    return max(text_width(label, SIZE) + 2 * PAD, BOX)
