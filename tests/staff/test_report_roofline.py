"""A predicted time's place under the roofline: from a graded test to every report."""

from __future__ import annotations

import io
import json
import math
from dataclasses import asdict, replace
from types import SimpleNamespace

import jsonschema
import pytest
from rich.console import Console

from tests.grading import plugin, reference_costs, results
from tests.grading.errors import GraderError
from tests.grading.html import render
from tests.grading.page.roofline import roofline_picture
from tests.grading.records import Figure, Roofline
from tests.grading.roofline import in_a_line, in_lines, points_of
from tests.grading.scoring import score
from tests.grading.terminal import print_report
from tests.grading.tiers import describe
from tests.grading.wording import quantity
from tests.staff.browser import CHROMIUM, examine
from tests.staff.samples import (
    CACHE,
    RUN,
    large_course,
    mixed_run,
    perfect_run,
    record,
    small_course,
    with_,
)

# 10¹² FLOPs over 10¹¹ bytes; the submission moves twice as many and takes 2.5 times as long.
IDEAL = 1e11 / 3.35e12
WORK = Roofline("H100", 1e12, 2e11, 1e11, 1.1e11)
TIME = Figure("calls", 2.5 * IDEAL, IDEAL, "s", "grader", 1.2 * IDEAL, {"x": 9.0}, WORK)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return small_course(tmp_path_factory.mktemp("course"))


def report_of(course, figure):
    slow = record(CACHE, "calls", "failed", describe(figure), measured=figure)
    return score(course, with_(perfect_run(), slow), RUN)


def printed(report, encoding="utf-8", width=100):
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding=encoding, errors="strict")
    print_report(report, Console(file=file, width=width))
    file.flush()
    return raw.getvalue().decode(encoding).splitlines()


def alone(report):
    return replace(report, problems=tuple(s for s in report.problems if s.problem.name == CACHE))


class TestPoints:
    def test_seconds_and_bytes_meet_in_a_point(self):
        yours, ideal, reference = points_of(TIME)
        assert [p.label for p in (yours, ideal, reference)] == [
            "this submission", "ideal", "reference",
        ]  # fmt: skip
        assert (yours.intensity, yours.rate) == (5, pytest.approx(33.5e12 / 2.5))
        assert (ideal.intensity, ideal.rate) == (10, pytest.approx(33.5e12))
        assert reference.bytes == 1.1e11 and reference.seconds == 1.2 * IDEAL

    def test_without_the_references_figures_there_are_two(self):
        assert len(points_of(replace(TIME, reference=None))) == 2
        work = replace(WORK, reference_bytes=None)
        assert len(points_of(replace(TIME, roofline=work))) == 2

    @pytest.mark.parametrize("got", [0, -1.0, math.nan, math.inf, "a text", True, None])
    def test_a_figure_that_no_kernel_has_draws_nothing(self, got):
        assert points_of(replace(TIME, got=got)) == []
        assert roofline_picture(replace(TIME, got=got)) is None
        assert in_a_line(replace(TIME, got=got)) == in_lines(replace(TIME, got=got)) == []

    def test_other_costs_have_no_picture(self):
        assert points_of(None) == [] == points_of(replace(TIME, roofline=None))
        assert points_of(replace(TIME, roofline=replace(WORK, chip="abacus"))) == []


class TestPage:
    def test_dots_lie_under_the_roof(self):
        picture = roofline_picture(TIME)
        yours, ideal, reference = picture.dots
        assert [dot.kind for dot in picture.dots] == ["yours", "ideal", "reference"]
        assert yours.x < reference.x < ideal.x and yours.y > reference.y > ideal.y
        (left, low), (bend, high), _ = picture.roof
        on_the_roof = low + (ideal.x - left) / (bend - left) * (high - low)
        assert ideal.y == pytest.approx(on_the_roof, abs=0.05)
        assert [tick.label for tick in picture.columns] == ["1", "10", "100"]
        assert picture.rows[-1].label == "1 PFLOP/s" and picture.rows[-1].at == 0

    def test_it_is_drawn_for_a_time_alone(self, course):
        page = render(report_of(course, TIME))
        assert page.count('class="roofline') == 1 and page.count('class="roof"') == 2
        assert "this submission: 5 FLOP/byte, 13.4 TFLOP/s, 80% of the roof" in page
        assert '<figure class="roofline' not in render(score(course, perfect_run(), RUN))

    def test_seconds_read_well(self, course):
        assert "74.6 ms" in render(report_of(course, TIME))
        assert quantity(2.5e-6, "s") == "2.50 µs" and quantity(1420, "bytes") == "1,420 bytes"
        assert [quantity(x, "s") for x in (0, math.nan, "x")] == ["0 s", "nan s", "x s"]
        assert describe(TIME) == (
            "calls: 74.6 ms, 2.50× the ideal of 29.9 ms: one third of the points"
        )

    @pytest.mark.skipif(not CHROMIUM, reason="there is no chromium on PATH to look with")
    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_it_can_be_read_at_every_width(self, course, tmp_path, scheme):
        pages = {"time": render(report_of(course, TIME))}
        for look in examine(pages, [360, 900, 1600], tmp_path, scheme):
            assert look["scroll"] <= look["width"] and look["outside"] == []
            assert look["overlapping"] == [] and look["faintest"][0] >= 4.5


class TestTerminal:
    def test_many_problems_have_a_line_for_each_time(self, tmp_path):
        report = score(
            large_course(tmp_path),
            [
                replace(r, figure=replace(TIME, name="calls")) if r.cost == "calls" else r
                for r in mixed_run()
            ],
            RUN,
        )
        lines = [line for line in printed(report) if "% of the roof" in line]
        assert set(lines) == {"    on the H100 SXM: 5 FLOP/byte, 13.4 TFLOP/s, 80% of the roof"}

    def test_few_problems_have_a_picture(self, course):
        report = report_of(course, TIME)
        lines = printed(alone(report))
        assert "    H100 SXM: FLOP/s by FLOP/byte" in lines
        assert "    2 ideal: 10 FLOP/byte, 33.5 TFLOP/s, 100% of the roof" in lines
        assert max(map(len, lines)) <= 96
        narrow = "\n".join(printed(alone(report), width=60))
        assert "FLOP/s by FLOP/byte" not in narrow and "on the H100 SXM:" in narrow

    def test_a_plain_terminal_has_a_line(self, course):
        report = report_of(course, TIME)
        lines = printed(alone(report), "ascii")
        assert any("on the H100 SXM:" in line for line in lines)
        assert not any("FLOP/s by FLOP/byte" in line for line in lines)


class TestResults:
    def test_they_follow_the_schema(self, course):
        schema = json.loads(results.SCHEMA.read_text(encoding="utf-8"))
        check = jsonschema.Draft202012Validator(schema).validate
        for figure in (
            TIME,
            replace(TIME, roofline=replace(WORK, reference_bytes=None)),
            replace(TIME, roofline=replace(WORK, bytes=math.nan)),
            replace(TIME, roofline=None),
        ):
            check(json.loads(json.dumps(results.as_data(report_of(course, figure)))))

    def test_they_hold_what_the_picture_needs(self, course):
        data = results.as_data(report_of(course, TIME))
        cache = next(p for p in data["problems"] if p["name"] == CACHE)
        assert cache["costs"][0]["figure"]["roofline"] == asdict(WORK)
        assert cache["costs"][1]["figure"]["roofline"] is None


def budget_of(course):
    """(`budget` of a test of the small course's calls, where the test leaves its figure)."""
    mark = SimpleNamespace(args=("calls",))
    item = SimpleNamespace(
        nodeid="a::b", stash=pytest.Stash(), get_closest_marker=lambda name: mark
    )
    config = SimpleNamespace(stash=pytest.Stash())
    item.stash[plugin._PROBLEM], config.stash[plugin._COURSE] = CACHE, course
    request = SimpleNamespace(node=item, config=config)
    return plugin.budget.__wrapped__(request), item.stash


class TestBudget:
    def test_a_test_records_a_time_and_the_reference_is_added(self, course, monkeypatch):
        monkeypatch.setattr(reference_costs, "_load", lambda: {"a::b": 1.2, "a::b (bytes)": 1.1})
        budget, stash = budget_of(course)
        with pytest.raises(AssertionError, match=r"calls: 74\.6 ms, 2\.50× the ideal of 29\.9 ms"):
            budget(
                2.5 * IDEAL, IDEAL, unit="s", beside={"x": 9.0},
                roofline=replace(WORK, reference_bytes=None),
            )  # fmt: skip
        assert stash[plugin._FIGURE].reference == pytest.approx(1.2 * IDEAL)
        assert stash[plugin._FIGURE].roofline.reference_bytes == pytest.approx(1.1e11)
        assert replace(stash[plugin._FIGURE], reference=None, roofline=None) == replace(
            TIME, reference=None, roofline=None
        )

    def test_other_costs_are_recorded_as_before(self, course):
        budget, stash = budget_of(course)
        budget(104, 100, note="why")
        assert stash[plugin._FIGURE] == Figure("calls", 104, 100, "bytes", "grader", note="why")
        with pytest.raises(GraderError, match="twice"):
            budget(104, 100)


class TestReference:
    def test_its_seconds_and_bytes_are_multiples_of_the_ideals(self, monkeypatch):
        known = {"a::b": 1.2, "a::b (bytes)": 1.1}
        monkeypatch.setattr(reference_costs, "_load", lambda: known)
        assert reference_costs.reference_cost("a::b", 10) == pytest.approx(12)
        assert reference_costs.reference_bytes("a::b", 100) == pytest.approx(110)
        assert reference_costs.reference_bytes("a::c", 100) is None

    def test_both_are_measured(self, monkeypatch):
        calls = replace(record(CACHE, "calls", measured=TIME), test="a::b")
        other = replace(record(CACHE, "bytes", measured=replace(TIME, roofline=None)), test="a::c")
        outcome = type("Outcome", (), {"records": [calls, other]})
        monkeypatch.setattr("tests.grading.runner.run", lambda *args, **options: outcome)
        assert reference_costs.measure() == {"a::b": 2.5, "a::b (bytes)": 2.0, "a::c": 2.5}
