"""results.json: the report for machines, in the format that results.schema.json documents."""

from __future__ import annotations

import json
import os
import tempfile
from fractions import Fraction
from pathlib import Path

from tests.grading.records import Figure, Finding, Place, Roofline, TestRecord
from tests.grading.report import (
    CostScore,
    Failure,
    GroupScore,
    NextStep,
    ProblemScore,
    Report,
    Run,
    Total,
)
from tests.grading.tiers import is_amount, ratio
from tests.grading.wording import clean

VERSION = 1  # of the format; a key that is added does not change it
SCHEMA = Path(__file__).with_name("results.schema.json")
LONGEST_MESSAGE = 2_000
LONGEST_DETAILS = 20_000
LONGEST_NAME = 500


def write_json(report: Report, path: Path | str) -> None:
    """Write results.json, making its folder. Nobody ever sees half a file."""
    write_whole(json.dumps(as_data(report), indent=1, allow_nan=False) + "\n", path)


def write_whole(text: str, path: Path | str) -> None:
    """Write beside `path`, then rename: a reader sees the old file or the new one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, 0o644)  # mkstemp's is for the owner alone
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def as_data(report: Report) -> dict:
    """The report as results.json holds it."""
    step = report.next_step
    return {
        "version": VERSION,
        "course": report.course.title,
        **_run(report.run),
        "totals": {
            "core": _total(report.core),
            "electives": _total(report.electives),
            "provisional": report.provisional,
        },
        "faults": [clean(fault, LONGEST_MESSAGE) for fault in report.faults],
        "next_step": None if step is None else _fields(step),
        "problems": [_problem(report, score) for score in report.problems],
    }


def _run(run: Run) -> dict:
    return {
        "submission": _line(run.submission),
        "mode": run.mode,
        "seed": run.seed,
        "started": run.started,
        "seconds": round(run.seconds, 3),
        "versions": dict(run.versions),
        "notes": [_line(note) for note in run.notes],
        "walls": {name: _line(missing) for name, missing in run.walls.items()},
    }


def _total(total: Total) -> dict:
    return {
        "points": _number(total.points),
        "points_exact": str(total.points),
        "possible": _number(total.possible),
    }


def _problem(report: Report, score: ProblemScore) -> dict:
    parts = report.shown_parts(score)
    groups, costs = parts[: len(score.groups)], parts[len(score.groups) :]
    return {
        "name": score.problem.name,
        "title": score.problem.title,
        "unit": score.problem.unit,
        "track": score.problem.track,
        "status": score.status,
        "points": _number(report.shown[score.problem.name]),
        "points_exact": str(score.points),
        "at_most": _number(score.at_most),
        "possible": _number(score.possible),
        "groups": [_group(*pair) for pair in zip(score.groups, groups, strict=True)],
        "costs": [_cost(*pair) for pair in zip(score.costs, costs, strict=True)],
        "failures": [_failure(failure) for failure in score.failures],
        "faults": [clean(fault, LONGEST_MESSAGE) for fault in score.faults],
        "waits_for": [problem.name for problem in score.waits_for],
        "tests": [_test(record) for record in score.records],
    }


def _group(group: GroupScore, shown: tuple[Fraction, Fraction]) -> dict:
    return {
        "name": group.name,
        "gate": group.is_gate,
        "weight": _number(group.weight),
        "state": group.state,
        "points": _number(shown[0]),
        "possible": _number(shown[1]),
        "passed": group.passed,
        "tests": group.tests,
    }


def _cost(cost: CostScore, shown: tuple[Fraction, Fraction]) -> dict:
    return {
        "name": cost.name,
        "counted_by": cost.counted_by,
        "share": float(cost.share),
        "state": cost.state,
        "tier": cost.tier.value if cost.tier else None,
        "points": _number(shown[0]),
        "possible": _number(shown[1]),
        "tests": cost.tests,
        "figure": _figure(cost.figure),
    }


def _figure(figure: Figure | None) -> dict | None:
    if figure is None:
        return None
    return {
        "name": figure.name,
        "unit": figure.unit,
        "counted_by": figure.counted_by,
        "got": _amount(figure.got),
        "ideal": _amount(figure.ideal),
        "ratio": ratio(figure.got, figure.ideal),
        "reference": _amount(figure.reference),
        "beside": {_line(name): _amount(value) for name, value in figure.beside.items()},
        "roofline": _roofline(figure.roofline),
    }


def _roofline(roofline: Roofline | None) -> dict | None:
    if roofline is None:
        return None
    return {"chip": _line(roofline.chip)} | {
        name: _amount(value) for name, value in vars(roofline).items() if name != "chip"
    }


def _failure(failure: Failure) -> dict:
    return {
        "message": clean(failure.message, LONGEST_MESSAGE),
        "unwritten": failure.unwritten,
        "tests": [_line(test) for test in failure.tests],
        "finding": _finding(failure.finding),
    }


def _finding(finding: Finding | None) -> dict | None:
    if finding is None:
        return None
    texts = {k: clean(v, LONGEST_MESSAGE) for k, v in vars(finding).items() if k != "place"}
    return texts | {"place": finding.place and _fields(finding.place)}


def _fields(value: NextStep | Place) -> dict:
    """A dataclass of texts and numbers."""
    return {name: _line(v) if isinstance(v, str) else v for name, v in vars(value).items()}


def _test(record: TestRecord) -> dict:
    return {
        "test": _line(record.test),
        "group": record.group,
        "cost": record.cost,
        "outcome": record.outcome,
        "unwritten": record.unwritten,
        "seconds": round(record.seconds, 4),
        "message": clean(record.message, LONGEST_MESSAGE),
        "details": clean(record.details, LONGEST_DETAILS),
        "figure": _figure(record.figure),
        "finding": _finding(record.finding),
    }


def _number(value: Fraction) -> float:
    return float(round(value, 2))


def _amount(value: float | None) -> float | None:
    """None also for what JSON has no number for: NaN, infinity."""
    return value if value is not None and is_amount(value) else None


def _line(text: str) -> str:
    return clean(text, LONGEST_NAME)
