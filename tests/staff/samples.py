"""A small course and records of made-up runs, for the tests of points and reports."""

from __future__ import annotations

from pathlib import Path

from tests.grading.course import Course, load_course
from tests.grading.records import Figure, TestRecord

COURSE = """
title = "A small course"

[units.attention]
title = "Attention"
due = 2027-02-12

[units.extras]
title = "Extras"

[problems."extras.pruning"]
title = "Pruning"
track = "elective"
points = 2
handout = "Sparsity"
groups = { masks = 1 }

[problems."attention.cache"]
title = "A cache"
track = "core"
points = 4
handout = "The KV cache"
groups = { append = 3, ragged = 2, rollback = 1 }
costs = { grader = { calls = 0.1 }, submission = { bytes = 0.2 } }

[problems."attention.mask"]
title = "A mask"
track = "core"
points = 3
handout = "Masks"
groups = { causal = 1, window = 1 }
"""


def small_course(folder: Path, text: str = COURSE) -> Course:
    """The course above, or the one in `text`, read from a file."""
    file = folder / "course.toml"
    file.write_text(text, encoding="utf-8")
    return load_course(file)


def figure(got: float, ideal: float = 100, name: str = "bytes", **more) -> Figure:
    counted_by = "grader" if name == "calls" else "submission"
    return Figure(name=name, got=got, ideal=ideal, unit=name, counted_by=counted_by, **more)


def record(
    problem: str,
    part: str,
    outcome: str = "passed",
    message: str = "",
    *,
    measured: Figure | None = None,
    unwritten: bool = False,
    number: int = 0,
    details: str = "",
) -> TestRecord:
    """One test of a group, or of a cost if `part` is "bytes" or "calls"."""
    unit, module = problem.split(".")
    is_cost = part in ("bytes", "calls")
    return TestRecord(
        test=f"tests/{unit}/test_{module}.py::test_{part}[{number}]",
        problem=problem,
        group=None if is_cost else part,
        cost=part if is_cost else None,
        outcome=outcome,
        message=message or ("" if outcome == "passed" else f"{part} went wrong"),
        details=details,
        unwritten=unwritten,
        seconds=0.01,
        figure=measured,
    )


def perfect_run() -> list[TestRecord]:
    """Every test of the small course, passed."""
    return [
        record("extras.pruning", "masks"),
        *(record("attention.cache", "append", number=n) for n in range(3)),
        record("attention.cache", "ragged"),
        record("attention.cache", "rollback"),
        record("attention.cache", "calls", measured=figure(7, 7, "calls")),
        record("attention.cache", "bytes", measured=figure(104, 100, reference=100)),
        record("attention.mask", "causal"),
        record("attention.mask", "window"),
    ]


def with_(records: list[TestRecord], *changed: TestRecord) -> list[TestRecord]:
    """The records, those of the same test replaced, new ones added."""
    names = {r.test for r in changed}
    return [r for r in records if r.test not in names] + list(changed)
