"""Request traces: who asks a server for what, and when. No clock and no model is needed.

    named_trace("chat")      a fixed trace; NAMED_TRACES says what there is
    generate_trace(…)        Poisson arrivals, ragged lengths, shared system prompts
    summarize_trace(trace)   its size in a few numbers

Poisson arrivals are how Orca (OSDI 2022) and PagedAttention (https://arxiv.org/abs/2309.06180) load
their servers. A trace is the same everywhere: it takes nothing but `random()` of random.Random,
whose sequence Python promises to keep, and rounds what comes out of a logarithm or an exponential.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

BLOCK_SIZE = 16  # tokens in a block of the KV cache, as in PagedAttention


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _check(fits: bool, name: str, expected: str, got: object) -> None:
    if not fits:
        raise ValueError(f"{name}: expected {expected}, got {got!r}")


@dataclass(frozen=True)
class Request:
    """One request to a server. A field that is not as said here raises a ValueError.

    id: unique in its trace; in a generated one, the place in the order of arrival, from 0.
    arrival: seconds from the start of the trace.
    prompt: token ids, at least one.
    max_new_tokens: the client's limit, known on arrival. A server that sets room aside for a whole
        sequence sets aside this much.
    output_length: tokens that are really generated, from 1 to max_new_tokens. It stands in for the
        model's end-of-sequence token: a scheduler learns it only when the request finishes.
    """

    id: int
    arrival: float
    prompt: tuple[int, ...]
    max_new_tokens: int
    output_length: int

    def __post_init__(self):
        most = self.max_new_tokens
        for name in ("id", "max_new_tokens", "output_length"):
            value = getattr(self, name)
            _check(_is_whole(value), name, "an integer", value)
        _check(isinstance(self.arrival, int | float), "arrival", "seconds", self.arrival)
        _check(0 <= self.arrival < math.inf, "arrival", "seconds ≥ 0", self.arrival)
        fits = isinstance(self.prompt, tuple) and all(map(_is_whole, self.prompt))
        fits = fits and min(self.prompt, default=-1) >= 0
        _check(fits, "prompt", "a tuple of at least one token id", self.prompt)
        _check(most >= 1, "max_new_tokens", "at least 1", most)
        fits = 1 <= self.output_length <= most
        _check(fits, "output_length", f"1 to max_new_tokens = {most}", self.output_length)


@dataclass(frozen=True)
class Lengths:
    """A log-normal law of lengths in tokens: median · exp(sigma · z), z standard normal, rounded,
    then clipped to low … high. With sigma 0 every length is the median."""

    median: float
    sigma: float
    low: int
    high: int

    def __post_init__(self):
        fits = _is_whole(self.low) and _is_whole(self.high)
        _check(fits, "low, high", "integers", (self.low, self.high))
        _check(1 <= self.low <= self.high, "low, high", "1 ≤ low ≤ high", (self.low, self.high))
        _check(self.low <= self.median <= self.high, "median", "low to high", self.median)
        _check(0 <= self.sigma < math.inf, "sigma", "a number ≥ 0", self.sigma)

    def draw(self, rng: random.Random) -> int:
        # Box and Muller's way to a standard normal number
        radius = math.sqrt(-2 * math.log(1 - rng.random()))
        z = radius * math.cos(2 * math.pi * rng.random())
        return min(max(round(self.median * math.exp(self.sigma * z)), self.low), self.high)


def generate_trace(
    num_requests: int,
    *,
    rate: float,
    prompts: Lengths,
    outputs: Lengths,
    seed: int,
    num_system_prompts: int = 0,
    system_prompt_length: int = 0,
    share: float = 0.0,
    on: float = math.inf,
    off: float = 0.0,
    vocab_size: int = 512,
) -> list[Request]:
    """Draw a trace, in order of arrival.

    At one seed, another rate, on or off moves the same requests in time, and another vocab_size
    changes the tokens only: a sweep over the load compares like with like.

    Args:
        num_requests: at least 1.
        rate: requests per second of `on` time. Gaps, the one before the first request included, are
            independent and exponential with mean 1/rate. math.inf: all arrive at time 0.
        prompts: lengths of a prompt's own part, which comes behind its system prompt, if any.
        outputs: output lengths. max_new_tokens of every request is outputs.high.
        seed: an integer ≥ 0.
        num_system_prompts: prefixes that requests share; the very same tokens each time.
        system_prompt_length: tokens in each of them.
        share: probability that a request begins with one of them, each as probable as the next.
        on, off: for traffic in bursts: requests arrive for `on` seconds, then none for `off`, …
        vocab_size: V ≥ 2. All tokens are independent and uniform on 0 … V−1.

    Raises:
        ValueError: if an argument is not as said above.
    """
    for name, value in {"num_requests": num_requests, "vocab_size": vocab_size}.items():
        _check(_is_whole(value), name, "an integer", value)
    _check(num_requests >= 1, "num_requests", "at least 1", num_requests)
    _check(rate > 0, "rate", "requests per second > 0", rate)
    _check(isinstance(seed, int) and seed >= 0, "seed", "an integer ≥ 0", seed)
    _check(0 <= share <= 1, "share", "a probability from 0 to 1", share)
    least = 1 if share else 0
    count, length = num_system_prompts, system_prompt_length
    _check(count >= least, "num_system_prompts", f"at least {least} for this share", count)
    _check(length >= least, "system_prompt_length", f"at least {least} for this share", length)
    _check(on > 0, "on", "seconds > 0", on)
    _check(0 <= off < math.inf, "off", "seconds ≥ 0", off)
    _check(vocab_size >= 2, "vocab_size", "at least 2", vocab_size)
    rng = random.Random(seed)

    # Tokens come last: how many are drawn depends on the lengths, the rest is fixed per request.
    arrivals, busy = [], 0.0  # busy: seconds that have passed, off time left out
    for _ in range(num_requests):
        busy -= math.log(1 - rng.random()) / rate
        arrivals.append(round(busy + off * math.floor(busy / on), 6))
    output_lengths = [outputs.draw(rng) for _ in arrivals]
    own_lengths = [prompts.draw(rng) for _ in arrivals]
    choices = [(rng.random() < share, int(rng.random() * count)) for _ in arrivals]

    def tokens(length: int) -> tuple[int, ...]:
        return tuple(int(rng.random() * vocab_size) for _ in range(length))

    prefixes = [tokens(length) for _ in range(count)]
    requests = []
    for i, (shares, which) in enumerate(choices):
        prompt = (prefixes[which] if shares else ()) + tokens(own_lengths[i])
        requests.append(Request(i, arrivals[i], prompt, outputs.high, output_lengths[i]))
    return requests


def _four_requests(vocab_size: int) -> list[Request]:
    same = Lengths(5, 0, 5, 5)  # prompts of one length: only the outputs are ragged
    four = generate_trace(
        4, rate=math.inf, prompts=same, outputs=same, seed=5, vocab_size=vocab_size
    )
    return [
        replace(request, max_new_tokens=length, output_length=length)
        for request, length in zip(four, (2, 4, 8, 10), strict=True)
    ]


@dataclass(frozen=True)
class NamedTrace:
    """A fixed trace: what it is, in a line, and make(vocab_size=V), which returns its requests."""

    description: str
    make: Callable[..., list[Request]]


QUESTION, ANSWER = Lengths(24, 0.8, 4, 128), Lengths(48, 0.7, 4, 192)
ARTICLE, ABSTRACT = Lengths(1024, 0.5, 256, 4096), Lengths(40, 0.4, 16, 96)
RAGGED = Lengths(64, 0.9, 1, 512)

NAMED_TRACES = {
    "chat": NamedTrace(
        "200 short prompts, 4 in 5 behind one of 3 system prompts of 100 tokens, 8 a second",
        partial(
            generate_trace,
            200,
            rate=8,
            prompts=QUESTION,
            outputs=ANSWER,
            seed=1,
            num_system_prompts=3,
            system_prompt_length=100,
            share=0.8,
        ),
    ),
    "summarize": NamedTrace(
        "60 long prompts with short outputs, 1 a second",
        partial(generate_trace, 60, rate=1, prompts=ARTICLE, outputs=ABSTRACT, seed=2),
    ),
    "bursty": NamedTrace(
        "200 requests, 40 a second for 1 second, then none for 4 seconds, and so on",
        partial(generate_trace, 200, rate=40, prompts=RAGGED, outputs=ANSWER, seed=3, on=1, off=4),
    ),
    "batch": NamedTrace(
        "64 requests of very different lengths, all at time 0",
        partial(generate_trace, 64, rate=math.inf, prompts=RAGGED, outputs=RAGGED, seed=4),
    ),
    "lengths-2-4-8-10": NamedTrace(
        "4 requests at time 0 with outputs of 2, 4, 8, 10: a static batch uses 60% of its slots",
        _four_requests,
    ),
}


def named_trace(name: str, vocab_size: int = 512) -> list[Request]:
    """A trace of NAMED_TRACES, its token ids on 0 … vocab_size − 1.

    Raises:
        ValueError: if there is none of this name, or vocab_size is below 2.
    """
    _check(
        isinstance(name, str) and name in NAMED_TRACES,
        "name",
        f"one of {', '.join(NAMED_TRACES)}",
        name,
    )
    return NAMED_TRACES[name].make(vocab_size=vocab_size)


@dataclass(frozen=True)
class TraceSummary:
    """A trace in a few numbers.

    num_requests: requests.
    span: seconds from the first arrival to the last.
    prompts, outputs: of the prompt and the output lengths, in tokens, "mean", "p50", "p90" and
        "max". pX is the least length that X% of the requests do not exceed.
    reusable_share: of all prompt tokens, the share that lies in whole blocks of BLOCK_SIZE tokens
        with which, from its first token on, an earlier prompt begins too: the most that a prefix
        cache can save.
    """

    num_requests: int
    span: float
    prompts: dict[str, float]
    outputs: dict[str, float]
    reusable_share: float


def summarize_trace(trace: Sequence[Request]) -> TraceSummary:
    """Count what there is. `trace` holds at least one request, else a ValueError says so."""
    _check(len(trace) > 0, "trace", "at least one request", trace)
    trace = sorted(trace, key=lambda request: request.arrival)
    reusable, seen = 0, {}  # seen: a tree of blocks; a way down from its root is a prefix
    for request in trace:
        node, prompt = seen, request.prompt
        for end in range(BLOCK_SIZE, len(prompt) + 1, BLOCK_SIZE):
            block = prompt[end - BLOCK_SIZE : end]
            reusable += BLOCK_SIZE if block in node else 0
            node = node.setdefault(block, {})
    return TraceSummary(
        num_requests=len(trace),
        span=trace[-1].arrival - trace[0].arrival,
        prompts=_statistics([len(request.prompt) for request in trace]),
        outputs=_statistics([request.output_length for request in trace]),
        reusable_share=reusable / sum(len(request.prompt) for request in trace),
    )


def _statistics(lengths: list[int]) -> dict[str, float]:
    ordered = sorted(lengths)
    p50, p90 = (ordered[math.ceil(len(ordered) * x / 100) - 1] for x in (50, 90))
    return {"mean": sum(ordered) / len(ordered), "p50": p50, "p90": p90, "max": ordered[-1]}
