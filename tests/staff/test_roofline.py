"""The roofline: its numbers by hand, and both of its pictures."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from assignment.provided.lab import CHIPS
from assignment.provided.lab.kernel import GPUS, Point, roofline_svg, roofline_text
from assignment.provided.lab.roofline import axes, ridge, roof
from assignment.provided.lab.roofline_picture import COLUMNS, told
from assignment.provided.units import large, power_of_ten, seconds

SVG = "{http://www.w3.org/2000/svg}"
H100 = CHIPS["H100"]

# Of 10¹² FLOPs: one byte for 10, at the bandwidth; twice the bytes; and a quarter of the rate.
IDEAL = Point("ideal", 1e12, 1e11, 1e11 / 3.35e12)
TWICE = Point("read twice", 1e12, 2e11, 2e11 / 3.35e12)
SLOW = Point("one program", 1e12, 1e11, 4e11 / 3.35e12)


class TestNumbers:
    def test_below_the_ridge_bandwidth_is_the_roof_and_above_it_arithmetic(self):
        assert ridge(H100) == pytest.approx(989 / 3.35)
        assert roof(H100, 10) == pytest.approx(33.5e12)
        assert roof(H100, 1000) == 989e12 == pytest.approx(roof(H100, ridge(H100)))
        assert roof(GPUS["H100"], 10) == roof(H100, 10)

    def test_a_point_is_the_work_of_the_task_over_what_it_took(self):
        assert (IDEAL.intensity, IDEAL.rate) == (10, pytest.approx(33.5e12))
        assert (TWICE.intensity, TWICE.rate) == (5, pytest.approx(33.5e12 / 2))
        words = "one program: 10 FLOP/byte, 8.38 TFLOP/s, 25% of the roof"
        assert told(SLOW, H100) == words
        assert told(TWICE, H100).endswith("100% of the roof")

    @pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf")])
    def test_a_point_has_some_of_everything(self, wrong):
        with pytest.raises(ValueError, match="bytes of 'x'"):
            Point("x", 1, wrong, 1)

    def test_axes_hold_the_ridge_and_every_point(self):
        tiny, huge = Point("tiny", 1, 1e4, 1), Point("huge", 1e9, 1, 1)
        for points in ([IDEAL], [IDEAL, SLOW], [tiny], [huge]):
            for chip in CHIPS.values():
                found = axes(points, chip)
                for point in points:
                    assert 0 < found.across(point.intensity) <= 1 and 0 < found.up(point.rate) <= 1
                (left, low), (_, high), (right, same) = found.roof(chip)
                assert (left, right) == (0, 1) and 0 <= low < high <= 1
                assert same == pytest.approx(high)
                assert found.rates[0] == found.bottom and found.rates[-1] == found.top

    def test_the_roof_is_straight_as_its_corners_say(self):
        found = axes([IDEAL], H100)
        (_, low), (bend, high), _ = found.roof(H100)
        share = found.across(IDEAL.intensity) / bend
        assert found.up(roof(H100, IDEAL.intensity)) == pytest.approx(low + share * (high - low))


def drawn(points, **options):
    root = ElementTree.fromstring(roofline_svg(points, GPUS["H100"], **options))
    circles = [
        (float(c.get("cx")), float(c.get("cy")), c.get("fill") != "none", float(c.get("r")))
        for c in root.iter(SVG + "circle")
    ]
    return root, circles


class TestSvg:
    def test_points_lie_where_their_axes_say(self):
        root, circles = drawn([SLOW, IDEAL, TWICE], title="Three <ways>")
        last, middle, first, *key = circles  # drawn before what lies on them
        assert [filled for *_, filled, _ in (first, middle, last)] == [True, False, False]
        assert first[3] < middle[3] < last[3] and len(key) == 3
        assert first[0] == middle[0] and first[1] > middle[1]  # as intense, and slower
        assert last[0] < middle[0] and last[1] > middle[1]
        texts = [text.text for text in root.iter(SVG + "text")]
        assert "Three <ways>" in texts and told(SLOW, H100) in texts
        assert {"1", "10", "100", "1000", "1 PFLOP/s", "FLOP/byte"} <= set(texts)

    def test_what_is_on_the_roof_lies_on_its_line(self):
        root, circles = drawn([IDEAL])
        slope = next(line for line in root.iter(SVG + "line") if line.get("stroke-width") == "2")
        x1, y1, x2, y2 = (float(slope.get(key)) for key in ("x1", "y1", "x2", "y2"))
        x, y, *_ = circles[0]
        assert y == pytest.approx(y1 + (x - x1) / (x2 - x1) * (y2 - y1), abs=0.1)

    @pytest.mark.parametrize("points", [[IDEAL], [IDEAL, TWICE, SLOW] * 3])
    def test_nothing_lies_outside(self, points):
        root, circles = drawn(points)
        width, height = float(root.get("width")), float(root.get("height"))
        assert all(0 < x < width and 0 < y < height for x, y, *_ in circles)
        assert all(float(text.get("y")) < height for text in root.iter(SVG + "text"))


class TestText:
    def test_it_fits_60_columns_and_marks_each_point(self):
        lines = roofline_text([SLOW, IDEAL, TWICE], H100).splitlines()
        plot = lines[1:13]
        assert lines[0] == "H100 SXM: FLOP/s by FLOP/byte"
        assert max(map(len, lines[:15])) <= COLUMNS == 60
        rows = {
            mark: row
            for row, line in enumerate(plot)
            for mark in re.findall(r"[1-3](?=[ ·]|$)", line[6:])
        }
        assert rows["2"] < rows["3"] <= rows["1"]
        column = {mark: plot[row].rindex(mark) for mark, row in rows.items()}
        assert column["1"] == column["2"] > column["3"]
        assert lines[14].split() == ["1", "10", "100", "1000"]
        assert lines[15:] == [
            "1 one program: 10 FLOP/byte, 8.38 TFLOP/s, 25% of the roof",
            "2 ideal: 10 FLOP/byte, 33.5 TFLOP/s, 100% of the roof",
            "3 read twice: 5 FLOP/byte, 16.8 TFLOP/s, 100% of the roof",
        ]

    def test_of_points_in_one_place_the_first_is_seen(self):
        text = roofline_text([IDEAL, IDEAL], H100)
        assert "1" in text.splitlines()[5] + text.splitlines()[6] + text.splitlines()[7]
        assert not any("2" in line for line in text.splitlines()[1:14])


def test_numbers_with_units():
    assert [large(x, "B/s") for x in (3.35e12, 320e9, 5, 0)] == [
        "3.35 TB/s", "320 GB/s", "5.00 B/s", "0 B/s",
    ]  # fmt: skip
    assert [seconds(x) for x in (2.63e-6, 1.42e-8, 6.1e-11, 0.5, 12, 0)] == [
        "2.63 µs", "14.2 ns", "0.061 ns", "500 ms", "12.0 s", "0 ns",
    ]  # fmt: skip
    assert seconds(999.9e-9) == "1.00 µs" and large(999.9e9, "") == "1.00 T"
    assert [power_of_ten(10.0**n, "FLOP/s") for n in (9, 10, 11, 15)] == [
        "1 GFLOP/s", "10 GFLOP/s", "100 GFLOP/s", "1 PFLOP/s",
    ]  # fmt: skip
