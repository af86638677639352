"""A pass over the log for each kind of row; the figures by numpy."""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

import numpy as np

from assignment.provided.data.events import Event, Timeline


def timelines(events: Sequence[Event]) -> dict[int, Timeline]:
    if not all(np.isfinite(event.time) for event in events):
        raise ValueError("a time is not finite")
    if {event.kind for event in events} - {"arrival", "token", "end"}:
        raise ValueError("a kind is unknown")
    arrivals, ends = _one_each(events, "arrival"), _one_each(events, "end")
    tokens = defaultdict(list)
    for event in events:
        if event.request not in arrivals:
            raise ValueError(f"request {event.request} never arrives")
        if event.time < arrivals[event.request]:
            raise ValueError(f"request {event.request}: {event.kind} before its arrival")
        if event.time > ends.get(event.request, np.inf):
            raise ValueError(f"request {event.request}: {event.kind} after its end")
        if event.kind == "token":
            tokens[event.request].append(event.time)
    return defaultdict(
        None,
        {
            request: Timeline(arrival, tuple(sorted(tokens[request])), request in ends)
            for request, arrival in sorted(arrivals.items())
        },
    )


def _one_each(events: Sequence[Event], kind: str) -> dict[int, float]:
    rows = [event for event in events if event.kind == kind]
    if rows and max(Counter(event.request for event in rows).values()) > 1:
        raise ValueError(f"a request has more than one {kind}")
    return {event.request: event.time for event in rows}


def time_to_first_token(timeline: Timeline) -> float | None:
    if not timeline.tokens:
        return None
    return min(timeline.tokens) - timeline.arrival


def time_per_output_token(timeline: Timeline) -> float | None:
    if len(timeline.tokens) < 2:
        return None
    return float(np.diff(timeline.tokens).mean())


def inter_token_latencies(timeline: Timeline) -> list[float]:
    return np.diff(timeline.tokens).tolist()


def end_to_end_latency(timeline: Timeline) -> float | None:
    if timeline.finished and timeline.tokens:
        return max(timeline.tokens) - timeline.arrival
    return None


def throughput(timelines: Collection[Timeline]) -> float:
    tokens = np.concatenate([np.array(t.tokens) for t in timelines]) if timelines else np.zeros(0)
    return _rate(tokens.size, timelines)


def goodput(timelines: Collection[Timeline], max_ttft: float, max_tpot: float) -> float:
    served = [t for t in timelines if t.finished and t.tokens]
    in_time = [t for t in served if time_to_first_token(t) <= max_ttft]
    in_pace = [t for t in in_time if len(t.tokens) == 1 or time_per_output_token(t) <= max_tpot]
    return _rate(len(in_pace), timelines)


def _rate(count: int, timelines: Collection[Timeline]) -> float:
    if not count:
        return 0
    first = np.min([t.arrival for t in timelines])
    last = np.max([t.tokens[-1] for t in timelines if t.tokens])
    with np.errstate(divide="ignore"):
        return float(np.float64(count) / (last - first))


def percentile(values: Sequence[float], percent: float) -> float:
    if not len(values) or not 0 <= percent <= 100:
        raise ValueError(f"percentile {percent} of {len(values)} values")
    ordered = np.sort(np.array(values))
    reached = 100 * np.searchsorted(ordered, ordered, side="right")
    return float(ordered[reached >= percent * len(ordered)][0])
