"""The picture of a tree shows its nodes, who comes from whom, and which path was accepted."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from assignment.provided.serving.svg import BLUE, PALE, text_width
from assignment.provided.speculative.picture import tree_svg
from tests.staff.authoring import pictures

SVG = "{http://www.w3.org/2000/svg}"
PARENTS = [-1, 0, 0, 0, 1, 1, 2, 4, 4, 6]
LABELS = ["had", "a", "the", "an", "small", "big", "small", "key", "hat", "key"]


def drawn(svg):
    """The picture's root, after a look at whether all lies in it."""
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    for box in root.iter(f"{SVG}rect"):
        x, y, wide, high = (float(box.get(name)) for name in ("x", "y", "width", "height"))
        assert x >= 0 and y >= 0 and x + wide <= width + 0.02 and y + high <= height + 0.02
    for text in root.iter(f"{SVG}text"):
        if text.get("text-anchor") == "start":
            wide = text_width(text.text, float(text.get("font-size")))
            assert float(text.get("x")) + wide <= width
    return root


def nodes(svg):
    """The boxes of the nodes in their order, without the ground."""
    return list(drawn(svg).iter(f"{SVG}rect"))[1:]


def words(svg):
    return [text.text for text in drawn(svg).iter(f"{SVG}text")]


def middle(box):
    return float(box.get("y")) + float(box.get("height")) / 2


def test_every_node_is_there_and_the_path_is_filled():
    path = [0, 1, 4, 8]
    svg = tree_svg(PARENTS, LABELS, path)
    assert words(svg) == ["9 guesses · 3 deep · 3 accepted", *LABELS]
    fills = [box.get("fill") for box in nodes(svg)]
    assert fills == [BLUE if node in path else PALE for node in range(10)]
    edges = [edge.get("stroke") for edge in drawn(svg).iter(f"{SVG}path")]
    assert edges == [BLUE if node in path else "#b9c0c9" for node in range(1, 10)]


def test_depths_are_columns_and_no_two_nodes_overlap():
    svg = tree_svg(PARENTS, LABELS, [0])
    boxes = nodes(svg)
    lefts = [float(box.get("x")) for box in boxes]
    depths = [0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    for i in range(10):
        for j in range(i):
            assert (lefts[i] == lefts[j]) == (depths[i] == depths[j])
            if depths[i] == depths[j]:
                assert abs(middle(boxes[i]) - middle(boxes[j])) > 19
            else:  # ends before the next column begins
                assert lefts[j] + float(boxes[j].get("width")) < lefts[i]


def test_an_edge_leads_from_the_parent_to_its_child():
    svg = tree_svg(PARENTS, LABELS, [0])
    boxes, edges = nodes(svg), list(drawn(svg).iter(f"{SVG}path"))
    for node, edge in enumerate(edges, start=1):
        parent, way = boxes[PARENTS[node]], edge.get("d").replace("M", "")
        x, y = map(float, way.split("H")[0].split())
        assert x == pytest.approx(float(parent.get("x")) + float(parent.get("width")), abs=0.1)
        assert y == pytest.approx(middle(parent), abs=0.1)
        to_x, to_y = map(float, way.split()[-2:])
        assert to_x == pytest.approx(float(boxes[node].get("x")), abs=0.1)
        assert to_y == pytest.approx(middle(boxes[node]), abs=0.1)


def test_the_token_after_the_path_is_a_dashed_node_behind_it():
    svg = tree_svg(PARENTS, LABELS, [0, 1, 4, 8], token="!", title="A round")
    assert words(svg)[0] == "A round" and words(svg)[-1] == "!"
    *others, last = nodes(svg)
    assert len(others) == 10 and last.get("stroke-dasharray")
    assert float(last.get("x")) > float(others[8].get("x"))
    assert drawn(svg).find(f"{SVG}title").text == "A round"
    assert "The path: had a small hat" in drawn(svg).get("aria-label")


def test_padding_has_no_label():
    svg = tree_svg([-1, 0, 0], ["a", "b", ""], [0, 1])
    assert words(svg)[1:] == ["a", "b"] and len(nodes(svg)) == 3


@pytest.mark.parametrize("parents", [[], [-1], [-1, 0], [*range(-1, 11)], [-1] + [0] * 30])
def test_any_tree_fits(parents):
    labels = [f"a long token {node}" for node in range(len(parents))]
    path = list(range(min(2, len(parents))))
    svg = tree_svg(parents, labels, path, title="A title, and longer than its tree")
    assert len(nodes(svg)) == len(parents)
    assert svg == tree_svg(parents, labels, path, title="A title, and longer than its tree")


@pytest.mark.parametrize("path", [[1], [0, 4], [0, 1, 6], [1, 0]])
def test_a_path_goes_down_from_the_root(path):
    with pytest.raises(ValueError, match="does not go down from the root"):
        tree_svg(PARENTS, LABELS, path)


def test_every_node_has_a_label():
    with pytest.raises(ValueError, match="labels: 2, for 3 nodes"):
        tree_svg([-1, 0, 0], ["a", "b"], [0])


def test_any_text_stays_text():
    svg = tree_svg([-1, 0], ["<b>", "a & “b”"], [0, 1], title="<script>")
    assert words(svg)[-2:] == ["<b>", "a & “b”"] and "<script" not in svg


def test_the_handouts_tree_is_one_of_medusas():
    """What a head guesses is the same below every parent; children of a node differ."""
    tree, ranks = pictures.TREE, {}
    places = [0]
    for node, parent in enumerate(tree["parents"][1:], start=1):
        rank = sum(other == parent for other in tree["parents"][1:node])
        places.append(places[parent] + 1)
        ranks.setdefault((places[node], rank), set()).add(tree["labels"][node])
    assert all(len(labels) == 1 for labels in ranks.values())
    assert words(pictures.tree())[-1] == "."
