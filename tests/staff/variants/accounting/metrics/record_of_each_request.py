"""A mutable record for each request, checked by comparing ends of sorted lists."""

import math
from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction

from assignment.provided.data.events import Event, Timeline


class _Record:
    def __init__(self, request: int) -> None:
        self.request = request
        self.rows: dict[str, list[float]] = {"arrival": [], "token": [], "end": []}

    def add(self, event: Event) -> None:
        if not -math.inf < event.time < math.inf:
            raise ValueError(f"request {self.request}: time {event.time}")
        try:
            self.rows[event.kind].append(event.time)
        except KeyError:
            raise ValueError(f"request {self.request}: kind {event.kind!r}") from None

    def timeline(self) -> Timeline:
        tokens = sorted(self.rows["token"])
        try:
            [arrival] = self.rows["arrival"]
            [end] = self.rows["end"] or [math.inf]
        except ValueError:
            raise ValueError(f"request {self.request}: arrivals or ends {self.rows}") from None
        if end < arrival or (tokens and not arrival <= tokens[0] <= tokens[-1] <= end):
            raise ValueError(f"request {self.request}: not in order of time: {self.rows}")
        return Timeline(arrival, tuple(tokens), end < math.inf)


def timelines(events: Sequence[Event]) -> dict[int, Timeline]:
    records = {event.request: _Record(event.request) for event in events}
    for event in events:
        records[event.request].add(event)
    return {record.request: record.timeline() for record in records.values()}


def time_to_first_token(timeline: Timeline) -> float | None:
    try:
        return timeline.tokens[0] - timeline.arrival
    except IndexError:
        return None


def time_per_output_token(timeline: Timeline) -> float | None:
    match timeline.tokens:
        case [first, *_, last]:
            return (last - first) / (len(timeline.tokens) - 1)
    return None


def inter_token_latencies(timeline: Timeline) -> list[float]:
    tokens = timeline.tokens
    return [tokens[i] - tokens[i - 1] for i in range(1, len(tokens))]


def end_to_end_latency(timeline: Timeline) -> float | None:
    return timeline.tokens[-1] - timeline.arrival if timeline.finished and timeline.tokens else None


def _span(timelines: Iterable[Timeline]) -> float:
    first, last = math.inf, -math.inf
    for timeline in timelines:
        first = min(first, timeline.arrival)
        last = max((last, *timeline.tokens))
    return last - first


def throughput(timelines: Collection[Timeline]) -> float:
    count = sum(map(len, (timeline.tokens for timeline in timelines)))
    try:
        return count * (1 / _span(timelines)) if count else 0.0
    except ZeroDivisionError:
        return math.inf


def goodput(timelines: Collection[Timeline], max_ttft: float, max_tpot: float) -> float:
    def bad(timeline: Timeline) -> bool:
        if not timeline.finished or not timeline.tokens:
            return True
        late = time_to_first_token(timeline) > max_ttft
        return late or (len(timeline.tokens) > 1 and time_per_output_token(timeline) > max_tpot)

    count = len(timelines) - sum(map(bad, timelines))
    if count == 0:
        return 0.0
    span = _span(timelines)
    return math.inf if span == 0 else count / span


def percentile(values: Sequence[float], percent: float) -> float:
    if not values:
        raise ValueError("no values")
    if not 0 <= percent <= 100:
        raise ValueError(f"percent: {percent}")
    rank = math.ceil(Fraction(percent) / 100 * len(values))
    return sorted(values)[max(rank - 1, 0)]
