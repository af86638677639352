"""What a test holds in isolated mode: names and handles; every use is a request to the child."""

from __future__ import annotations

import builtins
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from tests.grading.errors import GraderError, ServerDied, SubmissionError, SubmissionTimeout
from tests.grading.submission import PACKAGE
from tests.grading.transport.agent import READY
from tests.grading.transport.forkserver import Child, ForkServer
from tests.grading.transport.wire import Blob, Channel, Closed, Codec, TooSlow, WireError

__tracebackhide__ = True  # a failing test's traceback ends in the test

MAX_LENGTH = 2**20  # of an object of the submission: a test may make a list of that length
MAX_RAISED = 100  # exceptions of a test's own functions in one test
MAX_CALLBACK = 2**22  # bytes of tensors: the grader has to compute with them
RESET = 5.0  # seconds for a child to forget a test
PATIENCE = 120.0  # seconds for a child to be there, the zygote's own start included

_current: Session | None = None


def begin(server: ForkServer, time_limit: float, module: str = "") -> None:
    """Start a test of `submission.<module>`: its first use of the submission needs a child."""
    global _current
    _current = Session(server, time_limit, module)


def end(keep: bool = False) -> None:
    """End the test. Its child is killed, or kept for the next test of the module, if asked to."""
    global _current
    session, _current = _current, None
    if session:
        session.close(keep)


def printed() -> str:
    """What the submission has printed in this test."""
    return _current.printed() if _current else ""


def request(do: str, **arguments) -> object:
    """Ask the current test's child."""
    if _current is None:
        raise GraderError("the submission may be used inside a test only, not while loading it")
    return _current.request(do, arguments)


def current() -> Session:
    """The current test's conversation."""
    if _current is None:
        raise GraderError("there is no test that could have a child")
    return _current


class Name:
    """`name` of `submission.<module>`: looked up in the child when it is used."""

    def __init__(self, module: str, name: str):
        self._module, self._name = module, name

    def __repr__(self) -> str:
        return f"{PACKAGE}.{self._module}.{self._name}"

    def __call__(self, *args, **kwargs):
        return request("call", target=self, args=list(args), kwargs=kwargs)

    def __getattr__(self, name):
        return _attribute(self, name)


class Handle:
    """An object that lives in the child."""

    def __init__(self, session: Session, number: int, type_name: str):
        self._session, self._number, self._type = session, number, type_name

    def __repr__(self) -> str:
        return f"<{self._type} of the submission>"

    def __call__(self, *args, **kwargs):
        return request("call", target=self, args=list(args), kwargs=kwargs)

    def __getattr__(self, name):
        return _attribute(self, name)

    def __getitem__(self, key):
        if not all(type(part) in (int, str) for part in (key if type(key) is tuple else [key])):
            raise SubmissionError(f"expected a tensor or a list, got {self!r}")
        return request("item", target=self, key=key)

    def __len__(self):
        length = request("len", target=self)
        if type(length) is not int or not 0 <= length <= MAX_LENGTH:
            raise SubmissionError(f"{self!r} has an impossible length")
        return length

    def __bool__(self):
        return True  # not its length: that would be a request

    def __iter__(self):
        iterator = request("iter", target=self)
        while True:
            try:
                yield request("next", target=iterator)
            except StopIteration:
                return


def _attribute(target, name: str):
    if name.startswith("_"):  # private, and what Python itself looks for
        raise AttributeError(f"{target!r}: a test may not read {name!r}")
    return request("get", target=target, name=name)


class Session(Codec):
    """One test's conversation with its child, which it gets at the first request."""

    who = "the submission"

    def __init__(self, server: ForkServer, time_limit: float, module: str = ""):
        self.server, self.time_limit, self.module = server, time_limit, module
        self._child: Child | None = None
        self._callbacks: list[Callable] = []
        self._raised: list[Exception] = []  # by callbacks, to be raised again as they were
        self._over: SubmissionError | None = None
        self._open = 0  # requests without an answer
        self._ended = False  # the child, by itself
        self.lab: Session | None = None  # with a child that runs this one's kernels

    def request(self, do: str, arguments: dict) -> object:
        if self._over:
            raise self._over
        self._connect()
        blobs: list[bytes] = []
        arguments = {name: self.encode(value, blobs) for name, value in arguments.items()}
        self._open += 1
        try:
            self._channel.send({"do": do, "with": arguments}, blobs, self._deadline)
            outcome = self._outcome()
        except Closed:
            self._fail(self._how_it_ended())
        except TooSlow:
            self._fail(f"{self.who} did not finish in time", SubmissionTimeout)
        except WireError as error:
            self._fail(f"{self.who}'s answer makes no sense: {error}")
        except SubmissionError as error:
            self._over = error
            raise
        self._open -= 1
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome

    def printed(self) -> str:
        return self.server.as_shown(self._child.printed()) if self._child else ""

    def close(self, keep: bool) -> None:
        if self.lab:
            self.lab.close(keep)
        if self._child is None:
            return
        if self._ended:
            self._child.close()
        elif keep and self.module and not self._over and not self._open:
            self.server.give_back(self._child)
        else:
            self.server.end(self._child)

    def _connect(self) -> None:
        if self._child:
            return
        self._use(self.server.child(self.module))
        if self._child.used and not self._is_ready():
            self.server.distrust(self._child)
            self._child = None  # until there is another
            self._use(self.server.fork(self.module))
        if not self._child.used:
            self._wait_for_walls()
        self._deadline = time.monotonic() + self.time_limit

    def _use(self, child: Child) -> None:
        self._child, self._channel = child, Channel(child.connection)
        self._deadline = time.monotonic() + self.time_limit

    def _wait_for_walls(self) -> None:
        """Until here nothing of the submission has run: what goes wrong is the grader's fault."""
        try:
            message, _ = self._channel.receive(time.monotonic() + PATIENCE)
        except Closed:
            self._ended = True
            how = self.server.how_it_ended(self._child)
            raise ServerDied(
                f"a child ended ({how}) before it was walled in: {self._child.printed()}"
            ) from None
        except TooSlow:
            raise ServerDied(f"no child within {PATIENCE:.0f} seconds") from None
        if message != READY:
            raise ServerDied("a child does not begin with being ready")

    def _is_ready(self) -> bool:
        """Whether a child that has served a test forgets it and waits for requests."""
        self._deadline = time.monotonic() + min(RESET, self.time_limit)
        try:
            self._channel.send({"do": "reset", "with": {}}, [], self._deadline)
            return self._outcome() is None
        except (Closed, TooSlow, WireError):
            return False

    def _outcome(self) -> object:
        """The value of the request, or _Raised; callbacks that come before it are served."""
        while True:
            message, blob = self._channel.receive(self._deadline)
            try:
                if "callback" in message:
                    call = self._decode_callback(message, blob)
                elif "error" in message:
                    return _Raised(self._exception(message["error"]))
                else:
                    return self.decode(message["value"], blob)
            except (WireError, SubmissionError):
                raise
            except Exception as error:  # whatever a hostile child may have sent
                raise WireError(f"{type(error).__name__}: {error}") from error
            self._call_back(*call)
            if self._over:  # a request inside the callback has found the child gone
                raise self._over

    def _decode_callback(self, message: dict, blob: Blob) -> tuple[Callable, list, dict]:
        function = self._callbacks[message["callback"]]
        if blob.size > getattr(function, "most_bytes", MAX_CALLBACK):
            raise WireError(f"a callback of {blob.size:,} bytes is too large")
        args, kwargs = self.decode(message["args"], blob), self.decode(message["kwargs"], blob)
        return function, list(args), dict(kwargs)

    def _call_back(self, function: Callable, args: list, kwargs: dict) -> None:
        blobs: list[bytes] = []
        try:
            reply = {"value": self.encode(function(*args, **kwargs), blobs)}
        except SubmissionTimeout:  # of a kernel: there is no time to go on
            raise
        except Exception as error:
            if len(self._raised) >= MAX_RAISED:
                raise WireError("it has made the test's functions fail too often") from None
            traceback.clear_frames(error.__traceback__)  # they may hold much
            self._raised.append(error)
            described = {"type": type(error).__name__, "message": str(error)}
            reply, blobs = {"error": described | {"id": len(self._raised) - 1}}, []
        if not self._over:
            self._channel.send(reply, blobs, self._deadline)

    def _exception(self, described: dict) -> Exception:
        if described["of_callback"] is not None:
            return self._raised[described["of_callback"]]
        message, name = self.server.as_shown(str(described["message"])), str(described["type"])
        kind = getattr(builtins, name, None) if described["builtin"] else None
        if isinstance(kind, type) and issubclass(kind, Exception):  # the child may lie
            error = _construct(kind, message)
        else:
            error = SubmissionError(message if described["plain"] else f"{name}: {message}")
        if described["trace"]:
            trace = self.server.as_shown(str(described["trace"]))
            error.add_note(f"In the submission:\n{trace}".rstrip())
        return error

    def _how_it_ended(self) -> str:
        self._ended = True
        how = self.server.how_it_ended(self._child)
        return f"{self.who}'s process ended in the middle of the test ({how})"

    def _fail(self, line: str, kind: type[SubmissionError] = SubmissionError) -> None:
        self._over = kind(line)
        raise self._over from None

    # What only this side can hold.

    def encode_other(self, value):
        if isinstance(value, Name):
            return {"$": "name", "module": value._module, "name": value._name}
        if isinstance(value, Handle):
            if value._session is not self:
                raise GraderError(f"{value!r} belongs to another test")
            return {"$": "handle", "id": value._number}
        if callable(value):
            self._callbacks.append(value)
            return {"$": "callback", "id": len(self._callbacks) - 1}
        raise GraderError(f"a {type(value).__name__} cannot cross to the submission")

    def decode_other(self, kind, message):
        if kind == "handle":
            return Handle(self, message["id"], str(message["type"]))
        if kind == "callback":
            return self._callbacks[message["id"]]
        return super().decode_other(kind, message)


@dataclass(frozen=True)
class _Raised:
    """The submission raised this."""

    error: Exception


def _construct(kind: type[Exception], message: str) -> Exception:
    try:
        return kind(message)
    except TypeError:  # UnicodeDecodeError and the like want more than a text
        return SubmissionError(f"{kind.__name__}: {message}")
