"""A process that has imported everything a submission may need, and forks the children that run it.

It must not start threads or run parallel torch code before a fork: the children would inherit locks
that nobody releases. Requests are JSON lines; a fork request comes with two descriptors, the
child's end of the test's socket and the file for what the submission prints. Unasked, it tells
first which walls are missing; then only "status" is answered.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import socket
from collections.abc import Iterator

from tests.grading.walls import Building  # and nothing large: a process stays behind as it is now

PRELOADED = (
    "numpy", "torch", "einops", "jaxtyping", "beartype", "triton", "triton.language",
    "assignment.provided.models", "assignment.provided.lab", "assignment.provided.serving",
    "tests.grading.transport.agent",
    "tests.grading.kernels.sending", "tests.grading.kernels.running", "triton.compiler",
)  # fmt: skip


def main(descriptor: int, folder: str) -> None:
    """Serve the fork server at the other end of `descriptor` until it goes away.

    Args:
        folder: of the fork server, with `tree` and `scratch` in it; removed at the end.
    """
    building = Building(folder)
    building.try_out()
    control = socket.socket(fileno=descriptor)
    _send(control, {"missing walls": building.missing})
    for name in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):  # Triton exists on Linux only
            importlib.import_module(name)
    importlib.import_module("tests.grading.transport.warm_up").warm_up()
    gc.collect()
    gc.freeze()  # keeps the children's collections from copying our pages
    _Zygote(control, building).serve()
    building.close()


def _send(control: socket.socket, message: dict) -> None:
    with contextlib.suppress(BrokenPipeError):  # the grader is gone, and that ends us soon
        control.sendall(json.dumps(message).encode() + b"\n")


class _Zygote:
    def __init__(self, control: socket.socket, building: Building):
        self._control, self._building = control, building
        self._killed = 0  # processes that needed too much memory, when last asked
        self._descriptors: list[int] = []  # received, two for each fork request to come
        self._children: dict[int, int] = {}  # the grader's number of a child: its pid

    def serve(self) -> None:
        for request in self._requests():
            if "fork" in request:
                self._fork(request["fork"], request["module"])
            elif "end" in request:
                self._end(request["end"])
            else:
                killed = self._building.killed_for_memory()  # by others before, or it just now
                status = self._end(request["status"])
                _send(self._control, {"status": status, "out of memory": killed > self._killed})
                self._killed = killed
        for number in list(self._children):
            self._end(number)

    def _requests(self) -> Iterator[dict]:
        """One a line, until the grader closes its end. A read may bring several, or a part."""
        text = b""
        while True:
            try:
                more, descriptors, _, _ = socket.recv_fds(self._control, 65536, 64)
            except ConnectionResetError:  # gone with something of ours unread
                return
            if not more:
                return
            self._descriptors += descriptors
            *lines, text = (text + more).split(b"\n")
            yield from map(json.loads, lines)

    def _fork(self, number: int, module: str) -> None:
        connection, output, *self._descriptors = self._descriptors
        pid = self._building.fork()
        if pid == 0:
            confine = functools.partial(self._building.confine, number)
            from tests.grading.transport import agent

            agent.run(connection, output, self._building.tree, module, confine)
        os.close(connection)
        os.close(output)
        self._children[number] = pid

    def _end(self, number: int) -> int:
        """Kill a child with all it started; its exit status, negative for a signal."""
        pid = self._children.pop(number, None)
        if pid is None:
            return 0  # ended before
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)  # before its setsid it leads no group
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        while strays := self._building.strays(self._children.values()):
            for stray in strays:  # where no PID namespace has ended them
                os.kill(stray, signal.SIGKILL)
                os.waitpid(stray, 0)
        return status
