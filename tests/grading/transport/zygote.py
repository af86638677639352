"""A process that has imported everything a submission may need, and forks the children that run it.

It must not start threads or run parallel torch code before a fork: the children would inherit locks
that nobody releases. Requests are JSON lines; a fork request comes with two descriptors, the
child's end of the test's socket and the file for what the submission prints. Only "status" is
answered.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket
from collections.abc import Iterator

from tests.grading.transport import agent
from tests.grading.transport.warm_up import warm_up

PRELOADED = (
    "numpy", "torch", "einops", "jaxtyping", "beartype", "triton", "triton.language",
    "assignment.provided.models", "assignment.provided.lab",
)  # fmt: skip


def main(descriptor: int) -> None:
    """Serve the fork server at the other end of `descriptor` until it goes away."""
    for name in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError):  # Triton exists on Linux only
            importlib.import_module(name)
    warm_up()
    gc.collect()
    gc.freeze()  # keeps the children's collections from copying our pages
    _Zygote(socket.socket(fileno=descriptor)).serve()


class _Zygote:
    def __init__(self, control: socket.socket):
        self._control = control
        self._descriptors: list[int] = []  # received, two for each fork request to come
        self._children: dict[int, int] = {}  # the grader's number of a child: its pid

    def serve(self) -> None:
        for request in self._requests():
            if "fork" in request:
                self._fork(request["fork"], request["tree"], request["module"])
            elif "end" in request:
                self._end(request["end"])
            else:
                reply = {"status": self._end(request["status"])}
                self._control.sendall(json.dumps(reply).encode() + b"\n")
        for number in list(self._children):
            self._end(number)

    def _requests(self) -> Iterator[dict]:
        """One a line, until the grader closes its end. A read may bring several, or a part."""
        text = b""
        while True:
            more, descriptors, _, _ = socket.recv_fds(self._control, 65536, 64)
            if not more:
                return
            self._descriptors += descriptors
            *lines, text = (text + more).split(b"\n")
            yield from map(json.loads, lines)

    def _fork(self, number: int, tree: str, module: str) -> None:
        connection, output, *self._descriptors = self._descriptors
        pid = os.fork()
        if pid == 0:
            self._control.close()
            for descriptor in self._descriptors:
                os.close(descriptor)
            agent.run(socket.socket(fileno=connection), output, tree, module)
        os.close(connection)
        os.close(output)
        self._children[number] = pid

    def _end(self, number: int) -> int:
        """Kill a child with all it started; its exit status, negative for a signal."""
        pid = self._children.pop(number)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)  # before its setsid it leads no group
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
