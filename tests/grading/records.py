"""What one graded test leaves behind; points and reports are made from these alone."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Roofline:
    """What places a time under a chip's roofline, beside the times themselves.

    chip: by its name in `provided.lab.CHIPS`. flops: of the task. bytes, ideal_bytes: that the
    submission moves, and that one must. reference_bytes: that the reference moves, where known.
    """

    chip: str
    flops: float
    bytes: float
    ideal_bytes: float
    reference_bytes: float | None = None


@dataclass(frozen=True)
class Figure:
    """One cost: what was counted, beside the ideal (a formula), the reference's and others.

    unit: "s" for seconds, predicted ones; else what was counted. roofline: of some times. note: a
    line on what made it dear, told where it does not earn all.
    """

    name: str
    got: float
    ideal: float
    unit: str
    counted_by: str  # "grader", or "submission" for a counter that runs on the submission's side
    reference: float | None = None
    beside: dict[str, float] = field(default_factory=dict)
    roofline: Roofline | None = None
    note: str = ""


@dataclass(frozen=True)
class Place:
    """A line of the submission that was at work when a test failed."""

    file: str  # from the unit's folder on: "attention/kv_cache.py"
    line: int
    function: str = ""
    source: str = ""  # the line itself


@dataclass(frozen=True)
class Finding:
    """A failure taken apart, as far as that can be done honestly; what is not known is empty."""

    what: str = ""  # was looked at: "keys", "k of KVCache.append"
    where: str = ""  # the first difference, by axis name: "row 0, token 3"
    expected: str = ""
    got: str = ""
    note: str = ""  # how far off: "2 of 3 elements are off"
    place: Place | None = None


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
    finding: Finding | None = None  # None where the test passed, or nothing is known but a message
