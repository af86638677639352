"""A process that has imported everything a submission may need, and forks a child for each test.

It must not start threads or run parallel torch code before a fork: the children would inherit locks
that nobody releases. Requests and replies are JSON lines; a fork request carries two descriptors,
the child's end of the test's socket and the file for what the submission prints.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import socket

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
    control = socket.socket(fileno=descriptor)
    children: set[int] = set()
    control.sendall(b'{"ready": true}\n')
    while True:
        text, descriptors, _, _ = socket.recv_fds(control, 65536, 2)
        if not text:
            break
        request = json.loads(text)
        if "fork" in request:
            reply = {"pid": _fork(request["fork"], request["module"], descriptors, control)}
            children.add(reply["pid"])
        else:
            children.discard(request["end"])
            reply = {"status": _end(request["end"])}
        control.sendall(json.dumps(reply).encode() + b"\n")
    for pid in children:
        _end(pid)


def _fork(tree: str, module: str, descriptors: list[int], control: socket.socket) -> int:
    connection, output = descriptors
    pid = os.fork()
    if pid == 0:
        control.close()
        agent.run(socket.socket(fileno=connection), output, tree, module)
    for descriptor in descriptors:
        os.close(descriptor)
    return pid


def _end(pid: int) -> int:
    """Kill a child with all it started; its exit status, negative for a signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):  # before its setsid it leads no group
        os.kill(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
