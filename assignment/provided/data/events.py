"""A server's log: when requests arrived, when each of their tokens came out, when they ended."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Event:
    """One line of a log.

    time: seconds on the server's clock.
    request: the request's id.
    kind: "arrival", "token" (one output token left the server) or "end" (nothing more will come).
    """

    time: float
    request: int
    kind: str


@dataclass(frozen=True)
class Timeline:
    """One request.

    arrival: seconds.
    tokens: seconds at which each output token came, in order; equal times are possible.
    finished: whether the log has its end.
    """

    arrival: float
    tokens: tuple[float, ...] = ()
    finished: bool = False
