"""A file of answers in the reports: its tests are questions, and an open one is not answered."""

from __future__ import annotations

import pytest

from tests.grading.errors import UNANSWERED
from tests.grading.html import render
from tests.grading.scoring import score
from tests.grading.watch.plan import in_order
from tests.grading.watch.session import Session
from tests.staff.samples import RUN, record, small_course
from tests.staff.test_report_html import Page
from tests.staff.test_reports import printed
from tests.staff.test_watch_page import text

SHEET = "accounting.review"
COURSE = f"""
title = "A course"
[units.accounting]
title = "Accounting"
[problems."{SHEET}"]
title = "Questions"
track = "core"
points = 2
handout = "Ten questions"
file = "review.toml"
groups = {{ q1 = 1, q2 = 1, q3 = 1, q4 = 1, q5 = 1 }}
"""


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return small_course(tmp_path_factory.mktemp("course"), COURSE)


def report_of(course, wrong=(), empty=()):
    """A sheet with these questions wrong and these open, the others right."""
    records = [record(SHEET, name) for name in course.problems[SHEET].groups if name not in wrong]
    records = [r for r in records if r.group not in empty]
    records += [record(SHEET, name, "failed", f"{name} a: read 5 as 5") for name in wrong]
    records += [
        record(SHEET, name, "failed", f"{name} {UNANSWERED}", unwritten=True) for name in empty
    ]
    return score(course, records, RUN)


def watched(course, report):
    session = Session(course, in_order(course), seed=7, current=SHEET)
    session.start(now=100.0)
    session.finish(report, "21:04:13")
    return text(session)


COUNTS = [
    (["q2"], [], "1 question not right"),
    ([], ["q4"], "1 question not answered"),
    ([], ["q4", "q5"], "2 questions not answered"),
    (["q2"], ["q4"], "1 question not right, 1 not answered"),
    (["q1", "q2"], ["q4", "q5"], "2 questions not right, 2 not answered"),
]


@pytest.mark.parametrize(("wrong", "empty", "told"), COUNTS)
def test_the_terminal_counts_questions(course, wrong, empty, told):
    shown = printed(report_of(course, wrong, empty))
    assert f"  {SHEET}  {told}" in shown
    assert "like this" not in "\n".join(shown)


@pytest.mark.parametrize(("wrong", "empty", "told"), COUNTS)
def test_so_does_the_watch_where_it_shows_a_wrong_one_of_several(course, wrong, empty, told):
    shown = watched(course, report_of(course, wrong, empty))
    assert (told in shown) == (bool(wrong) and len(wrong) + len(empty) > 1)
    assert "other failure" not in shown


def test_the_page_names_each_open_question(course):
    page = Page(render(report_of(course, ["q2"], ["q4", "q5"])))
    words = " ".join(page.text.split())
    assert "Not answered yet ·q4 1 test ·q5 1 test" in words
    assert "q4 not answered" in words and "q1 1 test" in words
    assert "not written" not in words.lower()
