"""One candidate on trial: a copy of `solutions/` with one file changed, and pytest run on it."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import shutil
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from tests.grading import plugin, submission
from tests.grading.errors import SubmissionError

from .killers import test_of
from .wrong_and_right import Candidate

FINISHED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)


def warm_up(modules: Iterable[str] = ()) -> None:
    """Import, before any fork, what every trial needs; later also what a first one imported."""
    import beartype  # noqa: F401
    from einops import rearrange

    import assignment.provided.models  # noqa: F401

    rearrange(torch.zeros(1), "n -> n")  # einops looks for torch at its first use
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


def hold(candidate: Candidate, root: Path, folder: Path, seed: int) -> dict:
    """Run a candidate's tests in this process, which is good for nothing else afterwards.

    Returns, as plain data, the records; `trouble`: why there is no verdict (mostly ""); and
    `imported`: the installed modules that had to be imported, for `warm_up`.
    """
    known = set(sys.modules)
    torch.set_num_threads(1)  # threads that the parent may have do not survive a fork
    gc.freeze()  # what the parent imported stays out of every collection, and pytest makes many
    unit, module = candidate.problem.split(".")
    tree = folder / "tree"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(root / "solutions", tree, ignore=ignore)
    (tree / candidate.target).write_text(candidate.source, encoding="utf-8")
    if broken := _does_not_load(candidate, tree):
        return {"records": [], "trouble": broken, "imported": []}
    watcher = _Watcher(candidate.loses == "correctness", candidate.killer)
    arguments = [
        str(root / "tests" / unit / f"test_{module}.py"),
        *(f"--rootdir={root}", f"--submission={tree}", f"--seed={seed}"),
        *("-o", f"cache_dir={folder / 'cache'}", f"--basetemp={folder / 'tmp'}"),
        *("-q", "--tb=short", "--color=no", "--disable-plugin-autoload", "--disable-warnings"),
        *(["-x"] if watcher.correctness_only else []),
    ]
    status = pytest.main(arguments, plugins=[watcher])
    trouble = watcher.trouble
    if not trouble and status not in FINISHED:
        trouble = f"pytest stopped with {pytest.ExitCode(status).name}"
    records = [asdict(record) for record in watcher.records]
    return {"records": records, "trouble": trouble, "imported": _imported(known)}


def _imported(known: set[str]) -> list[str]:
    installed = tuple(sysconfig.get_path(kind) for kind in ("stdlib", "purelib", "platlib"))
    new = [(name, module) for name, module in sys.modules.items() if name not in known]
    return [name for name, module in new if (_file(module) or "").startswith(installed)]


def _file(module: object) -> str | None:
    return getattr(getattr(module, "__spec__", None), "origin", None)


def _does_not_load(candidate: Candidate, tree: Path) -> str:
    """A file whose import fails loses every test; that would prove nothing about the suite."""
    if not candidate.target.endswith(".py"):
        return ""
    submission.install(tree)
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    try:
        for node in ast.parse(candidate.source).body:
            if isinstance(node, kinds):
                submission.resolve(candidate.problem, node.name)
    except SubmissionError as error:
        return f"the file does not load: {error}"
    return ""


class _Watcher:
    """Follows a run from inside: chooses its tests, takes its records."""

    def __init__(self, correctness_only: bool, first: str):
        self.correctness_only, self.first = correctness_only, first
        self.records = []
        self.trouble = ""

    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.trouble = f"{report.nodeid} does not load"

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.correctness_only:
            items[:] = [item for item in items if item.get_closest_marker("group")]
            items.sort(key=lambda item: test_of(item.nodeid) != self.first)
        if not items:
            self.trouble = self.trouble or "there are no tests to run"

    def pytest_sessionfinish(self) -> None:
        self.records = self._config.stash.get(plugin.RECORDS, [])
