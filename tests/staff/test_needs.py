"""Problems that are made of others' answers: who is told what while those are not right."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from tests.grading.html import render
from tests.grading.records import Finding, Place
from tests.grading.results import as_data
from tests.grading.scoring import score
from tests.grading.terminal import print_report
from tests.staff.samples import CACHE, COURSE, RUN, figure, perfect_run, record, small_course, with_

MASK = "attention.mask"
LINE = "needs attention.cache; attention.cache is not right yet: solve it first"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """The mask is made of the cache."""
    handout = 'handout = "Masks"\n'
    text = COURSE.replace(handout, f'{handout}needs = ["{CACHE}"]\n')
    return small_course(tmp_path_factory.mktemp("course"), text)


def mask_fails(message="causal went wrong", **more):
    return record(MASK, "causal", "failed", message, **more)


def stopped_in_the_cache():
    place = Place("attention/cache.py", 41, "append", "raise NotImplementedError")
    message = f"{CACHE}: Cache.append is not written yet"
    return mask_fails(message, finding=Finding(place=place))


def of(report, problem=MASK):
    return next(score for score in report.problems if score.problem.name == problem)


def printed(report):
    file = io.StringIO()
    print_report(report, Console(file=file, width=100))
    return file.getvalue()


def test_a_problem_waits_for_one_that_is_wrong(course):
    wrong = with_(perfect_run(), record(CACHE, "ragged", "failed"), mask_fails())
    report = score(course, wrong, RUN)
    assert of(report).needs == LINE
    assert f"    {LINE}\n    test_causal[0]\n" in printed(report)
    assert LINE in render(report)
    data = {problem["name"]: problem["waits_for"] for problem in as_data(report)["problems"]}
    assert data == {CACHE: [], MASK: [CACHE], "extras.pruning": []}
    assert report.next_step.problem == CACHE


@pytest.mark.parametrize(
    "changed",
    [
        [record(CACHE, "ragged", "failed")],  # the mask is right all the same
        [mask_fails()],  # the mask itself is wrong
        [mask_fails(), record(CACHE, "bytes", "failed", measured=figure(142))],  # only dear
        [mask_fails(), record(CACHE, "ragged", "grader error")],
    ],
)
def test_else_nothing_is_said(course, changed):
    report = score(course, with_(perfect_run(), *changed), RUN)
    assert of(report).needs == "" and of(report).waits_for == ()
    assert "needs" not in printed(report)


def test_stubs_wait_for_nothing(course):
    stubs = [replace(r, outcome="failed", unwritten=True, figure=None) for r in perfect_run()]
    report = score(course, stubs, RUN)
    assert of(report).status == "not started" and of(report).needs == ""


def test_what_was_not_graded_is_said(course):
    report = score(course, [mask_fails(), record(MASK, "window")], RUN, problems=[MASK])
    told = "needs attention.cache, which this run has not graded"
    assert of(report).needs == told and told in printed(report)
    assert report.next_step.problem == MASK


def test_what_stops_a_test_is_wrong_though_it_was_not_graded(course):
    alone = [stopped_in_the_cache(), record(MASK, "window")]
    report = score(course, alone, RUN, problems=[MASK])
    assert of(report).needs == LINE and of(report).status == "failing"
    step = report.next_step
    assert (step.problem, step.file, step.line) == (CACHE, "assignment/attention/cache.py", 41)
    assert step.look_at == f"{MASK} {LINE}" and "tests/attention/test_cache.py" in step.command
    assert step.handout == 'attention, "The KV cache"'


def test_the_next_step_is_what_it_waits_for_even_if_that_is_an_elective(tmp_path):
    handout = 'handout = "Masks"\n'
    text = COURSE.replace(handout, f'{handout}needs = ["extras.pruning"]\n')
    wrong = with_(perfect_run(), record("extras.pruning", "masks", "failed"), mask_fails())
    report = score(small_course(tmp_path, text), wrong, RUN)
    assert report.next_step.problem == "extras.pruning"
    assert report.next_step.look_at == "masks went wrong"
