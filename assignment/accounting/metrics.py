"""What users and operators see of a server: how long a request waits, how many tokens come out.

A log says when requests arrived, when each of their tokens left, and when they ended. Three figures
describe one request: the time to its first token (TTFT, the wait for prefill and for a free place),
the time per output token after that (TPOT, the pace of decode), and the whole latency. Two describe
the server: throughput, all tokens per second, and goodput, the requests per second that were fast
enough to be of use. They pull in different directions: a larger batch gives more tokens per second
in all, and each of them later.

Goodput, and TTFT and TPOT as its two targets: Zhong et al., "DistServe", 2024, arXiv:2401.09670.
There it is a rate at which requests may come; here it is counted in a log.

All times are seconds, all rates per second.
"""

import math
from collections.abc import Collection, Sequence

from assignment.provided.data.events import Event, Timeline


def timelines(events: Sequence[Event]) -> dict[int, Timeline]:
    """The log sorted out by request: {request: its Timeline}.

    The rows come in any order, those of different requests mixed: a server writes its log from many
    threads at once. A Timeline's tokens are in order of time; of tokens of equal time all are kept,
    since one step may give a request several. A request that goes on has no end yet, and perhaps no
    token. `events` itself is not changed. An empty log gives {}.

    Raises:
        ValueError: the log cannot be true. The message names the request and what is wrong:
            a kind other than "arrival", "token" and "end"; a time that is NaN or infinite;
            two arrivals of a request, two ends, or no arrival;
            a token or an end before the arrival, or a token after the end. Equal times are in
            order: a token may come at the very time of the arrival, or of the end.

    Hint: first collect each request's times, then check them by value: where a row stood in the log
    says nothing. About 30 lines.
    """
    raise NotImplementedError


def time_to_first_token(timeline: Timeline) -> float | None:
    """TTFT: from the arrival to the first output token. None before there is one. One line."""
    raise NotImplementedError


def time_per_output_token(timeline: Timeline) -> float | None:
    """TPOT: the mean time from one output token to the next. None below two tokens. 2–3 lines.

    The wait for the first token is TTFT and no part of it. Tokens at 3.0, 3.5 and 5.0 s: 1.0 s,
    whenever the request arrived. n tokens have how many gaps between them?
    """
    raise NotImplementedError


def inter_token_latencies(timeline: Timeline) -> list[float]:
    """Each gap between one output token and the next, in order: [0.5, 1.5] in the example above.

    Their mean is TPOT. What a mean hides shows here: a reader who watches the text stand still for
    a second. Tokens of equal time have a gap of 0.0; below two tokens there is none: []. 2 lines.
    """
    raise NotImplementedError


def end_to_end_latency(timeline: Timeline) -> float | None:
    """From the arrival to the last output token; None unless finished, with a token at least."""
    raise NotImplementedError


def throughput(timelines: Collection[Timeline]) -> float:
    """Output tokens per second of the whole server.

    All tokens of all requests, finished or not, over the time from the first arrival of all to the
    last token of all. The server works on many requests at once: a mean over requests of each
    one's rate is another quantity, and not this one.

    Without a token: 0.0. If the last token comes at the very time of the first arrival, there is no
    span to divide by, and the rate is math.inf. About 6 lines, most of which `goodput` can use.
    """
    raise NotImplementedError


def goodput(timelines: Collection[Timeline], max_ttft: float, max_tpot: float) -> float:
    """Good requests per second: those that are finished and met both targets, of at most so much.

    A request whose TTFT or TPOT is exactly the target meets it. One of a single token has no TPOT
    that could be too long; one without a token was not served. The span is that of `throughput`,
    over all requests and not the good ones alone: time spent on the others is time all the same.

    No good request: 0.0. Good ones in no span at all: math.inf. About 8 lines.
    """
    raise NotImplementedError


def percentile(values: Sequence[float], percent: float) -> float:
    """The percentile by nearest rank: how long did the fastest `percent` % wait at most?

    It is the least of the values that at least `percent` % of all values do not exceed. So it is
    always a value that occurred, never a point between two of them; the 50th of [4, 1, 3, 2] is 2,
    the 51st is 3, the 0th is the least and the 100th the largest. `values` come in any order and
    are not changed.

    Raises:
        ValueError: values is empty, or percent is not in 0 … 100.

    Hint: sorted, it is the k-th value for the least k ≥ 1 with k · 100 ≥ percent · n. Keep to
    products: 7 / 100 · 100 is more than 7 in floating point, and would come out a rank too high.
    About 5 lines.
    """
    raise NotImplementedError
