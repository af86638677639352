"""What one graded test leaves behind; points and reports are made from these alone."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Figure:
    """One cost: what was counted, beside the ideal (a formula), the reference's and others."""

    name: str
    got: float
    ideal: float
    unit: str
    counted_by: str  # "grader", or "submission" for a counter that runs on the submission's side
    reference: float | None = None
    beside: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TestRecord:
    """The outcome of one test. Exactly one of `group` and `cost` is set."""

    __test__ = False  # the name starts with "Test", but pytest has nothing to collect here

    test: str  # "tests/attention/test_kv_cache.py::test_rows_are_apart[6-2]"
    problem: str  # "attention.kv_cache"
    group: str | None
    cost: str | None
    outcome: str  # "passed", "failed" or "grader error"
    message: str  # one short line or a few; empty when passed
    details: str  # traceback and what the submission printed; may be empty
    unwritten: bool  # failed only because a stub raised NotImplementedError
    seconds: float
    figure: Figure | None = None
