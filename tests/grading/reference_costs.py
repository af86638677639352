"""The reference's own costs, as multiples of the ideal, to stand beside a student's.

`python -m tests.grading.reference_costs` measures them again (in a full checkout) and writes the
file; a staff test fails when it is out of date.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

FILE = Path(__file__).with_name("reference_costs.json")


BYTES = " (bytes)"  # behind a test's name: those that its roofline tells of


def reference_cost(test: str, ideal: float) -> float | None:
    """The reference's figure in the given test; None where it was never measured."""
    return _times(test, ideal)


def reference_bytes(test: str, ideal: float) -> float | None:
    """The same of the bytes that it moves, where the figure is a time with a roofline."""
    return _times(test + BYTES, ideal)


def measure() -> dict[str, float]:
    """The ratios to the ideal in every cost test, run on the reference in this process."""
    from tests.grading.runner import run  # the runner's plugin reads this module

    outcome = run("solutions", isolated=False, seed=0, costs_only=True)
    figures = {record.test: record.figure for record in outcome.records if record.figure}
    pairs = {test: (figure.got, figure.ideal) for test, figure in figures.items()}
    pairs |= {
        test + BYTES: (figure.roofline.bytes, figure.roofline.ideal_bytes)
        for test, figure in figures.items()
        if figure.roofline
    }
    return {name: round(got / ideal, 4) for name, (got, ideal) in sorted(pairs.items()) if ideal}


def _times(name: str, ideal: float) -> float | None:
    ratio = _load().get(name)
    return None if ratio is None else ratio * ideal


@functools.cache
def _load() -> dict[str, float]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


if __name__ == "__main__":
    FILE.write_text(json.dumps(measure(), indent=1) + "\n")
