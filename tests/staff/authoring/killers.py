"""Which test caught a mutant the last time: it runs first, so most mutants end in a moment.

It is a hint and no more: where it is missing or old, the other tests follow as ever. Kept in
tests/staff/mutants/killers.json, for mutants that no early test catches; `make mutants
ARGS=--remember` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

EARLY = 10  # tests that are soon run anyhow


def load(root: Path) -> dict[str, dict[str, str]]:
    """Of each problem, mutant -> test, as `test_of` calls it."""
    path = _file(root)
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def test_of(node: str) -> str:
    """A test's name in its file: "TestLoop::test_stop[3]"."""
    return node.partition("::")[2]


def remember(root: Path, problems: Iterable[str], caught: dict[tuple[str, str], str]) -> None:
    """Write down what caught the mutants of these problems: (problem, mutant) -> test."""
    known = load(root)
    for problem in problems:
        known[problem] = {
            mutant: test for (owner, mutant), test in sorted(caught.items()) if owner == problem
        }
    text = json.dumps({name: known[name] for name in sorted(known) if known[name]}, indent=1)
    _file(root).write_text(text + "\n", encoding="utf-8")


def _file(root: Path) -> Path:
    return root / "tests" / "staff" / "mutants" / "killers.json"
