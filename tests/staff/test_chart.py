"""A cost as bars: where each lies on the one scale."""

from __future__ import annotations

import math

import pytest

from tests.grading.page.chart import END, cost_chart
from tests.grading.scoring import score
from tests.staff.samples import CACHE, figure, perfect_run, record, small_course, with_


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return small_course(tmp_path_factory.mktemp("course"))


def chart_of(course, measured):
    run = with_(perfect_run(), record(CACHE, "bytes", "failed", measured=measured))
    cache = next(s for s in score(course, run).problems if s.problem.name == CACHE)
    return cost_chart(cache.costs[1])


def test_a_chart_compares_multiples_of_the_ideal(course):
    chart = chart_of(course, figure(200, 100, reference=100, beside={"cat": 400}))
    assert [bar.kind for bar in chart.bars] == ["yours", "ideal", "reference", "beside"]
    end = float(END)
    expected = [200 / end, 100 / end, 100 / end, 100]
    assert [bar.width for bar in chart.bars] == pytest.approx(expected, abs=0.01)
    assert [bar.beyond for bar in chart.bars] == [False, False, False, True]
    assert [bar.multiple for bar in chart.bars] == ["2.00×", "1.00×", "1.00×", "4.00×"]


def test_zones_lie_side_by_side_up_to_the_end(course):
    zones = chart_of(course, figure(200)).zones
    assert [zone.share for zone in zones] == ["all", "⅔", "⅓", "0"]
    ends = [zone.start + zone.width for zone in zones]
    assert ends == pytest.approx(
        [100 * times / float(END) for times in (1.1, 1.5, 3, END)], abs=0.02
    )
    assert [zone.start for zone in zones[1:]] == pytest.approx(ends[:-1], abs=0.02)


def test_a_huge_or_tiny_figure_stays_in_the_picture(course):
    for got in (0, 1e-9, 1e300):
        bars = chart_of(course, figure(got, 1, beside={"cat": 1e200})).bars
        assert all(0 <= bar.width <= 100 for bar in bars)


@pytest.mark.parametrize("measured", [None, figure(math.nan), figure(3, 0), figure(-1)])
def test_no_chart_without_multiples(course, measured):
    assert chart_of(course, measured) is None
