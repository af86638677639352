"""Trials, a fork each, from a process that has imported everything.

Nothing a file does (a hang, a crash, a changed global) reaches the next one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.grading.records import Figure, Roofline, TestRecord

from . import trial
from .wrong_and_right import Candidate

PATIENCE = 4  # times as long, for what is to pass
BROKEN = 70  # exit status of a fork that failed outside the candidate's tests


@dataclass(frozen=True)
class Settings:
    root: Path
    seed: int = 0
    workers: int = 2
    time_limit: float = 60.0


@dataclass(frozen=True)
class Outcome:
    """What a candidate's tests came to. With `trouble` the run itself ended badly."""

    records: list[TestRecord]
    trouble: str = ""
    died: bool = False  # by a signal, such as a segmentation fault, or at the time limit
    output: str = ""
    seconds: float = 0.0
    imported: tuple[str, ...] = ()


@dataclass
class _Running:
    index: int
    candidate: Candidate
    folder: Path
    started: float

    @property
    def output(self) -> str:
        path = self.folder / "output.txt"
        return path.read_text(errors="replace") if path.exists() else ""


def run_all(
    candidates: list[Candidate],
    settings: Settings,
    on_done: Callable[[Candidate, Outcome], None] = lambda candidate, outcome: None,
) -> list[Outcome]:
    """Outcomes in the order of the candidates, `settings.workers` of them run at a time."""
    waiting = list(enumerate(candidates))[::-1]
    outcomes: dict[int, Outcome] = {}
    running: dict[int, _Running] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as scratch:
        try:
            while waiting or running:
                while waiting and len(running) < settings.workers:
                    index, candidate = waiting.pop()
                    job = _Running(index, candidate, Path(scratch) / str(index), time.monotonic())
                    running[_start(job, settings)] = job
                for pid, outcome in _finished(running, settings):
                    job = running.pop(pid)
                    outcomes[job.index] = outcome
                    shutil.rmtree(job.folder, ignore_errors=True)
                    on_done(job.candidate, outcome)
                time.sleep(0.01)
        finally:
            for pid in running:  # interrupted
                _kill(pid)
                os.waitpid(pid, 0)
    return [outcomes[index] for index in range(len(candidates))]


def _start(job: _Running, settings: Settings) -> int:
    job.folder.mkdir()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(job, settings)
    with contextlib.suppress(OSError):  # the child does it too: whoever comes first
        os.setpgid(pid, pid)
    return pid


def _child(job: _Running, settings: Settings) -> None:
    """Never returns: what the parent has on its stack must not run twice."""
    status = BROKEN
    try:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)
        signal.alarm(int(_limit(job.candidate, settings)) + 10)  # should the parent be gone by then
        _redirect(job.folder / "output.txt")
        result = trial.hold(job.candidate, settings.root, job.folder, settings.seed)
        draft = job.folder / "result.draft"
        draft.write_text(json.dumps(result))
        draft.replace(job.folder / "result.json")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _redirect(file: Path) -> None:
    out = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, out), (2, out)):
        os.dup2(source, target)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def _finished(running: dict[int, _Running], settings: Settings) -> Iterator[tuple[int, Outcome]]:
    for pid, job in list(running.items()):
        seconds = time.monotonic() - job.started
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _kill(pid)  # what it may have left running
            yield pid, _outcome(job, os.waitstatus_to_exitcode(status), seconds)
        elif seconds > (limit := _limit(job.candidate, settings)):
            _kill(pid)
            os.waitpid(pid, 0)
            trouble = f"no end within {limit:g} s"
            yield pid, Outcome([], trouble, True, job.output, seconds)


def _limit(candidate: Candidate, settings: Settings) -> float:
    """What has to pass every test takes longer than what fails at one."""
    return settings.time_limit * (1 if candidate.loses == "correctness" else PATIENCE)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _outcome(job: _Running, code: int, seconds: float) -> Outcome:
    if code < 0:
        trouble = f"crashed with {signal.Signals(-code).name}"
        return Outcome([], trouble, True, job.output, seconds)
    file = job.folder / "result.json"
    if not file.exists():
        return Outcome([], f"the process left with status {code}", False, job.output, seconds)
    result = json.loads(file.read_text())
    records = [_record(data) for data in result["records"]]
    imported = tuple(result["imported"])
    return Outcome(records, result["trouble"], False, job.output, seconds, imported)


def _record(data: dict) -> TestRecord:
    figure = data.pop("figure")
    if figure and figure["roofline"]:
        figure["roofline"] = Roofline(**figure["roofline"])
    return TestRecord(**data, figure=Figure(**figure) if figure else None)
