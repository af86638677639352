"""report.html as text: what it says, and that it stays small and whole whatever fails."""

from __future__ import annotations

import itertools
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.grading import html
from tests.grading.course import load_course
from tests.grading.html import render, write_html
from tests.grading.records import Finding, Place
from tests.grading.report import Run
from tests.grading.scoring import score
from tests.grading.submission import REPOSITORY
from tests.staff.samples import (
    CACHE,
    HOSTILE,
    RUN,
    figure,
    large_course,
    mixed_run,
    perfect_run,
    record,
    small_course,
    started,
    with_,
)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return small_course(tmp_path_factory.mktemp("course"))


class Page(HTMLParser):
    """Tags, attributes, text and headings of a page; open tags at the end."""

    VOID = ("meta", "rect", "br", "wbr")
    HEADINGS = ("h1", "h2", "h3", "h4", "h5")

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.open, self.text, self.headings = set(), [], [], "", []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag in self.HEADINGS:
            self.headings.append(int(tag[1]))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag
        if tag in ("dt", "dd", "li", "p", "summary") or tag in self.HEADINGS:
            self.text += " "  # what a browser shows on a line of its own

    def handle_data(self, data):
        if self.open[-1:] != ["style"]:
            self.text += data

    @property
    def links(self):
        return [value for name, value in self.attributes if name == "href"]


def page_of(course, *changed, run=RUN, **more):
    return Page(render(score(course, with_(started(), *changed), run, **more)))


def test_the_page_shows_the_run(course):
    page = page_of(course)
    assert page.open == []
    for part in ("A small course", "2.33", "triton not installed", "elective", "seed 7"):
        assert part in page.text
    for part in ("11 February 2027, 09:30 UTC", "due 12 February 2027", "1.42× the ideal"):
        assert part in page.text
    assert "causal is the gate: nothing counts until it passes" in page.text


def test_the_score_of_electives_alone_is_theirs(course):
    page = Page(render(score(course, perfect_run(), problems=["extras.pruning"])))
    assert "2 / 2" in page.text and "0 / 0" not in page.text and "Electives" not in page.text


def test_headings_are_in_order_without_a_gap(course, tmp_path):
    for report in (score(course, started(), RUN), score(large_course(tmp_path), mixed_run(), RUN)):
        headings = Page(render(report)).headings
        assert headings[0] == 1 and headings.count(1) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(headings))


def test_a_failure_shows_expected_got_where_and_how_to_see_it_again(course):
    place = Place("attention/cache.py", 41, "append", "self.k[:, n] = k")
    finding = Finding("keys", "row 0, token 3", "0.25", "0.5", "1 of 6 elements are off", place)
    page = page_of(
        course,
        record(CACHE, "ragged", "failed", "keys: first differs", finding=finding),
        run=replace(RUN, options="--submission assignment"),
    )
    words = " ".join(page.text.split())
    assert "keys: wrong values 1 test of ragged · up to 0.93 points" in words
    assert "where row 0 token 3 expected 0.25 got 0.5 1 of 6 elements are off" in words
    assert "your code attention/cache.py:41 in append self.k[:, n] = k" in words
    again = ".venv/bin/pytest 'tests/attention/test_cache.py::test_ragged[0]'"
    assert f"again {again} --submission assignment --seed 7" in words


def test_the_seed_of_official_inputs_and_the_courses_own_tests_give_no_command(course):
    failed = record(CACHE, "ragged", "failed", "wrong")
    hidden = replace(failed, test="tests/hidden/attention/test_cache.py::test_h", message="odd")
    page = page_of(course, failed, hidden, run=replace(RUN, seed=None))
    assert "--seed" not in page.text
    assert "pytest 'tests/attention/test_cache.py::test_ragged[0]'" in page.text
    assert "pytest tests/hidden" not in page.text


def test_a_failure_of_the_gate_holds_everything_back(course):
    gate = record(CACHE, "append", "failed", "wrong", number=1)
    page = page_of(course, gate)
    assert "1 test of append · up to 4 points" in page.text


def test_many_failures_of_one_kind_are_one_and_more_than_three_are_folded(course):
    kinds = "abcde"
    failed = [
        record(CACHE, "ragged", "failed", f"{kind} failed with {n}", number=10 * ord(kind) + n)
        for kind in kinds
        for n in range(4)
    ]
    page = page_of(course, *failed)
    assert page.text.count("4 tests of ragged") == len(kinds)
    assert "4 more failures" in page.text  # of five kinds, and the two of `started`


def test_what_is_not_written_is_a_line_each(course):
    stub = record(CACHE, "rollback", "failed", "truncate is not written yet", unwritten=True)
    page = page_of(course, replace(stub, finding=Finding(place=Place("attention/cache.py", 90))))
    words = " ".join(page.text.split())
    assert "Not written yet" in words
    assert "truncate attention/cache.py:90 1 test" in words


def test_the_graders_fault_is_told_apart(course):
    spoilt = with_(perfect_run(), record(CACHE, "ragged", "grader error", "<i>broke</i>"))
    html = render(score(course, spoilt, RUN, faults=["<u>lost</u>"]))
    page = Page(html)
    words = " ".join(page.text.split())
    assert "provisional: can become 7" in words
    assert "The grader’s own fault, not yours" in words and "A cache: 3.07 to 4 points" in words
    assert "<i>broke</i>" in page.text and "<u>lost</u>" in page.text
    assert 'class="card problem fault"' in html
    assert "provisional" not in page_of(course).text
    assert "no tests ran" in Page(render(score(course, []))).text
    assert "0" in Page(render(score(course, [], problems=[]))).text


def test_notes_are_shown_when_there_are_any(course):
    run = replace(RUN, notes=("renamed: A.py", *(f"left out: {n}.pyc" for n in range(30))))
    text = page_of(course, run=run).text
    assert "The files handed in" in text and "renamed: A.py" in text
    assert "11 more: results.json has them" in text
    assert "handed in" not in page_of(course).text


@pytest.mark.parametrize(
    ("walls", "line"),
    [
        ({"user": "", "network": ""}, "All walls stood: user, network"),
        ({"user": "", "network": "<b>no</b>"}, "Graded without: network (<b>no</b>)"),
        ({}, None),
    ],
)
def test_walls_are_a_line_at_the_foot(course, walls, line):
    text = page_of(course, run=replace(RUN, walls=walls)).text
    assert line in text if line else "wall" not in text and "Graded without" not in text


def test_points_of_the_parts_are_those_of_the_problem(course, tmp_path):
    large = large_course(tmp_path)
    report = score(large, mixed_run(), RUN)
    for unit in html.view_units(report, ""):
        for problem in unit.problems:
            parts = (*problem.groups, *problem.costs)
            assert round(sum(float(part.points) for part in parts), 2) == float(problem.points)
            whole = round(sum(float(part.possible) for part in parts), 2)
            assert whole == problem.score.possible
            assert sum(piece.width for piece in problem.bar) == pytest.approx(100, abs=0.1)


# The handout.


def test_links_lead_to_the_sections_of_the_handout(course, tmp_path, monkeypatch):
    pdf = tmp_path / "hand out" / "handout.pdf"
    monkeypatch.setattr(html, "HANDOUT", pdf)
    path = tmp_path / "build" / "grade" / "report.html"
    write_html(score(course, started(), RUN), path)
    assert all(link.startswith("#") for link in Page(path.read_text()).links)
    pdf.parent.mkdir()
    pdf.touch()
    write_html(score(course, started(), RUN), path)
    found = {link for link in Page(path.read_text()).links if not link.startswith("#")}
    names = {link.partition("#")[2] for link in found}
    assert names == {f"nameddest={name}" for name in course.problems}
    files = {(path.parent / unquote(link.partition("#")[0])).resolve() for link in found}
    assert files == {pdf}


def test_the_handout_has_a_named_place_for_every_problem():
    pdf = (REPOSITORY / "handout" / "handout.pdf").read_bytes()
    for name in load_course(REPOSITORY / "tests" / "course.toml").problems:
        assert f"({name})".encode() in pdf, f"label the section of {name}: <{name}>"


# Hostile text.


def test_the_page_loads_nothing_and_runs_nothing(course):
    place = Place(HOSTILE, 3, HOSTILE, HOSTILE)
    finding = Finding(*[HOSTILE] * 5, place)
    bad = record(CACHE, "ragged", "failed", HOSTILE, details=HOSTILE, finding=finding)
    cost = record(CACHE, "bytes", "failed", measured=figure(500, beside={HOSTILE: 300}))
    run = Run(HOSTILE, "isolated", 7, HOSTILE, 1.0, {HOSTILE: HOSTILE}, HOSTILE)
    run = replace(run, notes=(HOSTILE,), walls={HOSTILE: HOSTILE})
    text = render(score(course, with_(started(), bad, cost), run, faults=[HOSTILE]))
    page = Page(text)
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe", "object", "embed", "form"}
    assert all(link.startswith("#") for link in page.links)
    names = {name for name, _ in page.attributes}
    assert not [name for name in names if name.startswith("on") or name in ("src", "style")]
    assert "url(" not in text and "@import" not in text and "http:" not in text
    assert "<script>alert(1)</script>" in page.text  # hostile text, shown as text
    assert not {"\x1b", "\u202e", "\x00", "\ud800"} & set(text)


def test_the_page_stays_small_whatever_fails(course):
    huge = "</pre>\u202e<script>" * 7_000_000
    finding = Finding(*["\x1b<&" * 100_000] * 5, Place("f" * 10**6, 1, "g" * 10**6, "s" * 10**6))
    first = record(CACHE, "ragged", "failed", huge, details=huge, finding=finding)
    failed = [
        replace(first, test=f"{first.test}{n}", message=_letters(n), details=huge[:30_000])
        for n in range(10)
    ]
    failed += [replace(failed[0], test=f"t{n}", message=_letters(n)) for n in range(10, 100_000)]
    failed.append(first)
    text = render(score(course, with_(perfect_run(), *failed), RUN))
    assert len(text.encode()) < 2_000_000
    page = Page(text)
    assert page.open == [] and "script" not in page.tags
    assert len(huge) >= 10**8
    assert "more failures for which this page has no room" in page.text


def _letters(number: int) -> str:
    return str(number).translate(str.maketrans("0123456789", "abcdefghij"))


@settings(max_examples=25, deadline=None)
@given(st.text(st.characters(), max_size=80), st.text(st.characters(), max_size=80))
def test_any_text_can_be_shown(course, message, details):
    finding = Finding(details, message, message, details, message, Place(details, 1, "", message))
    bad = record(CACHE, "ragged", "failed", message, details=details, finding=finding)
    wild = record("attention.mask", "window", "grader error", message)
    text = render(score(course, with_(perfect_run(), bad, wild), RUN, faults=[details]))
    assert Page(text).open == []
    text.encode("utf-8")
