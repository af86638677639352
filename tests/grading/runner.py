"""Runs the graded suite on a submission: one record a test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.grading.course import load_course
from tests.grading.plugin import RECORDS, SEED, SERVER, TESTS
from tests.grading.records import TestRecord
from tests.grading.transport.forkserver import ForkServer

_QUIET = ("-o", "addopts=", "-p", "no:terminal", "--continue-on-collection-errors")


@dataclass
class Outcome:
    """What a run of the suite leaves: records, and the faults of the suite itself, a line each."""

    records: list[TestRecord] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    seed: int | None = None  # None in official grading: the inputs come from the term's secret


def run(
    submission: str | Path,
    *,
    problems: Iterable[str] | None = None,
    isolated: bool = True,
    server: ForkServer | None = None,
    seed: int | None = None,
    on_start: Callable[[int], None] = lambda number_of_tests: None,
    on_test: Callable[[str], None] = lambda test: None,
) -> Outcome:
    """Grade a tree.

    Args:
        submission: "solutions", "assignment" or a path.
        problems: names of problems; all of tests/course.toml when None.
        isolated: run the submission in child processes, as official grading does.
        server: where they come from; closed at the end. A new one when None.
        seed: of the inputs; fresh when None.
        on_start, on_test: called with the number of tests, and with each finished test.
    """
    names = load_course(TESTS / "course.toml").problems if problems is None else problems
    files = [str(file) for name in names for file in test_files(name)]
    if not files:
        return Outcome()
    arguments = [*_QUIET, f"--rootdir={TESTS.parent}", f"--submission={submission}"]
    arguments += ["--isolated", "--capture=no"] if isolated else []
    arguments += [] if seed is None else [f"--seed={seed}"]
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # what is graded is not the shell's to say
        os.environ.pop(name, None)
    watcher = _Watcher(server, on_start, on_test)
    status = pytest.main([*arguments, *files], plugins=[watcher])
    if status == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        watcher.outcome.faults.append(f"pytest stopped early: {pytest.ExitCode(status).name}")
    return watcher.outcome


def test_files(problem: str) -> list[Path]:
    """The problem's public test file and, where a course has one, its hidden one."""
    unit, module = problem.split(".")
    places = (TESTS / unit, TESTS / "hidden" / unit)
    return [file for place in places if (file := place / f"test_{module}.py").is_file()]


class _Watcher:
    """Follows the run from inside."""

    def __init__(
        self,
        server: ForkServer | None,
        on_start: Callable[[int], None],
        on_test: Callable[[str], None],
    ):
        self._server, self._on_start, self._on_test = server, on_start, on_test
        self.outcome = Outcome()

    @pytest.hookimpl(tryfirst=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        self._config = config
        if self._server:
            config.stash[SERVER] = self._server

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            last_line = report.longreprtext.strip().splitlines()[-1]
            self.outcome.faults.append(f"{report.nodeid} does not load: {last_line}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._on_start(len(session.items))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._on_test(nodeid)

    def pytest_sessionfinish(self) -> None:
        self.outcome.records = self._config.stash.get(RECORDS, [])
        self.outcome.seed = self._config.stash.get(SEED, None)
