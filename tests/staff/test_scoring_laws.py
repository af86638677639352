"""Points and what is shown of them: laws that hold for any run at all."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.grading.scoring import score
from tests.grading.wording import rounded
from tests.staff.samples import CACHE, figure, perfect_run, record, small_course


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return small_course(tmp_path_factory.mktemp("course"))


GOT = st.one_of(st.integers(0, 500), st.floats(), st.sampled_from([100, 110, 150, 300]))
FIGURES = st.builds(figure, GOT) | st.none()
OUTCOMES = st.sampled_from(["passed", "failed", "failed", "grader error"])
PARTS = [(CACHE, p) for p in ("append", "ragged", "rollback", "bytes")]
PARTS += [("attention.mask", "causal"), ("attention.mask", "window"), ("extras.pruning", "masks")]


@st.composite
def any_record(draw):
    problem, part = draw(st.sampled_from(PARTS))
    measured = draw(FIGURES) if part == "bytes" else None
    number, unwritten = draw(st.integers(0, 3)), draw(st.booleans())
    return record(
        problem, part, draw(OUTCOMES), measured=measured, unwritten=unwritten, number=number
    )


ANY_RUN = st.lists(any_record(), max_size=16).map(lambda more: [*perfect_run(), *more])
some = settings(max_examples=150, deadline=None)


@some
@given(ANY_RUN, st.sampled_from([0.0, 0.5]))
def test_points_stay_between_nothing_and_possible(course, records, kept):
    records = records[int(len(records) * kept) :]
    report = score(course, records)
    for each in report.problems:
        assert 0 <= each.points <= each.at_most <= each.possible
        assert each.faults or each.points == each.at_most
        assert (each.status == "full") == (each.points == each.possible and not each.faults)
    assert sum(report.shown.values()) == round(report.core.points, 2) + round(
        report.electives.points, 2
    )


@some
@given(ANY_RUN)
def test_what_is_shown_of_the_parts_adds_up_to_what_is_shown_of_the_problem(course, records):
    report = score(course, records)
    for each in report.problems:
        parts = report.shown_parts(each)
        assert sum(earned for earned, _ in parts) == report.shown[each.problem.name]
        assert sum(possible for _, possible in parts) == each.possible
        for part, (earned, possible) in zip((*each.groups, *each.costs), parts, strict=True):
            assert abs(earned - part.points) < Fraction(1, 100)
            assert abs(possible - part.possible) < Fraction(2, 100)
            assert part.points != part.possible or earned == possible
            assert part.points != 0 or earned == 0


@some
@given(ANY_RUN, st.data())
def test_mending_one_test_never_costs_points(course, records, data):
    at = data.draw(st.integers(0, len(records) - 1))
    mended = replace(records[at], outcome="passed", unwritten=False)
    if mended.cost:
        ideal = 7 if mended.cost == "calls" else 100
        mended = replace(mended, figure=figure(ideal, ideal, mended.cost))
    before = score(course, records)
    now = score(course, [*records[:at], mended, *records[at + 1 :]])
    for old, new in zip(before.problems, now.problems, strict=True):
        assert new.points >= old.points


@some
@given(ANY_RUN, st.randoms(use_true_random=False))
def test_the_order_of_records_does_not_matter(course, records, random):
    shuffled = random.sample(records, len(records))
    points = [s.points for s in score(course, records).problems]
    assert [s.points for s in score(course, shuffled).problems] == points


@given(st.lists(st.fractions(0, 10, max_denominator=90), max_size=12))
def test_rounded_points_add_up(values):
    cents = rounded(values)
    assert sum(cents) == round(sum(values, Fraction(0)), 2)
    assert all(abs(c - v) < Fraction(1, 100) for c, v in zip(cents, values, strict=True))
    for total in (sum(values) // Fraction(1, 100), -(-sum(values) // Fraction(1, 100))):
        cents = rounded(values, Fraction(total, 100))
        assert sum(cents) == Fraction(total, 100)
        assert all(abs(c - v) < Fraction(1, 100) for c, v in zip(cents, values, strict=True))
