"""The grader's end of the zygote: start it, ask for a child, end a child.

A child serves a problem's tests one after the other as long as they pass, or stop at what is not
written yet: a fork and the loading of a file take longer than most tests. After any other failure
the next test gets a fresh child, which is already forked and has loaded the file by then.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tests.grading.course import load_course
from tests.grading.errors import GraderError, ServerDied
from tests.grading.intake import stage
from tests.grading.submission import REPOSITORY, locate
from tests.grading.walls import clean_up_after, limits

_BOOT = """
import sys
sys.path.insert(0, {root!r})
from tests.grading.transport.zygote import main
main({descriptor}, {folder!r})
"""
SECRET = "GRADING_SECRET"  # names the term's secret, which makes the inputs of official grading
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
_KEPT = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # some Pythons do not start without
_MOST_STARTS = 3  # of a zygote in one run: more deaths are no accident


@dataclass
class Child:
    """A forked process with a submission in it."""

    number: int
    connection: socket.socket
    output: BinaryIO
    module: str  # which it has loaded, or runs the kernels of; "" for none
    used: bool = False  # by an earlier test

    def close(self) -> None:
        """Give up our ends of it."""
        self.connection.close()
        self.output.close()

    def printed(self, limit: int = 2000) -> str:
        """The end of what the submission wrote to stdout and stderr."""
        start = max(0, self.output.seek(0, os.SEEK_END) - limit)
        self.output.seek(start)
        text = self.output.read(limit).decode(errors="replace")
        return f"[…] {text}" if start else text

    def forget_printed(self) -> None:
        os.truncate(self.output.fileno(), 0)


def _environment() -> dict[str, str]:
    """Nothing of the grader's: neither the term's secret nor what else its shell holds."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return kept | _ONE_THREAD | {"PATH": os.defpath, "LANG": "C.UTF-8"}


class ForkServer:
    """Owns one zygote. It starts at once and is waited for at the first fork.

    Importing this module is cheap, so that a zygote can start before the grader imports torch.
    """

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fast-inference-"))  # the server's own
        self.tree = self.folder / "tree"  # the submission's files, which the caller puts there
        for folder in (self.folder, self.tree, self.folder / "scratch"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)  # other users must pass, whatever the umask
        self.shown: str | None = None  # what messages call the tree; by default what it is
        self._distrusted: set[str] = set()  # modules whose children serve one test only
        self._numbers = itertools.count(1)
        self._starts = 0
        self._start()

    def _start(self) -> None:
        self._starts += 1
        self._control, theirs = socket.socketpair()
        boot = _BOOT.format(
            root=str(REPOSITORY), descriptor=theirs.fileno(), folder=str(self.folder)
        )
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", boot],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is the grader's: it ends the zygote, that its children
            env=_environment(),
        )
        theirs.close()
        self._replies = self._control.makefile("r")
        self._missing_walls: dict[str, str] | None = None
        self._idle: Child | None = None  # has served a test
        self._spare: Child | None = None  # fresh
        self._lab: Child | None = None  # without a submission, given back

    def take(self, submission: str | Path) -> tuple[str, ...]:
        """Put what is the student's into the tree; lines about what was left out or is missing."""
        path = locate(submission)
        if not path.exists():
            self.shown = str(submission)
            return (f"there is no {submission}",)
        staged = stage(path, self.tree, load_course(REPOSITORY / "tests" / "course.toml"))
        self.shown = str(Path(submission).parent / staged.shown)
        return staged.notes

    @property
    def missing_walls(self) -> dict[str, str]:
        """The walls that do not stand on this machine, and why."""
        if self._missing_walls is None:
            self._missing_walls = self._reply()["missing walls"]
        return self._missing_walls

    def as_shown(self, text: str) -> str:
        """The text with the submission's paths as its author knows them."""
        return text if self.shown is None else text.replace(str(self.tree), self.shown)

    def child(self, module: str) -> Child:
        """The last test's child, if it was given back and is of the same module, or a fresh one."""
        if self._process.poll() is not None:
            self._start_again()
        idle, self._idle = self._idle, None
        if idle and idle.module == module:
            return idle
        if idle:
            self.end(idle)
        return self.fork(module)

    def give_back(self, child: Child) -> None:
        """The child did nothing wrong: the problem's next test may have it."""
        if child.module in self._distrusted:
            self.end(child)
            return
        child.used = True
        child.forget_printed()
        self._idle = child

    def distrust(self, child: Child) -> None:
        """It could not forget a test: from now on each test of the module has a fresh child."""
        self._distrusted.add(child.module)
        self.end(child)

    def fork(self, module: str = "") -> Child:
        """A fresh child; if a module is named, it loads `submission.<module>` at once."""
        spare, self._spare = self._spare, None
        if spare and spare.module != module:
            self.end(spare)
            spare = None
        if module:
            child, self._spare = spare or self._fork(module), self._fork(module)
            return child
        return self._fork(module)

    def lab(self, module: str) -> Child:
        """A child without a submission, to run the kernels of a submission's module: the last
        test's, if it was given back and is of the same one, or a fresh one."""
        if self._process.poll() is not None:
            self._start_again()
        lab, self._lab = self._lab, None
        if lab and lab.module == module:
            return lab
        if lab:  # what it has compiled, and keeps, is of no use any more
            self.end(lab)
        return self._fork("")

    def give_back_lab(self, lab: Child, module: str) -> None:
        """Nothing went wrong in it: the module's next test may have it."""
        lab.used, lab.module = True, module
        lab.forget_printed()
        self._lab = lab

    def end(self, child: Child) -> None:
        """Kill the child and all it started, soon."""
        child.close()
        with contextlib.suppress(GraderError):  # a dead zygote is told where it is missed
            self._ask({"end": child.number})

    def how_it_ended(self, child: Child) -> str:
        """End the child and tell how it ended: by itself with a status, or by which signal."""
        self._ask({"status": child.number})
        _ = self.missing_walls  # told before all else
        told = self._reply()
        if told["out of memory"]:
            return f"it needed more than {limits.MEMORY_TOGETHER / limits.GiB:g} GiB of memory"
        status = told["status"]
        return f"killed by signal {-status}" if status < 0 else f"exit status {status}"

    def close(self) -> None:
        """Let the zygote go; it ends what is still running, and removes `folder`."""
        self._let_go()
        if self._process.returncode:
            clean_up_after(str(self.folder))

    def _let_go(self) -> None:
        for child in filter(None, (self._idle, self._spare, self._lab)):
            child.close()
        self._control.close()
        self._replies.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _start_again(self) -> None:
        if self._starts >= _MOST_STARTS:
            raise ServerDied(f"{self._starts} zygotes have died in this run")
        self._let_go()
        self._start()

    def _fork(self, module: str) -> Child:
        ours, theirs = socket.socketpair()
        number = next(self._numbers)
        # Opened twice: what a child does to its own end (its place, its flags) is not done to ours.
        file = self.folder / f"printed-{number}"
        prints = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
        output = open(file, "r+b", buffering=0)  # noqa: SIM115 — lives as long as the child
        file.unlink()
        child = Child(number, ours, output, module)
        self._ask({"fork": child.number, "module": module}, theirs.fileno(), prints)
        os.close(prints)
        theirs.close()
        return child

    def _ask(self, request: dict, *descriptors: int) -> None:
        """Requests are carried out in order; nobody waits for them, but for `status`."""
        try:
            socket.send_fds(self._control, [json.dumps(request).encode() + b"\n"], descriptors)
        except OSError as error:
            raise self._death() from error

    def _reply(self) -> dict:
        try:
            line = self._replies.readline()
        except ConnectionResetError:
            line = ""
        if not line:
            raise self._death()
        return json.loads(line)

    def _death(self) -> ServerDied:
        return ServerDied(f"the zygote died with status {self._process.wait(timeout=30)}")
