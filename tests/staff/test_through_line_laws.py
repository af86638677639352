"""Whatever is graded, solved and drawn, the through-line never costs a grade its report."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.grading.html import render
from tests.grading.page import through_line as page
from tests.staff.test_through_line import (
    NAMES,
    PROBLEMS,
    every_choice,
    line_course,
    report_of,
    text_of,
)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return line_course(tmp_path_factory.mktemp("line"))


@pytest.mark.parametrize("graded", every_choice(NAMES), ids=lambda names: "-".join(sorted(names)))
def test_every_choice_of_problems_graded_and_solved_is_drawn(course, graded):
    problems = [problem for name, problem in PROBLEMS.items() if name in graded]
    for earned in every_choice(graded):
        report = report_of(course, earned, [*problems, "attention.generate"])
        assert (text_of(render(report)) is None) == ("cache" not in graded)
        check(page.view_through_line(report))


def check(picture):
    """What is drawn lies in the picture, and what is said of a design is so."""
    if picture is None:
        return
    for dot in (picture.here, *(station.dot for station in picture.stations)):
        assert 0 <= dot.x <= 100 and 0 <= dot.y <= 100
        assert page.LEAST <= dot.radius <= page.LARGEST
    for ticks in (picture.columns, picture.rows):
        assert 1 <= len(ticks) <= 6 and all(0 <= tick.at <= 100 for tick in ticks)
    if picture.next:
        assert picture.next.title in picture.next.used


VALUES = st.floats(1e-9, 1e9) | st.sampled_from([0.0, 1e-3, page.BREAK, 1.0, 10.0, 1000.0])


@st.composite
def lines(draw):
    """Any techniques of the course, designs of any of them, any figures."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    chosen = draw(st.lists(st.frozensets(st.sampled_from(names)), max_size=8, unique=True))
    designs = tuple(
        page.Design(made, draw(VALUES), draw(VALUES), draw(st.none() | st.integers(0, 999)),
                    draw(VALUES), draw(VALUES))
        for made in {frozenset(), *chosen}
    )  # fmt: skip
    techniques = tuple(page.Technique(name, name, PROBLEMS[name], name) for name in names)
    return page.Line("a model", "a chip", 4096, 16, techniques, designs)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines(), st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES), min_size=1))
def test_any_line_is_drawn(course, line, earned, graded):
    report = report_of(course, earned & graded, [PROBLEMS[name] for name in graded])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "load", lambda file: line)
        assert (text_of(render(report)) is None) == (line.techniques[0].name not in graded)
        check(page.view_through_line(report))


@given(st.floats(1e-9, 1e12))
def test_any_axis_has_some_ticks(end):
    steps = page._steps(end)
    assert 2 <= len(steps) <= 6 and steps[0] > 0 and steps[-1] < end * (1 + 1e-12)
