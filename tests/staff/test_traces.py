"""Request traces: their laws, prefixes that are really shared, and that they never change.

Bounds of means are Chernoff's or Hoeffding's, below 1e-6 each; the seeds are fixed besides.
"""

import hashlib
import json
import math
import random
from dataclasses import astuple, replace
from itertools import pairwise

import pytest

from assignment.provided.data.traces import (
    NAMED_TRACES,
    Lengths,
    Request,
    generate_trace,
    named_trace,
    summarize_trace,
)

ONE = Lengths(1, 0, 1, 1)
RAGGED = Lengths(20, 0.8, 3, 90)
N = 10_000  # Hoeffding: a share is off by more than 0.03 with probability 2·exp(−18) = 3e-8
FITS = {"num_requests": 50, "rate": 4.0, "prompts": RAGGED, "outputs": RAGGED, "seed": 0}
SHARED = FITS | {"num_system_prompts": 3, "system_prompt_length": 37, "share": 0.7}


def gaps(trace):
    arrivals = [0.0] + [request.arrival for request in trace]
    return [later - earlier for earlier, later in pairwise(arrivals)]


def fraction(flags):
    flags = list(flags)
    return sum(flags) / len(flags)


# Arrivals


def test_arrivals_are_a_poisson_process():
    rate = 5.0
    trace = generate_trace(N, rate=rate, prompts=ONE, outputs=ONE, seed=1)
    assert [request.id for request in trace] == list(range(N))
    waits = gaps(trace)
    assert min(waits) >= 0  # sorted
    # Chernoff: the mean of N exponential gaps is off by more than 6% with probability
    # exp(−N(0.06 − ln 1.06)) + exp(−N(−0.06 − ln 0.94)) < 4e-8. A rate in place of a gap is off by
    # a factor of 25.
    assert sum(waits) / N == pytest.approx(1 / rate, rel=0.06)
    # the shape: equal gaps have a share of 0 or 1 here, uniform ones another
    for times in (0.5, 1, 2):
        share = fraction(wait > times / rate for wait in waits)
        assert share == pytest.approx(math.exp(-times), abs=0.03)
    # independence: of two gaps in a row both long; N/2 disjoint pairs, ε = 0.045
    both = fraction(min(two) > 1 / rate for two in zip(waits[::2], waits[1::2], strict=True))
    assert both == pytest.approx(math.exp(-2), abs=0.045)


def test_an_infinite_rate_is_a_batch_at_time_zero():
    trace = generate_trace(**FITS | {"rate": math.inf})
    assert {request.arrival for request in trace} == {0.0}


def test_bursts_are_the_same_arrivals_with_pauses_put_in():
    steady = generate_trace(**FITS)
    bursts = generate_trace(**FITS, on=2.0, off=7.0)
    assert len({int(request.arrival // 9) for request in bursts}) > 3
    for request, moved in zip(steady, bursts, strict=True):
        assert moved.arrival % 9 < 2
        assert moved.arrival == pytest.approx(request.arrival + 7 * (request.arrival // 2))
        assert replace(moved, arrival=0) == replace(request, arrival=0)


def test_a_sweep_over_the_rate_sends_the_same_requests():
    slow, fast = (generate_trace(**SHARED | {"rate": rate}) for rate in (1.0, 10.0))
    for request, sooner in zip(slow, fast, strict=True):
        assert sooner.arrival == pytest.approx(request.arrival / 10, abs=2e-6)
        assert replace(sooner, arrival=0) == replace(request, arrival=0)


# Lengths


def test_lengths_follow_their_law():
    law = Lengths(1000, 0.5, 1, 100_000)
    trace = generate_trace(N, rate=1, prompts=ONE, outputs=law, seed=2)
    # the wrong ideas: the median as a mean, sigma as a variance or in tokens
    for sigmas, above in [(-1, 0.8413), (0, 0.5), (1, 0.1587), (2, 0.0228)]:
        bound = 1000 * math.exp(0.5 * sigmas)
        share = fraction(request.output_length > bound for request in trace)
        assert share == pytest.approx(above, abs=0.03)


def test_lengths_stay_in_their_range_and_reach_both_ends():
    prompts, outputs = Lengths(10, 2, 3, 30), Lengths(5, 2, 2, 11)
    trace = generate_trace(500, rate=1, prompts=prompts, outputs=outputs, seed=3)
    lengths = {len(request.prompt) for request in trace}
    assert (min(lengths), max(lengths)) == (3, 30)
    lengths = {request.output_length for request in trace}
    assert (min(lengths), max(lengths)) == (2, 11)
    assert {request.max_new_tokens for request in trace} == {11}


def test_prompt_and_output_lengths_are_not_tied():
    # the wrong idea: one draw for both; above the median both with probability 1/4, not 1/2
    law = Lengths(1000, 0.5, 1, 4000)
    trace = generate_trace(1000, rate=1, prompts=law, outputs=law, seed=4)
    both = fraction(min(len(r.prompt), r.output_length) > 1000 for r in trace)
    assert both == pytest.approx(0.25, abs=0.09)  # Hoeffding: 2·exp(−16.2) = 2e-7


# Tokens and prefixes


@pytest.mark.parametrize("vocab_size", [2, 512, 49_152])
def test_tokens_fill_the_vocabulary_and_decide_nothing_else(vocab_size):
    trace = generate_trace(**SHARED, vocab_size=vocab_size)
    tokens = [token for request in trace for token in request.prompt]
    assert all(isinstance(token, int) for token in tokens)
    assert 0 <= min(tokens) <= 0.01 * vocab_size  # of 1,900 own tokens, all miss it: 1e-8
    assert vocab_size > max(tokens) >= 0.99 * vocab_size - 1
    for request, other in zip(trace, generate_trace(**SHARED), strict=True):
        assert len(request.prompt) == len(other.prompt)
        assert replace(request, prompt=(0,)) == replace(other, prompt=(0,))


def test_system_prompts_are_literally_shared():
    many = SHARED | {"num_requests": N, "prompts": Lengths(2, 0.5, 1, 4)}
    trace = generate_trace(**many)
    heads = [request.prompt[:37] for request in trace if len(request.prompt) > 37]
    assert all(len(request.prompt) <= 4 or len(request.prompt) >= 38 for request in trace)
    assert len(heads) / N == pytest.approx(0.7, abs=0.03)
    assert len(set(heads)) == 3
    for head in set(heads):
        assert heads.count(head) / N == pytest.approx(0.7 / 3, abs=0.03)


def chained_hits(trace, block_size=16):
    """Prompt tokens in blocks that a cache with hashes chained from block to block has seen."""
    cache, hits = set(), 0
    for request in trace:
        above = ""
        for start in range(0, len(request.prompt) - block_size + 1, block_size):
            block = request.prompt[start : start + block_size]
            above = hashlib.sha256(f"{above} {block}".encode()).hexdigest()
            hits += block_size * (above in cache)
            cache.add(above)
    return hits


def test_shared_prefixes_are_found_by_a_chain_of_hashes():
    trace = generate_trace(**SHARED)
    heads = [request.prompt[:37] for request in trace]
    sharing = sum(heads.count(head) > 1 for head in heads)
    # 37 tokens hold two whole blocks, and the first request with each prefix finds nothing yet
    assert chained_hits(trace) == 32 * (sharing - 3) > 0
    share = chained_hits(trace) / sum(len(request.prompt) for request in trace)
    assert summarize_trace(trace).reusable_share == share


def test_nothing_is_shared_unless_asked_for():
    assert summarize_trace(generate_trace(**FITS)).reusable_share == 0
    everyone = generate_trace(**SHARED | {"share": 1, "num_system_prompts": 1})
    assert len({request.prompt[:37] for request in everyone}) == 1
    assert len({request.prompt for request in everyone}) == 50


# The same again


def test_seeds_differ_and_repeat():
    assert generate_trace(**SHARED) == generate_trace(**SHARED)
    first, other = generate_trace(**SHARED), generate_trace(**SHARED | {"seed": 1})
    for field in ("arrival", "prompt", "output_length"):
        assert [getattr(r, field) for r in first] != [getattr(r, field) for r in other]


def test_the_global_random_state_is_left_alone():
    random.seed(0)
    state = random.getstate()
    named_trace("chat")
    assert random.getstate() == state


DIGESTS = {
    "chat": "70c2ec5d59eb9eb3",
    "summarize": "6420c90711769c6f",
    "bursty": "92dfdbece19741ce",
    "batch": "adbda51596591621",
    "lengths-2-4-8-10": "885d9830357a965f",
}


def test_every_named_trace_is_pinned():
    assert set(DIGESTS) == set(NAMED_TRACES)


@pytest.mark.parametrize("name", NAMED_TRACES)
def test_named_traces_never_change(name):
    text = json.dumps([astuple(request) for request in named_trace(name)])
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == DIGESTS[name]


# The named traces are what their descriptions say


def test_chat_shares_its_system_prompts():
    trace = named_trace("chat")
    assert len(trace) == 200
    heads = [request.prompt[:100] for request in trace]
    shared = {head for head in heads if heads.count(head) > 1}
    assert len(shared) == 3
    assert {len(head) for head in shared} == {100}
    assert summarize_trace(trace).reusable_share > 0.5


def test_summarize_has_long_prompts_and_short_outputs():
    for request in named_trace("summarize"):
        assert len(request.prompt) >= 256 > 96 >= request.output_length


def test_bursty_comes_and_goes():
    trace = named_trace("bursty")
    assert all(request.arrival % 5 < 1 for request in trace)
    assert len({request.arrival // 5 for request in trace}) >= 4


def test_batch_is_there_at_once():
    trace = named_trace("batch")
    assert {request.arrival for request in trace} == {0.0}
    assert len({request.output_length for request in trace}) > 30


def test_four_requests_use_60_percent_of_a_static_batch():
    trace = named_trace("lengths-2-4-8-10")
    lengths = [request.output_length for request in trace]
    assert lengths == [2, 4, 8, 10]
    assert lengths == [request.max_new_tokens for request in trace]
    assert {request.arrival for request in trace} == {0.0}
    assert len({len(request.prompt) for request in trace}) == 1
    assert sum(lengths) / (len(lengths) * max(lengths)) == 0.6


@pytest.mark.parametrize("name", NAMED_TRACES)
def test_named_traces_take_a_vocabulary(name):
    assert max(max(request.prompt) for request in named_trace(name)) < 512
    small = named_trace(name, vocab_size=7)
    assert max(max(request.prompt) for request in small) < 7
    assert "\n" not in NAMED_TRACES[name].description


# Summaries


def test_a_summary_by_hand():
    def request(id, arrival, prompt, output):
        return Request(id, arrival, tuple(prompt), 50, output)

    head = list(range(40))
    trace = [
        request(0, 2.0, head, 5),
        request(1, 2.5, [*head[:33], 7], 1),  # two blocks found
        request(2, 1.0, [*head[:15], 0, 0], 3),  # comes first, whatever its place in the list
        request(3, 9.0, [0, *head], 11),  # one token shifts all blocks: none found
    ]
    summary = summarize_trace(trace)
    assert (summary.num_requests, summary.span) == (4, 8.0)
    assert summary.prompts == {"mean": 33.0, "p50": 34, "p90": 41, "max": 41}
    assert summary.outputs == {"mean": 5.0, "p50": 3, "p90": 11, "max": 11}
    assert summary.reusable_share == 32 / 132


def test_percentiles_of_a_hundred_and_of_one():
    hundred = [Request(i, 0.0, (1,) * (i + 1), 1, 1) for i in range(100)]
    assert summarize_trace(hundred).prompts == {"mean": 50.5, "p50": 50, "p90": 90, "max": 100}
    assert summarize_trace(hundred[6:7]).prompts == {"mean": 7.0, "p50": 7, "p90": 7, "max": 7}


def test_a_block_in_another_place_is_no_prefix():
    a, b = tuple(range(16)), tuple(range(16, 32))
    prompts = [a + b, b + b, b + a + a, a + b]
    trace = [Request(i, 0.0, prompt, 1, 1) for i, prompt in enumerate(prompts)]
    assert summarize_trace(trace).reusable_share == (16 + 32) / 144


# Errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_requests": 0}, "num_requests: expected at least 1, got 0"),
        ({"rate": 0}, "rate: expected requests per second > 0, got 0"),
        ({"rate": math.nan}, "rate: .*got nan"),
        ({"seed": -1}, "seed: expected an integer ≥ 0, got -1"),
        ({"seed": "1"}, "seed: expected an integer ≥ 0, got '1'"),
        ({"vocab_size": 1}, "vocab_size: expected at least 2, got 1"),
        ({"share": 1.1}, "share: expected a probability from 0 to 1, got 1.1"),
        ({"share": 0.5}, "num_system_prompts: expected at least 1 .*, got 0"),
        ({"num_system_prompts": -1}, "num_system_prompts: expected at least 0 .*, got -1"),
        ({"share": 0.5, "num_system_prompts": 1}, "system_prompt_length: expected at least 1"),
        ({"on": 0}, "on: expected seconds > 0, got 0"),
        ({"off": math.inf}, "off: expected seconds ≥ 0, got inf"),
    ],
)
def test_impossible_traces_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        generate_trace(**FITS | change)


@pytest.mark.parametrize(
    ("law", "message"),
    [
        ((5, 1, 0, 9), "low, high: expected 1 ≤ low ≤ high, got .0, 9."),
        ((5, 1, 9, 3), "low, high: .*9, 3"),
        ((50, 1, 1, 9), "median: expected low to high, got 50"),
        ((5, -1, 1, 9), "sigma: expected a number ≥ 0, got -1"),
        ((5, math.inf, 1, 9), "sigma: .*got inf"),
    ],
)
def test_impossible_lengths_are_refused(law, message):
    with pytest.raises(ValueError, match=message):
        Lengths(*law)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arrival": -0.1}, "arrival: expected seconds ≥ 0, got -0.1"),
        ({"arrival": math.nan}, "arrival: .*nan"),
        ({"prompt": ()}, "prompt: expected a tuple of at least one token id, got ()"),
        ({"prompt": [1, 2]}, "prompt: .*1, 2"),
        ({"prompt": (1, -2)}, "prompt: .*1, -2"),
        ({"max_new_tokens": 0}, "max_new_tokens: expected at least 1, got 0"),
        ({"output_length": 0}, "output_length: expected 1 to max_new_tokens = 4, got 0"),
        ({"output_length": 5}, "output_length: expected 1 to max_new_tokens = 4, got 5"),
    ],
)
def test_impossible_requests_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(Request(0, 0.0, (1, 2), 4, 3), **change)


def test_an_unknown_name_is_answered_with_the_names():
    with pytest.raises(ValueError, match="name: .*chat.*bursty.*lengths-2-4-8-10, got 'chatt'"):
        named_trace("chatt")


def test_an_empty_trace_has_no_summary():
    with pytest.raises(ValueError, match="trace: expected at least one request"):
        summarize_trace([])
