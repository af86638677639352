"""Logs whose timelines are known, and percentiles by their definition."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

from assignment.provided.data.events import Event, Timeline

IDS = (7, 0, 31, 4, 1_000_003, 12, 2)  # of requests: in no order, and no index into anything
TICK = 1 / 64  # seconds: sums and differences of ticks are exact

TRUE_LOG = [
    Event(1.0, 5, "arrival"),
    Event(2.0, 5, "token"),
    Event(3.0, 5, "token"),
    Event(4.0, 5, "end"),
    Event(1.5, 6, "arrival"),
    Event(2.5, 6, "token"),
    Event(5.0, 8, "arrival"),
]
FAULTS = {  # added to that log, each makes one that cannot be true
    "unknown_kind": Event(2.5, 5, "tokens"),
    "empty_kind": Event(2.5, 5, ""),
    "two_arrivals": Event(0.5, 5, "arrival"),
    "two_equal_arrivals": Event(1.0, 5, "arrival"),
    "two_ends": Event(5.0, 5, "end"),
    "two_equal_ends": Event(4.0, 5, "end"),
    "token_of_an_unknown_request": Event(2.5, 7, "token"),
    "end_of_an_unknown_request": Event(2.5, 7, "end"),
    "token_before_the_arrival": Event(0.75, 5, "token"),
    "token_before_the_arrival_of_an_open_request": Event(1.25, 6, "token"),
    "end_before_the_arrival": Event(1.25, 6, "end"),
    "end_before_the_arrival_of_a_waiting_request": Event(4.5, 8, "end"),
    "end_before_a_token": Event(2.25, 6, "end"),
    "token_after_the_end": Event(4.25, 5, "token"),
    "time_is_nan": Event(math.nan, 5, "token"),
    "time_is_infinite": Event(math.inf, 6, "token"),
    "end_is_infinite": Event(math.inf, 6, "end"),
    "arrival_is_minus_infinity": Event(-math.inf, 7, "arrival"),
}

FAULTS_WITHOUT_TOKENS = {  # whole logs
    "end_before_the_arrival": [Event(2.0, 5, "arrival"), Event(1.0, 5, "end")],
    "arrival_is_nan": [Event(math.nan, 5, "arrival")],
    "arrival_is_infinite": [Event(math.inf, 5, "arrival")],
    "end_is_nan": [Event(2.0, 5, "arrival"), Event(math.nan, 5, "end")],
    "two_arrivals": [Event(2.0, 5, "arrival"), Event(2.5, 5, "arrival")],
    "two_ends": [Event(2.0, 5, "arrival"), Event(3.0, 5, "end"), Event(3.5, 5, "end")],
}


def draw_timelines(draw, ids: Iterable[int] = IDS) -> dict[int, Timeline]:
    """A timeline for each id: few tokens or none, some of equal time, finished or not."""
    return {request: _draw_timeline(draw) for request in ids}


def _draw_timeline(draw) -> Timeline:
    arrival, num_tokens, finished = (int(draw.integers(0, n, 1)) for n in (500, 6, 2))
    gaps = draw.integers(0, 4, num_tokens).tolist()  # a gap of 0: tokens of equal time
    times = [arrival + 3 + sum(gaps[: i + 1]) for i in range(num_tokens)]
    return Timeline(arrival * TICK, tuple(time * TICK for time in times), bool(finished))


def events_of(timelines: dict[int, Timeline], draw) -> list[Event]:
    """A log of these requests, its rows in random order."""
    events = []
    for request, timeline in timelines.items():
        events.append(Event(timeline.arrival, request, "arrival"))
        events += [Event(time, request, "token") for time in timeline.tokens]
        if timeline.finished:
            last = max((timeline.arrival, *timeline.tokens))
            events.append(Event(last + int(draw.integers(0, 3, 1)) * TICK, request, "end"))
    return [events[row] for row in draw.permutation(len(events)).tolist()]


def percentile(values: Sequence[float], percent: float) -> float:
    """The least of the values that at least percent % of them do not exceed, in exact fractions."""

    def enough(value: float) -> bool:
        reached = sum(other <= value for other in values)
        return Fraction(100 * reached, len(values)) >= Fraction(percent)

    return min(value for value in values if enough(value))
