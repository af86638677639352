"""Runs the graded suite on a submission: one record a test."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.grading.course import load_course
from tests.grading.errors import GraderError
from tests.grading.plugin import RECORDS, SEED, SERVER, TESTS
from tests.grading.records import TestRecord
from tests.grading.transport.forkserver import ForkServer
from tests.grading.walls import WALLS

_QUIET = ("-o", "addopts=", "-p", "no:terminal", "--continue-on-collection-errors")


@dataclass
class Outcome:
    """What a run of the suite leaves: records, and the faults of the suite itself, a line each."""

    records: list[TestRecord] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    seed: int | None = None  # None in official grading: the inputs come from the term's secret
    notes: tuple[str, ...] = ()  # on the files handed in
    walls: dict[str, str] = field(default_factory=dict)  # name: "" if it stood, else why not


def run(
    submission: str | Path,
    *,
    problems: Iterable[str] | None = None,
    isolated: bool = True,
    server: ForkServer | None = None,
    seed: int | None = None,
    student: str | None = None,
    costs_only: bool = False,
    on_start: Callable[[int], None] = lambda number_of_tests: None,
    on_test: Callable[[str], None] = lambda test: None,
) -> Outcome:
    """Grade a tree.

    Args:
        submission: "solutions", "assignment" or a path; isolated also an archive.
        problems: names of problems; all of tests/course.toml when None.
        isolated: run the submission in child processes, as official grading does.
        server: where they come from; closed at the end. A new one when None.
        seed: of the inputs; fresh when None.
        student: whose answers are graded; a file of answers says it when None.
        costs_only: leave out the tests of correctness.
        on_start, on_test: called with the number of tests, and with each finished test.
    """
    names = load_course(TESTS / "course.toml").problems if problems is None else problems
    files = [str(file) for name in names for file in test_files(name)]
    arguments = [*_QUIET, f"--rootdir={TESTS.parent}", f"--submission={submission}"]
    arguments += [] if student is None else [f"--student={student}"]
    arguments += ["-m", "cost"] if costs_only else []
    if not isolated:
        return _run_pytest(arguments, files, _Watcher(None, on_start, on_test), seed)
    with contextlib.closing(server or ForkServer()) as server:
        notes = server.take(submission)
        arguments += ["--isolated", "--capture=no"]
        outcome = _run_pytest(arguments, files, _Watcher(server, on_start, on_test), seed)
        spoilt = [record.test for record in outcome.records if record.outcome == "grader error"]
        if spoilt:  # by the grader, not failed: a second try hides nothing
            tests = [str(TESTS.parent / test) for test in spoilt]
            second = _run_pytest(arguments, tests, _Watcher(server), outcome.seed)
            outcome.records = _replaced(outcome.records, second.records)
        outcome.notes = notes
        with contextlib.suppress(GraderError):  # told by the records already
            outcome.walls = {wall: server.missing_walls.get(wall, "") for wall in WALLS}
        return outcome


def _run_pytest(
    arguments: list[str], tests: list[str], watcher: _Watcher, seed: int | None
) -> Outcome:
    if not tests:
        return Outcome(seed=seed)
    for name in ("PYTEST_ADDOPTS", "PYTEST_PLUGINS"):  # what is graded is not the shell's to say
        os.environ.pop(name, None)
    arguments = arguments + ([] if seed is None else [f"--seed={seed}"])
    status = pytest.main([*arguments, *tests], plugins=[watcher])
    if status == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        watcher.outcome.faults.append(f"pytest stopped early: {pytest.ExitCode(status).name}")
    return watcher.outcome


def _replaced(records: list[TestRecord], later: list[TestRecord]) -> list[TestRecord]:
    """The records, with what came of a test when it was run again in its place."""
    again = {record.test: record for record in later}
    return [again.get(record.test, record) for record in records]


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
        on_start: Callable[[int], None] = lambda number_of_tests: None,
        on_test: Callable[[str], None] = lambda test: None,
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
