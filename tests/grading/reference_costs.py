"""The reference's own costs, as multiples of the ideal, to stand beside a student's.

`python -m tests.grading.reference_costs` measures them again (in a full checkout) and writes the
file; a staff test fails when it is out of date.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

FILE = Path(__file__).with_name("reference_costs.json")


def reference_ratio(test: str) -> float | None:
    """Reference's figure ÷ ideal in the given test; None where it was never measured."""
    return _load().get(test)


def measure() -> dict[str, float]:
    """The ratios of every cost test, run on the reference in this process."""
    from tests.grading.runner import run  # the runner's plugin reads this module

    outcome = run("solutions", isolated=False, seed=0)
    figures = {record.test: record.figure for record in outcome.records if record.figure}
    return {test: round(f.got / f.ideal, 4) for test, f in sorted(figures.items()) if f.ideal}


@functools.cache
def _load() -> dict[str, float]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


if __name__ == "__main__":
    FILE.write_text(json.dumps(measure(), indent=1) + "\n")
