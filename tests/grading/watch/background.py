"""The worker, as the app sees it: a process that takes a job at a time and tells how it goes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from multiprocessing import Pipe

from tests.grading.submission import REPOSITORY

PATIENCE = 8.0  # seconds for the worker to end in order: it ends the zygote and the children, too


class Background:
    """Owns one worker process. It starts at once; jobs wait until it is ready."""

    def __init__(self, submission: str):
        self._connection, theirs = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 — lives as long as the worker
        # a session of its own: what the terminal sends to the job does not reach it
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.grading.watch.worker", str(theirs.fileno()), submission],
            cwd=REPOSITORY,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
        )
        theirs.close()

    def fileno(self) -> int:
        """Readable when `receive` has something."""
        return self._connection.fileno()

    def receive(self) -> tuple:
        """The next message (see worker). EOFError or OSError when the worker is gone."""
        return self._connection.recv()

    def run(self, problems: tuple[str, ...], seed: int) -> None:
        """Hand over a job: these problems' tests."""
        self._tell((problems, seed))

    def cancel(self) -> None:
        """End the job at hand, if there is one."""
        self._tell(None)

    def last_words(self) -> str:
        """The last line that the worker printed: why it died."""
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the worker ended with status {self._process.poll()}"

    def close(self) -> None:
        """End the worker and all that it started."""
        self._connection.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._log.close()

    def _tell(self, message: object) -> None:
        with contextlib.suppress(OSError):  # `receive` tells that it is gone
            self._connection.send(message)
