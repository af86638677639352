"""The process that grades: takes jobs from a pipe, one at a time, and answers on it.

A job is (problems, seed); None cancels the one at hand; the end of the pipe ends the process.
Answers: ("ready",) once, then for each job ("tests", how many), ("test",) as each finishes, and at
last ("report", Report or None if it was cancelled) or ("fault", a line).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from queue import SimpleQueue

from tests.grading.report import Report, Run
from tests.grading.submission import default_tree, find_tree
from tests.grading.transport.forkserver import ForkServer

PATIENCE = 5.0  # seconds for a job to end when it is interrupted


def grade_problems(
    submission: str,
    problems: Sequence[str],
    seed: int,
    server: ForkServer,
    on_start: Callable[[int], None],
    on_test: Callable[[str], None],
) -> Report:
    """The points of these problems alone, as `make grade` gives them."""
    from tests.grading.course import load_course  # slow: torch; the server's process starts first
    from tests.grading.plugin import TESTS
    from tests.grading.runner import run
    from tests.grading.scoring import score

    clock = time.monotonic()
    outcome = run(
        submission,
        problems=problems,
        server=server,
        seed=seed,
        on_start=on_start,
        on_test=on_test,
    )
    about = Run(
        submission=submission,
        mode="isolated",
        seed=outcome.seed,
        seconds=time.monotonic() - clock,
        notes=outcome.notes,
        options="" if find_tree(submission) == default_tree() else f"--submission {submission}",
    )
    course = load_course(TESTS / "course.toml")
    return score(course, outcome.records, about, problems=problems, faults=outcome.faults)


class Worker:
    """Its main thread runs the jobs; another listens, so that a job can be cancelled."""

    def __init__(self, connection: Connection, submission: str):
        self._connection, self._submission = connection, submission
        self._jobs: SimpleQueue = SimpleQueue()
        self._working = False
        signal.signal(signal.SIGINT, self._interrupted)
        threading.Thread(target=self._listen, daemon=True).start()
        self._server = ForkServer()

    def serve(self) -> None:
        """Run jobs until the pipe ends."""
        with contextlib.suppress(OSError):  # the app is gone
            import tests.grading.plugin
            import tests.grading.runner
            import tests.grading.scoring  # noqa: F401 — all that a job needs, before the first

            self._connection.send(("ready",))
            while job := self._jobs.get():
                self._connection.send(self._answer(*job))
        self._server.close()
        os._exit(0)  # to take torch apart takes longer than all of the above

    def _answer(self, problems: Sequence[str], seed: int) -> tuple:
        server = self._server
        # The next run's server starts while this one runs: a save in the middle of it, or just
        # after, need not wait for torch.
        self._server = ForkServer()
        try:
            self._working = True
            report = grade_problems(
                self._submission,
                problems,
                seed,
                server,
                lambda tests: self._connection.send(("tests", tests)),
                lambda test: self._connection.send(("test",)),
            )
            self._working = False
            return ("report", report)
        except KeyboardInterrupt:
            return ("report", None)
        except Exception as error:
            return ("fault", f"{type(error).__name__}: {error}")
        finally:
            self._working = False
            server.close()

    def _listen(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                job = self._connection.recv()
                if job is None:
                    self._interrupt()
                else:
                    self._jobs.put(job)
        self._jobs.put(None)
        self._interrupt()
        time.sleep(PATIENCE)
        os._exit(1)

    def _interrupt(self) -> None:
        """As Ctrl-C does, which pytest knows how to obey."""
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    def _interrupted(self, *_) -> None:
        if self._working:
            self._working = False  # once
            raise KeyboardInterrupt


if __name__ == "__main__":
    Worker(Connection(int(sys.argv[1])), sys.argv[2]).serve()
