"""Points, by hand for every rule and by property for any run."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import pytest

from tests.grading.alike import alike
from tests.grading.records import Finding, Place
from tests.grading.report import Run
from tests.grading.scoring import score
from tests.grading.tiers import Tier, describe, tier
from tests.staff.samples import CACHE, figure, perfect_run, record, small_course, with_

# The cache has 4 points: append 1.4, ragged 14/15, rollback 7/15, calls 0.4, bytes 0.8


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return small_course(tmp_path_factory.mktemp("course"))


def of(report, name=CACHE):
    return next(s for s in report.problems if s.problem.name == name)


def after(course, *changed):
    """The cache's score in a run that is perfect but for the records given."""
    return of(score(course, with_(perfect_run(), *changed)))


def test_a_perfect_run_is_full(course):
    report = score(course, perfect_run())
    assert [s.status for s in report.problems] == ["full"] * 3
    assert (report.core.points, report.core.possible) == (7, 7)
    assert (report.electives.points, report.electives.possible) == (2, 2)
    assert report.next_step is None
    assert not report.provisional


def test_one_failed_test_costs_its_group_only(course):
    lost = after(course, record(CACHE, "ragged", "failed"))
    assert lost.status == "partial"
    assert lost.points == lost.at_most == 4 - Fraction(2, 6) * Fraction(7, 10) * 4
    two_of_three = [record(CACHE, "ragged", "failed", number=1), record(CACHE, "ragged", number=2)]
    assert after(course, *two_of_three).points == lost.points


def test_nothing_counts_while_the_gate_fails(course):
    shut = after(course, record(CACHE, "append", "failed", number=2))
    assert (shut.status, shut.points, shut.at_most) == ("failing", 0, 0)
    assert [group.state for group in shut.groups] == ["failed", "passed", "passed"]
    assert [cost.points for cost in shut.costs] == [0, 0]


STEPS = [  # got for an ideal of 100, tier, share of the cost's points
    (90, Tier.FULL, 1),
    (110, Tier.FULL, 1),
    (110.001, Tier.TWO_THIRDS, Fraction(2, 3)),
    (150, Tier.TWO_THIRDS, Fraction(2, 3)),
    (150.001, Tier.ONE_THIRD, Fraction(1, 3)),
    (300, Tier.ONE_THIRD, Fraction(1, 3)),
    (300.001, Tier.TOO_MUCH, 0),
    (89.999, Tier.IMPOSSIBLE, 0),
    (0, Tier.IMPOSSIBLE, 0),
    (-1, Tier.INVALID, 0),
    (math.nan, Tier.INVALID, 0),
    (math.inf, Tier.INVALID, 0),
    (10**400, Tier.INVALID, 0),
    ("100", Tier.INVALID, 0),
]


@pytest.mark.parametrize(("got", "reached", "share"), STEPS)
def test_a_cost_earns_by_tier(course, got, reached, share):
    outcome = "passed" if share == 1 else "failed"
    cache = after(course, record(CACHE, "bytes", outcome, measured=figure(got)))
    cost = cache.costs[1]
    assert (cost.tier, cost.points) == (reached, share * Fraction(8, 10))
    assert cache.points == Fraction(32, 10) + cost.points


def test_an_ideal_of_nothing_is_met_by_nothing_only():
    assert tier(0, 0) is Tier.FULL
    assert tier(1, 0) is Tier.TOO_MUCH


def test_limits_are_compared_exactly():
    assert all(tier(11 * n, 10 * n) is Tier.FULL for n in range(1, 2000))
    assert tier(11 * 10**17 + 1, 10**18) is Tier.TWO_THIRDS


def test_the_worst_of_several_figures_counts(course):
    other = record(CACHE, "bytes", "failed", measured=figure(250), number=1)
    cost = after(course, other).costs[1]
    assert (cost.tests, cost.tier, cost.figure.got) == (2, Tier.ONE_THIRD, 250)
    assert cost.points == Fraction(8, 30)


def test_a_cost_test_that_fails_without_a_figure_earns_nothing(course):
    cost = after(course, record(CACHE, "bytes", "failed", number=1)).costs[1]
    assert (cost.points, cost.tier, cost.state) == (0, None, "failed")


def test_a_perfect_figure_with_a_wrong_output_earns_nothing(course):
    cost = after(course, record(CACHE, "bytes", "failed", measured=figure(100))).costs[1]
    assert cost.wrong_output
    assert cost.points == 0


def test_stubs_are_not_started_and_other_failures_are_failing(course):
    parts = ("append", "ragged", "rollback", "calls", "bytes")
    stubs = [record(CACHE, p, "failed", "append is not written yet", unwritten=True) for p in parts]
    cache = of(score(course, stubs, problems=[CACHE]))
    assert (cache.status, cache.points) == ("not started", 0)
    assert [group.state for group in cache.groups] == ["unwritten"] * 3
    crash = record(CACHE, "ragged", "failed", "KeyError: 'k'", number=1)
    cache = of(score(course, [*stubs, crash], problems=[CACHE]))
    assert (cache.status, cache.groups[1].state) == ("failing", "failed")


def test_equal_messages_are_one_failure_that_counts_its_tests(course):
    broken = [replace(r, outcome="failed", message="line 3: SyntaxError") for r in perfect_run()]
    cache = of(score(course, broken))
    assert [(f.message, len(f.tests)) for f in cache.failures] == [("line 3: SyntaxError", 7)]


def test_a_failure_carries_its_first_tests_finding(course):
    first, second = Finding(got="1"), Finding(got="2")
    records = [
        record(CACHE, "ragged", "failed", "wrong", finding=first),
        record(CACHE, "rollback", "failed", "wrong", finding=second),
    ]
    assert [f.finding for f in after(course, *records).failures] == [first]


def test_failures_that_differ_in_numbers_only_are_alike(course):
    def failing(part, message, number, **finding):
        found = Finding(**finding) if finding else None
        return record(CACHE, part, "failed", message, number=number, finding=found)

    here, there = Place("attention/cache.py", 3), Place("attention/cache.py", 4)
    records = [
        failing("append", "run returned f32[2,1], expected B=2", 0),
        failing("ragged", "run returned bf16[30,1], expected B=30", 0),
        failing("ragged", "ran returned bf16[30,1], expected B=30", 1),
        failing("append", "IndexError: 3", 1, place=here),
        failing("ragged", "IndexError: 4", 2, place=here),
        failing("ragged", "IndexError: 4.5e-3", 3, place=there),
        failing("append", "differs at row 0: expected 1", 2, where="row 0"),
        failing("append", "differs at row 1: expected -2.5", 3, where="row 1"),
        failing("ragged", "differs at row 7: expected 2", 4, where="row 7"),
    ]
    groups = alike(after(course, *records))
    assert [len(same) for same in groups] == [2, 1, 2, 1, 2, 1]


def test_a_grader_error_is_never_charged_in_silence(course):
    report = score(course, with_(perfect_run(), record(CACHE, "ragged", "grader error", "oracle")))
    cache = of(report)
    assert (cache.status, cache.at_most) == ("grader error", 4)
    assert cache.points == 4 - Fraction(14, 15)
    assert "oracle" in cache.faults[0]
    assert report.provisional
    assert report.next_step is None  # there is nothing the student could do


def test_a_figure_from_a_spoilt_test_earns_nothing_yet(course):
    cache = after(course, record(CACHE, "bytes", "grader error", measured=figure(100)))
    assert (cache.points, cache.at_most) == (Fraction(32, 10), 4)


def test_what_a_grader_error_leaves_open_counts_own_failures(course):
    error = record(CACHE, "append", "grader error")
    cache = after(course, error, record(CACHE, "ragged", "failed"))
    assert (cache.points, cache.at_most) == (0, 4 - Fraction(14, 15))
    both = after(course, error, record(CACHE, "append", "failed", number=1))
    assert (both.points, both.at_most) == (0, 0)


def test_a_problem_without_tests_is_listed_and_provisional(course):
    report = score(course, [])
    assert [s.points for s in report.problems] == [0, 0, 0]
    assert [s.faults for s in report.problems] == [("no tests ran",)] * 3
    assert [s.at_most for s in report.problems] == [2, 4, 3]
    assert (report.core.points, report.core.possible, report.next_step) == (0, 7, None)


def test_a_group_or_cost_without_tests_is_the_graders_fault(course):
    records = [r for r in perfect_run() if r.group != "ragged" and r.cost != "calls"]
    cache = of(score(course, records))
    assert cache.faults == ("no tests ran for group 'ragged'", "no tests ran for cost 'calls'")
    assert (cache.points, cache.at_most) == (4 - Fraction(14, 15) - Fraction(4, 10), 4)


MISTAKES = [  # in a suite or a course file
    (record(CACHE, "wrapping"), "no group 'wrapping'"),
    (replace(record(CACHE, "bytes", measured=figure(100)), cost="flops"), "no cost 'flops'"),
    (replace(record(CACHE, "append"), group=None), "a group or a cost"),
    (replace(record(CACHE, "append"), cost="bytes"), "a group or a cost"),
    (record(CACHE, "append", "skipped"), "'skipped'"),
    (record(CACHE, "bytes"), "measured nothing"),
    (record(CACHE, "bytes", measured=figure(1, math.nan)), "ideal of cost 'bytes' is nan"),
    (record(CACHE, "bytes", measured=replace(figure(100), counted_by="grader")), "counted by"),
]


@pytest.mark.parametrize(("mistaken", "named"), MISTAKES, ids=[named for _, named in MISTAKES])
def test_a_mistake_in_the_suite_is_the_graders_fault(course, mistaken, named):
    cache = after(course, mistaken)
    assert cache.status == "grader error"
    assert named in cache.faults[0]
    assert cache.at_most == 4


def test_tests_of_another_problem_are_not_lost(course):
    report = score(course, [*perfect_run(), record("attention.masks", "causal")])
    assert report.provisional
    assert "'attention.masks'" in report.faults[0]
    assert "hidden tests" in score(course, perfect_run(), faults=["hidden tests broken"]).faults[0]


def test_only_the_problems_asked_for_are_scored(course):
    report = score(course, perfect_run()[-2:], problems=["attention.mask"])
    assert [s.problem.name for s in report.problems] == ["attention.mask"]
    assert (report.core.points, report.core.possible) == (3, 3)
    with pytest.raises(ValueError, match=r"attention\.msak.*attention\.mask"):
        score(course, [], problems=["attention.msak"])


def test_the_next_step_is_in_the_core_track_first(course):
    run = Run(submission="assignment", options="--submission assignment")
    failing = [replace(r, outcome="failed", message="wrong") for r in perfect_run()]
    step = score(course, failing, run).next_step
    assert (step.problem, step.file) == (CACHE, "assignment/attention/cache.py")
    assert (step.look_at, step.handout) == ("wrong", 'attention, "The KV cache"')
    assert step.command == ".venv/bin/pytest tests/attention/test_cache.py --submission assignment"
    elective = with_(perfect_run(), record("extras.pruning", "masks", "failed"))
    assert score(course, elective, run).next_step.problem == "extras.pruning"


def test_the_next_step_is_an_unwritten_function_before_a_failure(course):
    crash = record(CACHE, "append", "failed", "crash")
    stub = record(CACHE, "rollback", "failed", "truncate is not written yet", unwritten=True)
    assert score(course, with_(perfect_run(), crash, stub)).next_step.look_at == stub.message
    dear = record(CACHE, "bytes", "failed", "142 bytes", measured=figure(142))
    assert score(course, with_(perfect_run(), dear)).next_step.look_at == "142 bytes"


def test_a_line_says_what_a_figure_earns():
    line = "bytes: 1,420 bytes, 1.42× the ideal of 1,000: two thirds of the points"
    assert describe(figure(1420, 1000)) == line
    assert describe(figure(3, 0)) == "bytes: 3 bytes, the ideal is 0: too much, no points"
    assert "below the possible, no points" in describe(figure(1, 1000))
    assert "nan bytes" in describe(figure(math.nan))
