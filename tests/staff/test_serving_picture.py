"""The pictures of serving say what happened, can be read by programs, and fit whatever is drawn."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from assignment.provided.data.traces import Lengths, generate_trace, named_trace
from assignment.provided.serving import (
    Chunk,
    Step,
    block_tables_svg,
    count_steps,
    drive,
    static_steps,
    timeline_svg,
)
from assignment.provided.serving.svg import BLUE, GREY, INK, ORANGE, PALE, text_width
from solutions.serving.paged_cache import PagedCache
from solutions.serving.scheduler import Scheduler
from tests.staff.authoring import pictures

SVG = "{http://www.w3.org/2000/svg}"
FOUR = named_trace("lengths-2-4-8-10")


def repeated(times):
    return [replace(FOUR[i % 4], id=i) for i in range(4 * times)]


def chunk(request, start, count, samples=True):
    return Chunk(request, start, (7,) * count, samples)


def under_pressure():
    """Steps with all that there is: waiting, chunked prefills, preemption, what is found again."""
    trace = generate_trace(
        12, rate=9, prompts=Lengths(12, 0.5, 4, 30), outputs=Lengths(9, 0.6, 2, 24), seed=6
    )
    scheduler = Scheduler(PagedCache(16, 4), max_tokens=8, max_sequences=5)
    return drive(scheduler, trace, [round(10 * request.arrival) for request in trace])


BY_HAND = [
    Step((chunk(0, 0, 5), chunk(1, 0, 3, samples=False)), waiting=(2,)),
    Step((chunk(0, 5, 1), chunk(1, 3, 2)), waiting=(2,)),
    Step((chunk(0, 6, 1), chunk(2, 4, 3, samples=False)), preempted=(1,), waiting=(1,)),
    Step((chunk(0, 7, 1), chunk(3, 8, 1)), waiting=(1,)),
    Step(),
    Step((chunk(1, 2, 4), chunk(2, 7, 1), chunk(3, 9, 1, samples=False))),
]


# The timeline.


def drawn(svg):
    """All shapes, after a look at whether they lie in the picture."""
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width")), float(root.get("height"))
    assert root.get("viewBox") == f"0 0 {root.get('width')} {root.get('height')}"
    for shape in root.iter():
        tag = shape.tag.removeprefix(SVG)
        if tag == "rect":
            assert 0 <= float(shape.get("x")) <= float(shape.get("x")) + float(shape.get("width"))
            assert float(shape.get("x")) + float(shape.get("width")) <= width + 0.02
            assert float(shape.get("y")) + float(shape.get("height")) <= height + 0.02
        if tag == "text":
            wide = 0.9 * text_width(shape.text, float(shape.get("font-size")))
            left = {"start": 0, "middle": wide / 2, "end": wide}[shape.get("text-anchor")]
            assert float(shape.get("x")) >= left, shape.text
            assert float(shape.get("x")) - left + wide <= width, shape.text
            assert 0 < float(shape.get("y")) <= height
    return root


def boxes(svg, fill):
    return [box for box in drawn(svg).iter(f"{SVG}rect") if box.get("fill") == fill]


def words(svg):
    return [text.text for text in drawn(svg).iter(f"{SVG}text")]


def test_widths_are_steps_and_heights_tell_apart():
    steps = drive(Scheduler(PagedCache(64), 32, 4), repeated(2))
    svg = timeline_svg(steps, slots=4)
    prefills, decodes = boxes(svg, ORANGE)[:-1], boxes(svg, BLUE)[:-1]  # the last are the key's
    assert len(prefills) == len(decodes) == 8
    cell = float(prefills[0].get("width"))
    assert [round(float(box.get("width")) / cell) for box in decodes] == [1, 3, 7, 9] * 2
    assert float(prefills[0].get("height")) > 1.5 * float(decodes[0].get("height"))
    inside = [text.text for text in drawn(svg).iter(f"{SVG}text") if text.get("fill") == "white"]
    assert inside == ["5"] * 8


def test_what_is_not_there_is_not_in_the_key():
    calm = words(timeline_svg(drive(Scheduler(PagedCache(64), 32, 4), FOUR)))
    assert "prefill and its tokens" in calm and "decode" in calm
    assert not {"waits", "padding", "is preempted", "no room in the step"} & set(calm)
    assert {"waits", "padding"} <= set(words(timeline_svg(static_steps(repeated(2), 4))))
    assert {"waits", "is preempted"} <= set(words(timeline_svg(under_pressure())))
    everything = words(timeline_svg(BY_HAND, width=500))
    assert {"waits", "no room in the step", "padding", "is preempted"} <= set(everything)


def test_preemptions_are_crossed_and_arrivals_and_ends_are_marked():
    steps = under_pressure()
    svg = timeline_svg(steps)
    preempted = sum(len(step.preempted) for step in steps)
    strokes = [line for line in drawn(svg).iter(f"{SVG}line") if line.get("stroke") == INK]
    assert len(strokes) == 2 * (preempted + 1)
    triangles = [path for path in drawn(svg).iter(f"{SVG}path") if path.get("fill") == GREY]
    assert len(triangles) == 12 + 1
    assert len(boxes(svg, INK)) == 12 + 1
    last = steps[-1].chunks[0].request
    assert len(boxes(timeline_svg(steps, unfinished=[last]), INK)) == 11 + 1
    waits = Step((chunk(0, 0, 2),), waiting=(1,))
    assert len(boxes(timeline_svg([waits]), INK)) == 1 + 1


def test_the_header_counts():
    steps = under_pressure()
    counts = count_steps(steps, 5)
    svg = timeline_svg(steps, title="A title", slots=5)
    line = (
        f"12 requests · {counts.steps} steps of 5 slots, {counts.useful_share:.0%} useful · "
        f"{counts.tokens} tokens computed · {counts.again} of them again · "
        f"{counts.found} found in the cache · {counts.preempted} preempted"
    )
    assert words(svg)[:2] == ["A title", line]
    narrow = words(timeline_svg(steps, slots=5, width=500))
    assert " · ".join(narrow[:2]) == line
    root = drawn(svg)
    assert root.find(f"{SVG}title").text == "A title"
    assert root.find(f"{SVG}desc").text == line
    assert root.get("aria-label") == f"A title. {line}"
    assert "again" not in words(timeline_svg(static_steps(FOUR, 4)))[0]


@pytest.mark.parametrize("requests", [1, 4, 16, 64])
@pytest.mark.parametrize("length", [10, 100, 1000])
@pytest.mark.parametrize("width", [600, 880])
def test_any_size_fits(requests, length, width):
    outputs = Lengths(length / 3, 0.5, 1, length)
    trace = generate_trace(
        requests, rate=1, prompts=Lengths(20, 0.5, 4, 90), outputs=outputs, seed=requests
    )
    arrivals = [min(round(request.arrival), length) for request in trace]
    scheduler = Scheduler(PagedCache(6 * requests + 80), max_tokens=requests + 24,
                          max_sequences=requests)  # fmt: skip
    for steps in (drive(scheduler, trace, arrivals), static_steps(trace, 8, arrivals)):
        svg = timeline_svg(steps, title="Some requests", width=width)
        root = drawn(svg)
        assert float(root.get("height")) <= 640
        assert len(svg) < 1500 * requests + 12_000
        sizes = [float(text.get("font-size")) for text in root.iter(f"{SVG}text")]
        assert min(sizes) >= 8
        assert svg == timeline_svg(steps, title="Some requests", width=width)


def test_nothing_to_draw_is_drawn():
    for steps in ([], [Step()], [Step(waiting=(3,))]):
        assert words(timeline_svg(steps))
    assert words(block_tables_svg({}, {}, 4, 2))


@pytest.mark.parametrize("name", ['<script>alert("1")</script>', "a & b", "'“ü”'"])
def test_any_text_stays_text(name):
    svg = timeline_svg([Step((chunk(0, 0, 2),))], title=name, labels={0: name})
    assert words(svg).count(name) == 2 and "<script" not in svg
    svg = block_tables_svg({0: [1]}, {0: 2}, 4, 4, title=name, labels={0: name})
    assert words(svg).count(name) >= 2 and "<script" not in svg


# Blocks.


def test_holders_and_what_is_filled():
    tables, lengths = {0: [3, 1], 1: [3, 1], 2: [5]}, {0: 6, 1: 6, 2: 3}
    svg = block_tables_svg(tables, lengths, 8, 4, published=[0, 3])
    root = drawn(svg)
    found = [text.text for text in root.iter(f"{SVG}text") if text.get("font-weight") == "bold"]
    assert found == ["request 0", "request 1", "request 2", "0 1", "0 1", "2"]
    assert (
        "3 of 8 blocks held · 2 by several · 9 of their 12 slots filled · 1 free ones kept"
        in words(svg)
    )
    key = {"held by one request", "held by several", "free, and found by those that begin alike"}
    assert key | {"free"} <= set(words(svg))
    halves = [box for box in root.iter(f"{SVG}rect") if box.get("opacity")]
    wide = max(float(box.get("width")) for box in halves)
    of_one = [float(box.get("width")) / wide for box in halves if box.get("fill") == BLUE]
    pool = of_one[2:4]  # blocks 1 and 3, behind the table's two
    assert pool == pytest.approx([0.5, 1], abs=0.01)


def test_tables_stand_in_order_with_their_lengths():
    svg = block_tables_svg({4: [2, 0], 1: [1]}, {4: 5, 1: 1}, 3, 4, labels={4: "a story"})
    shown = words(svg)
    assert shown.index("request 1") < shown.index("a story")
    assert "5 tokens" in shown and "1 token" in shown
    assert not [text for text in shown if text.startswith("free")]


@pytest.mark.parametrize("num_blocks", [1, 16, 100, 101, 512])
@pytest.mark.parametrize("width", [600, 880])
def test_any_pool_fits(num_blocks, width):
    full = list(range(num_blocks))
    tables = {0: full, 1: full[: num_blocks // 2], 12: full[:1]}
    lengths = {request: 16 * len(table) for request, table in tables.items() if table}
    tables = {request: table for request, table in tables.items() if table}
    svg = block_tables_svg(tables, lengths, num_blocks, 16, title="A pool", width=width)
    squares = boxes(svg, PALE)
    assert len(squares) >= num_blocks + sum(map(len, tables.values()))
    assert svg == block_tables_svg(tables, lengths, num_blocks, 16, title="A pool", width=width)


# The handout's.


def test_the_handouts_pictures_are_current(capsys):
    assert pictures.main(["--check"]) == 0, capsys.readouterr().out


def test_check_tells_what_is_not_as_it_should_be(tmp_path, capsys):
    assert pictures.main(["--check"], tmp_path) == 1
    assert "static.svg is out of date: run `python -m" in capsys.readouterr().out
    (tmp_path / "handout").mkdir()
    assert pictures.main([], tmp_path) == 0 and pictures.main(["--check"], tmp_path) == 0
    (tmp_path / pictures.FOLDER / "old.svg").write_text("")
    assert pictures.main(["--check"], tmp_path) == 1
    assert re.findall(r"(\w+)\.svg", capsys.readouterr().out) == ["old"]


TIMELINES = {
    "static": "16 requests · 40 steps of 4 slots, 60% useful",
    "continuous": "160 tokens computed",
    "preemption": "is preempted",
}


@pytest.mark.parametrize("name", TIMELINES)
def test_each_shows_what_it_is_for(name):
    svg = pictures.PICTURES[name]()
    assert float(drawn(svg).get("width")) == pictures.WIDTH
    assert TIMELINES[name] in " ".join(words(svg))
