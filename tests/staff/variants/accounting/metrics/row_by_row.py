"""The log in order of time, row by row: each row moves its request one step on."""

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from assignment.provided.data.events import Event, Timeline

ORDER = {"arrival": 0, "token": 1, "end": 2}  # of rows of equal time


def timelines(events: Sequence[Event]) -> dict[int, Timeline]:
    for event in events:
        if event.kind not in ORDER:
            raise ValueError(f"request {event.request}: unknown kind {event.kind!r}")
        if math.isnan(event.time) or math.isinf(event.time):
            raise ValueError(f"request {event.request}: a time of {event.time}")
    found: dict[int, Timeline] = {}
    for event in sorted(events, key=lambda event: (event.time, ORDER[event.kind])):
        found[event.request] = _after(found.get(event.request), event)
    return found


def _after(before: Timeline | None, event: Event) -> Timeline:
    if event.kind == "arrival":
        if before is not None:
            raise ValueError(f"request {event.request} arrives twice")
        return Timeline(event.time)
    if before is None:
        raise ValueError(f"request {event.request}: {event.kind} without an arrival before it")
    if before.finished:
        raise ValueError(f"request {event.request}: {event.kind} after its end")
    if event.kind == "end":
        return replace(before, finished=True)
    return replace(before, tokens=(*before.tokens, event.time))


def time_to_first_token(timeline: Timeline) -> float | None:
    for first in timeline.tokens:
        return first - timeline.arrival
    return None


def time_per_output_token(timeline: Timeline) -> float | None:
    gaps = inter_token_latencies(timeline)
    return fmean(gaps) if gaps else None


def inter_token_latencies(timeline: Timeline) -> list[float]:
    return [later - earlier for earlier, later in pairwise(timeline.tokens)]


def end_to_end_latency(timeline: Timeline) -> float | None:
    ttft = time_to_first_token(timeline)
    if ttft is None or not timeline.finished:
        return None
    return ttft + sum(inter_token_latencies(timeline))


def throughput(timelines: Collection[Timeline]) -> float:
    tokens = [time for timeline in timelines for time in timeline.tokens]
    if not tokens:
        return 0.0
    span = max(tokens) - min(timeline.arrival for timeline in timelines)
    return len(tokens) / span if span else math.inf


def goodput(timelines: Collection[Timeline], max_ttft: float, max_tpot: float) -> float:
    good = 0
    for timeline in timelines:
        ttft, tpot = time_to_first_token(timeline), time_per_output_token(timeline)
        if timeline.finished and ttft is not None:
            good += ttft <= max_ttft and (tpot or 0.0) <= max_tpot
    if good == 0:
        return 0.0
    tokens = sum(len(timeline.tokens) for timeline in timelines)
    return throughput(timelines) * good / tokens


def percentile(values: Sequence[float], percent: float) -> float:
    if len(values) == 0:
        raise ValueError("there are no values")
    if percent < 0 or percent > 100:
        raise ValueError(f"percent {percent} is outside 0 … 100")
    for k, value in enumerate(sorted(values), start=1):
        if 100 * k >= percent * len(values):
            return value
    raise AssertionError("the last value reaches 100 %")
