"""From test records to points: a pure function in exact fractions, no file and no clock.

A correctness group earns weight / Σ weights × correctness share × points when it has tests and
all passed; a cost earns its share by tier (see `tiers`), the worst of its figures counting. While
the first group, the gate, does not pass, the problem earns nothing; a file of answers has no gate.
A fault of the grader's own is never charged in silence: it makes the problem's points provisional.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from tests.grading.course import Course, Problem
from tests.grading.needs import with_needs
from tests.grading.next_step import find_next_step
from tests.grading.records import TestRecord
from tests.grading.report import CostScore, Failure, GroupScore, ProblemScore, Report, Run
from tests.grading.tiers import Tier, is_amount, ratio, tier
from tests.grading.wording import plural

NOTHING = Fraction(0)


def score(
    course: Course,
    records: Sequence[TestRecord],
    run: Run | None = None,
    *,
    problems: Collection[str] | None = None,
    faults: Sequence[str] = (),
) -> Report:
    """Points for every problem of the course, or for `problems` alone, in the course's order.

    Args:
        records: one for each test that ran, in any order.
        run: what was graded and how, for the reports.
        problems: names of the problems that were asked for. One without records is listed with
            0 points, provisionally, and says "no tests ran".
        faults: the grader's own faults that no record tells, one line each.
    Raises:
        ValueError: `problems` names one that the course does not have.
    """
    if unknown := sorted(set(problems or ()) - set(course.problems)):
        known = ", ".join(course.problems) or "none"
        raise ValueError(f"problems: no {unknown[0]!r} in the course, expected some of: {known}")
    chosen = [p for p in course.problems.values() if problems is None or p.name in problems]
    strangers = sorted({r.problem for r in records} - {p.name for p in chosen})
    lost = [f"tests ran for {name!r}, which is no problem of this run" for name in strangers]
    scores = [_score_problem(p, [r for r in records if r.problem == p.name]) for p in chosen]
    scores = with_needs(course, scores)
    run = run or Run()
    return Report(course, run, tuple(scores), (*faults, *lost), find_next_step(scores, run))


def _score_problem(problem: Problem, records: list[TestRecord]) -> ProblemScore:
    records = [_blame_the_grader(problem, record) for record in records]
    gate = _gate(problem, records)
    groups = [_score_group(problem, name, records, gate) for name in problem.groups]
    costs = [_score_cost(problem, name, records, gate) for name in problem.costs]
    failures = _failures(records)
    faults = _faults(records, [*groups, *costs])
    points = sum((part.points for part in (*groups, *costs)), NOTHING)
    return ProblemScore(
        problem=problem,
        status=_status(points, problem.points, failures, faults),
        points=points,
        at_most=_at_most(problem, records),
        groups=tuple(groups),
        costs=tuple(costs),
        failures=failures,
        faults=faults,
        records=tuple(records),
    )


def _gate(problem: Problem, records: list[TestRecord]) -> str:
    """The state of the problem's gate; one without a gate stands open."""
    if problem.gate is None:
        return "passed"
    return _state([r for r in records if r.group == problem.gate])


def _score_group(problem: Problem, name: str, records: list[TestRecord], gate: str) -> GroupScore:
    tests = [r for r in records if r.group == name]
    state = _state(tests)
    possible = problem.group_points(name)
    return GroupScore(
        name=name,
        is_gate=name == problem.gate,
        weight=problem.groups[name],
        state=state,
        passed=sum(r.outcome == "passed" for r in tests),
        tests=len(tests),
        points=possible if gate == state == "passed" else NOTHING,
        possible=possible,
    )


def _score_cost(problem: Problem, name: str, records: list[TestRecord], gate: str) -> CostScore:
    tests = [r for r in records if r.cost == name]
    worst = min(tests, key=_rank, default=None)
    figure = worst.figure if worst else None
    possible = problem.cost_points(name)
    return CostScore(
        name=name,
        counted_by=problem.costs[name].counted_by,
        share=problem.costs[name].share,
        state=_state(tests),
        tests=len(tests),
        figure=figure,
        tier=tier(figure.got, figure.ideal) if figure else None,
        points=possible * _earned(worst) if worst and gate == "passed" else NOTHING,
        possible=possible,
    )


def _earned(record: TestRecord) -> Fraction:
    """The share of a cost that one of its tests earns.

    A cost test measures last, and then fails only for the figure. So one that failed without a
    figure, or with a perfect one, failed because the output was wrong.
    """
    if record.figure is None or record.outcome == "grader error":
        return NOTHING
    reached = tier(record.figure.got, record.figure.ideal)
    wrong_output = record.outcome == "failed" and reached is Tier.FULL
    return NOTHING if wrong_output else reached.share


def _rank(record: TestRecord) -> tuple:
    """Orders cost tests from the worst: least earned, then no figure, then the largest multiple."""
    figure = record.figure
    multiple = ratio(figure.got, figure.ideal) if figure else None
    return _earned(record), figure is not None, -(multiple or 0)


def _state(tests: list[TestRecord]) -> str:
    failed = [r for r in tests if r.outcome == "failed"]
    if failed:
        return "unwritten" if all(r.unwritten for r in failed) else "failed"
    if any(r.outcome == "grader error" for r in tests):
        return "grader error"
    return "passed" if tests else "no tests"


def _status(points: Fraction, possible: Fraction, failures: Sequence[Failure], faults) -> str:
    if faults:
        return "grader error"
    if points == possible:
        return "full"
    if points > 0:
        return "partial"
    return "not started" if all(failure.unwritten for failure in failures) else "failing"


def _at_most(problem: Problem, records: list[TestRecord]) -> Fraction:
    """The points if every test that the grader spoilt, or did not run, were perfect."""
    judged = [r for r in records if r.outcome != "grader error"]
    if _gate(problem, judged) not in ("passed", "no tests"):
        return NOTHING
    most = NOTHING
    for name in problem.groups:
        clean = _state([r for r in judged if r.group == name]) in ("passed", "no tests")
        most += problem.group_points(name) * clean
    for name in problem.costs:
        shares = [_earned(r) for r in judged if r.cost == name]
        most += problem.cost_points(name) * min(shares, default=Fraction(1))
    return most


def _blame_the_grader(problem: Problem, record: TestRecord) -> TestRecord:
    """The record, as a grader error where the suite or the course file is what is wrong."""
    fault = _fault(problem, record)
    return replace(record, outcome="grader error", message=fault) if fault else record


def _fault(problem: Problem, record: TestRecord) -> str:
    figure = record.figure
    if record.outcome not in ("passed", "failed", "grader error"):
        return f"outcome {record.outcome!r} is none that can be graded"
    if (record.group is None) == (record.cost is None):
        return "the test needs a group or a cost, and only one of them"
    if record.group is not None and record.group not in problem.groups:
        return f"the course file has no group {record.group!r} for {problem.name}"
    if record.cost is None:
        return ""
    if record.cost not in problem.costs:
        return f"the course file has no cost {record.cost!r} for {problem.name}"
    if figure is None:
        return "the cost test passed and measured nothing" if record.outcome == "passed" else ""
    if not is_amount(figure.ideal):
        return f"the ideal of cost {record.cost!r} is {figure.ideal}"
    counted_by = problem.costs[record.cost].counted_by
    if figure.counted_by != counted_by:
        return f"cost {record.cost!r} is counted by {figure.counted_by}, not by {counted_by}"
    return ""


def _failures(records: list[TestRecord]) -> tuple[Failure, ...]:
    failed = _worst_first([r for r in records if r.outcome == "failed"])
    return tuple(
        Failure(
            message=message,
            details=same[0].details,
            tests=tuple(r.test for r in same),
            unwritten=same[0].unwritten,
            finding=same[0].finding,
        )
        for message, same in _by_message(failed)
    )


def _worst_first(records: list[TestRecord]) -> list[TestRecord]:
    """The records as they came, but those of each cost from the worst on: its figure is shown."""
    ranked = {
        cost: iter(sorted((r for r in records if r.cost == cost), key=_rank))
        for cost in {r.cost for r in records if r.cost is not None}
    }
    return [r if r.cost is None else next(ranked[r.cost]) for r in records]


def _faults(records: list[TestRecord], parts: list[GroupScore | CostScore]) -> tuple[str, ...]:
    if not records:
        return ("no tests ran",)
    spoilt = [r for r in records if r.outcome == "grader error"]
    lines = [f"{message} ({_tests(same)})" for message, same in _by_message(spoilt)]
    empty = [part for part in parts if part.state == "no tests"]
    kind = {GroupScore: "group", CostScore: "cost"}
    return (*lines, *(f"no tests ran for {kind[type(part)]} {part.name!r}" for part in empty))


def _tests(records: list[TestRecord]) -> str:
    others = len(records) - 1
    return records[0].test + (f" and {plural(others, 'more test')}" if others else "")


def _by_message(records: Iterable[TestRecord]) -> list[tuple[str, list[TestRecord]]]:
    """Records with the same message together, in the order in which the messages first came."""
    found: dict[str, list[TestRecord]] = {}
    for record in records:
        found.setdefault(record.message, []).append(record)
    return list(found.items())
