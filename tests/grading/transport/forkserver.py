"""The grader's end of the zygote: start it, ask for a child, end a child.

While one test runs, the next one's child is already forked and loads the same file: loading it
takes longer than most tests, and the machine has a second core.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tests.grading.errors import GraderError
from tests.grading.submission import REPOSITORY

_BOOT = """
import sys
sys.path.insert(0, {root!r})
from tests.grading.transport.zygote import main
main({descriptor})
"""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass
class Child:
    """A forked process with a submission in it."""

    pid: int
    connection: socket.socket
    output: BinaryIO

    def printed(self, limit: int = 2000) -> str:
        """The end of what the submission wrote to stdout and stderr."""
        size = self.output.seek(0, os.SEEK_END)
        self.output.seek(max(0, size - limit))
        text = self.output.read(limit).decode(errors="replace")
        return f"[…] {text}" if size > limit else text


class ForkServer:
    """Owns one zygote. It starts at once and is waited for at the first fork.

    Importing this module is cheap, so that a zygote can start before the grader imports torch.
    """

    def __init__(self, tree: Path):
        self._tree = tree
        self._control, theirs = socket.socketpair()
        boot = _BOOT.format(root=str(REPOSITORY), descriptor=theirs.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", boot],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=os.environ | _ONE_THREAD,
        )
        theirs.close()
        self._replies = self._control.makefile("r")
        self._ready = False
        self._spare: tuple[str, Child] | None = None

    def fork(self, module: str = "") -> Child:
        """A fresh child; if a module is named, it loads `submission.<module>` before it is asked."""
        if self._spare and self._spare[0] != module:
            self._drop_spare()
        child = self._spare[1] if self._spare else self._fork(module)
        self._spare = (module, self._fork(module)) if module else None
        return child

    def end(self, child: Child) -> int:
        """Kill the child and all it started; its exit status, negative for a signal."""
        child.connection.close()
        self._control.sendall(json.dumps({"end": child.pid}).encode())
        return self._reply()["status"]

    def close(self) -> None:
        """Let the zygote go; it ends what is still running."""
        self._drop_spare()
        self._control.close()
        self._replies.close()
        self._process.wait(timeout=30)

    def _fork(self, module: str) -> Child:
        if not self._ready:
            self._reply()
            self._ready = True
        ours, theirs = socket.socketpair()
        output = tempfile.TemporaryFile()  # noqa: SIM115 — lives as long as the child
        request = json.dumps({"fork": str(self._tree), "module": module}).encode()
        socket.send_fds(self._control, [request], [theirs.fileno(), output.fileno()])
        theirs.close()
        return Child(self._reply()["pid"], ours, output)

    def _drop_spare(self) -> None:
        if self._spare:
            self.end(self._spare[1])
            self._spare[1].output.close()
            self._spare = None

    def _reply(self) -> dict:
        line = self._replies.readline()
        if not line:
            raise GraderError(f"the zygote died with status {self._process.wait()}")
        return json.loads(line)
