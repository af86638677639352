"""A small course and records of made-up runs, for the tests of points and reports."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.grading.course import Course, load_course
from tests.grading.records import Figure, Finding, Place, TestRecord
from tests.grading.report import Run

CACHE = "attention.cache"
RUN = Run("assignment", "isolated", 7, "2027-02-11T09:30:00+00:00", 12.3, {"triton": None})
HOSTILE = "</pre><script>alert(1)</script>\x1b[2J\r\nscore: 99 / 99\n\u202e\ud800\x00"

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
    finding: Finding | None = None,
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
        finding=finding,
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


def started():
    """A run with something of everything but a grader error."""
    return with_(
        perfect_run(),
        record(CACHE, "ragged", "failed", "first differs at batch 1: expected 2, got 3"),
        record(CACHE, "rollback", "failed", "truncate is not written yet", unwritten=True),
        record(CACHE, "bytes", "failed", measured=figure(142, reference=101, beside={"cat": 4500})),
        record("attention.mask", "causal", "failed", HOSTILE, details=HOSTILE),
    )


# A course as large as ours will be: seven units, thirty problems.
UNITS = {
    "accounting": "Accounting: metrics, intensity, memory, latency",
    "attention": "Attention and the KV cache",
    "alternatives": "Alternatives to softmax attention",
    "compression": "Compression",
    "speculative": "Speculative decoding",
    "serving": "Serving many requests",
    "kernels": "Kernels",
}
MODULES = [
    "accounting.metrics",
    "accounting.intensity",
    "accounting.memory",
    "accounting.latency",
    "attention.kv_cache",
    "attention.grouped_query",
    "attention.generate",
    "attention.latent",
    "attention.sliding_window",
    "attention.cross_layer",
    "alternatives.linear_attention",
    "alternatives.state_space",
    "alternatives.hybrid",
    "compression.quantization",
    "compression.llm_int8",
    "compression.awq",
    "compression.pruning",
    "compression.distillation",
    "speculative.verification",
    "speculative.prompt_lookup",
    "speculative.medusa",
    "serving.paged_cache",
    "serving.scheduler",
    "serving.engine",
    "kernels.store_kv",
    "kernels.paged_attention",
    "kernels.varlen_attention",
    "kernels.latent_decode",
    "kernels.int8_matmul",
    "kernels.rejection_sampling",
]
STATUSES = ("full", "full", "partial", "failing", "not started", "grader error")


def large_course(folder: Path) -> Course:
    """Thirty problems in seven units; two in seven are electives."""
    lines = ['title = "Fast LLM Inference"']
    for unit, title in UNITS.items():
        lines += [f"[units.{unit}]", f'title = "{title}"', "due = 2027-02-12"]
    for i, name in enumerate(MODULES):
        title = name.partition(".")[2].replace("_", " ").capitalize()
        lines += [
            f'[problems."{name}"]',
            f'title = "{title}"',
            f'track = "{"elective" if i % 7 in (4, 6) else "core"}"',
            f"points = {2 + i % 5}",
            f'handout = "{title}"',
            "groups = { first = 3, second = 2, third = 1 }",
            "costs = { grader = { calls = 0.1 }, submission = { bytes = 0.2 } }",
        ]
    return small_course(folder, "\n".join(lines))


def mixed_run() -> list[TestRecord]:
    """Of the large course, with every status a problem can have."""
    return [
        made
        for i, name in enumerate(MODULES)
        for made in _records_of(name, STATUSES[i % len(STATUSES)], i)
    ]


def _records_of(name: str, status: str, seed: int) -> list[TestRecord]:
    beside = {"the textbook form, row by row": 1300.0}
    full = [
        *(record(name, part, number=n) for part in ("first", "second", "third") for n in range(3)),
        record(name, "calls", measured=figure(100, name="calls", reference=100, beside=beside)),
        record(name, "bytes", measured=figure(103, reference=101, beside={"copied": 250})),
    ]
    if status == "not started":
        stub = "run is not written yet"
        return [replace(r, outcome="failed", message=stub, unwritten=True) for r in full]
    if status == "grader error":
        return with_(full, record(name, "second", "grader error", "the oracle broke", number=1))
    if status == "full":
        return full
    part = "first" if status == "failing" else "third"
    place = Place(f"{name.replace('.', '/')}.py", 40 + seed, "run", "return scores @ values")
    wrong = Finding("keys", f"row 1, head {seed}", "0.25", "0.5", "7 of 30 elements are off", place)
    message = f"keys: first differs at row 1, head {seed}: expected 0.25, got 0.5; 7 of 30"
    return with_(
        full,
        record(name, part, "failed", message, finding=wrong, number=1),
        record(name, "bytes", "failed", "142 bytes", measured=figure(142, reference=101)),
    )
