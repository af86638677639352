"""The child's side: carries out the grader's requests on the submission, and keeps its objects."""

from __future__ import annotations

import builtins
import contextlib
import importlib
import os
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from tests.grading import submission
from tests.grading.errors import describe, needs_no_type
from tests.grading.transport import sides
from tests.grading.transport.wire import Blob, Channel, Closed, Codec, WireError
from tests.grading.walls import limits

if TYPE_CHECKING:
    from tests.grading.kernels.running import Labs

CONNECTION = 3  # the child's only descriptor besides the three that all have
MAX_TEXT = 20_000  # characters of a message or traceback


READY = {"ready": True}


def run(
    connection: int, output: int, tree: str, module: str, confine: Callable[[], None]
) -> NoReturn:
    """In a fresh process: wall it in, load the module, if one is named, and serve tests.

    The grader hears READY only when all walls stand; nothing of the submission has run by then.
    """
    os.setsid()
    for descriptor, place in ((output, 1), (output, 2), (connection, CONNECTION)):
        os.dup2(descriptor, place)
    os.closerange(CONNECTION + 1, os.sysconf("SC_OPEN_MAX"))
    for stream in filter(
        None, (sys.stdout, sys.stderr)
    ):  # so that nothing printed is lost in a crash
        stream.reconfigure(line_buffering=True, errors="replace")
    try:
        confine()
        channel = Channel(socket.socket(fileno=CONNECTION))
        sys.dont_write_bytecode = True
        sides.as_in_official_grading()
        submission.install(Path(tree))
        agent = Agent(channel, tree)
        channel.send(READY, [])
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    try:
        if module:
            with contextlib.suppress(BaseException):  # told where it is used
                importlib.import_module(f"{submission.PACKAGE}.{module}")
        while True:
            agent.serve_one()
    except Closed:
        pass
    finally:
        os._exit(0)


class Agent(Codec):
    """Answers requests; while a callback is out, answers the requests that come meanwhile."""

    def __init__(self, channel: Channel, tree: str):
        self._channel, self._tree = channel, tree
        self._objects: list[object] = []
        self._labs: Labs | None = None  # of a child that has no submission

    def serve_one(self) -> None:
        self._answer(*self._channel.receive())

    def _answer(self, request: dict, blob: Blob) -> None:
        blobs: list[bytes] = []
        try:
            operation = getattr(self, f"_do_{request['do']}")
            arguments = {name: self.decode(v, blob) for name, v in request["with"].items()}
            reply = {"value": self.encode(operation(**arguments), blobs)}
        except Closed:
            raise
        except BaseException as error:  # SystemExit and KeyboardInterrupt are the student's too
            reply, blobs = {"error": self._describe(error)}, []
        try:
            self._channel.send(reply, blobs)
        except WireError as error:
            self._channel.send({"error": self._describe(error)}, [])

    # What the grader can ask for.

    def _do_reset(self):
        """A new test: the last one's objects go."""
        self._objects.clear()
        self._labs = None
        sides.as_in_official_grading()
        limits.allow_cpu_for_a_test()

    def _do_call(self, target, args, kwargs):
        return target(*args, **kwargs)

    def _do_watch(self, target, args, kwargs):
        return sides.watch(target, args, kwargs)

    def _do_get(self, target, name):
        return getattr(target, name)

    def _do_item(self, target, key):
        return target[key]

    def _do_len(self, target):
        return len(target)

    def _do_iter(self, target):
        return iter(target)

    def _do_next(self, target):
        return next(target)

    def _do_call_then_spoil(self, target, args, kwargs):
        return sides.call_then_spoil(target, args, kwargs)

    def _do_read_then_spoil(self, target, name):
        return sides.read_then_spoil(target, name)

    def _do_observe(self, target, args, kwargs):
        return sides.observe(target, args, kwargs)

    def _do_count_lines(self, target, args, kwargs):
        return sides.count_lines(target, args, kwargs)

    def _do_grad(self, target, inputs, cotangent):
        return sides.grad_of(target, inputs, cotangent)

    def _do_parameter_grads(self, target, inputs, cotangent):
        return sides.parameter_grads(target, inputs, cotangent)

    def _do_call_with_parameters(self, target, args):
        return sides.call_with_parameters(target, args)

    def _do_kept_bytes(self, holder):
        return sides.kept_bytes(holder)

    def _do_in_lab(self, target, args, send):
        return sides.in_far_lab(target, args, send)

    # What it can ask of a child without a submission.

    def _do_open_lab(self, seed, integer_bits):
        from tests.grading.kernels.running import Labs

        self._labs = self._labs or Labs()
        return self._labs.open(seed, integer_bits)

    def _do_launch(self, sent):
        return self._labs.launch(sent)

    def _do_translate(self, lab, launch, architecture):
        return self._labs.translate(lab, launch, architecture)

    # What only this side can hold.

    def encode_other(self, value):
        if isinstance(value, Callback):
            return {"$": "callback", "id": value.id}
        self._objects.append(value)
        return {"$": "handle", "id": len(self._objects) - 1, "type": type(value).__name__}

    def decode_other(self, kind, message):
        if kind == "handle":
            return self._objects[message["id"]]
        if kind == "name":
            return submission.resolve(message["module"], message["name"])
        if kind == "callback":
            return Callback(self, message["id"])
        return super().decode_other(kind, message)

    def call_back(self, callback: int, args: tuple, kwargs: dict):
        blobs: list[bytes] = []
        request = {
            "callback": callback,
            "args": self.encode(list(args), blobs),
            "kwargs": self.encode(kwargs, blobs),
        }
        self._channel.send(request, blobs)
        while True:
            reply, blob = self._channel.receive()
            if "do" in reply:
                self._answer(reply, blob)
            elif "error" in reply:
                raise _grader_exception(reply["error"])
            else:
                return self.decode(reply["value"], blob)

    def _describe(self, error: BaseException) -> dict:
        kind = type(error)
        builtin = getattr(builtins, kind.__name__, None) is kind
        return {
            "type": kind.__name__,
            "builtin": builtin and issubclass(kind, Exception),
            "plain": needs_no_type(error),
            "message": _cut(_told(error)),
            "trace": _cut(self._trace(error)),
            "of_callback": getattr(error, "_of_callback", None),
        }

    def _trace(self, error: BaseException) -> str:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if frame.filename.startswith(self._tree)]
        return "".join(traceback.format_list(ours))


class Callback:
    """A function of the test, as the submission sees it."""

    def __init__(self, agent: Agent, callback: int):
        self._agent, self.id = agent, callback

    def __call__(self, *args, **kwargs):
        return sides.uncounted(self._agent.call_back)(self.id, args, kwargs)

    def __deepcopy__(self, memo):
        return self  # as a function does: a module with hooks can be copied


def _grader_exception(described: dict) -> Exception:
    kind = getattr(builtins, described["type"], RuntimeError)
    error = (kind if issubclass(kind, Exception) else RuntimeError)(described["message"])
    error._of_callback = described["id"]  # lets the grader raise its own exception again
    return error


def _told(error: BaseException) -> str:
    try:
        return str.__str__(describe(error))
    except BaseException as second:  # a student's __str__ may do anything
        return f"its text cannot be shown: str() raised {type(second).__name__}"


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + " […]"
