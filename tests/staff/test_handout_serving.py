"""The numbers of the chapter on serving once more, by other words; what it says of the parts."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, comb

import pytest

from assignment.provided.data.traces import Request, named_trace
from assignment.provided.review.numbers import Blocks, Rows
from assignment.provided.serving import CountedBlocks, Step, drive
from solutions.serving.paged_cache import PagedCache
from solutions.serving.scheduler import Scheduler
from tests.accounting.review.key import KEYS
from tests.staff.test_handout import query
from tests.staff.test_handout_numbers import (
    BANDWIDTH,
    MEMORY,
    PEAK,
    D,
    H,
    L,
    N,
    S,
    V,
    model_flops,
    parameters,
    step_bytes,
)

KV = 2 * L * N * H * 2  # bytes a token
DECODES, PROMPT = 32, 4096


@pytest.fixture(scope="module")
def facts():
    [facts] = query("facts")
    return facts


def test_waste(facts):
    """Every remainder once: a sequence of n tokens, for all n that need the same last block."""
    for mean, row in zip((256, 1024), facts["waste"], strict=True):
        for block, share in zip((1, 8, 16, 32, 64, 128), row, strict=True):
            empty = Fraction(sum(-n % block for n in range(block)), block)
            assert share == pytest.approx(float(empty / (mean + empty)), rel=1e-12)


def test_almost_two_thirds_of_the_reservations_are_empty():
    trace = named_trace("batch")
    used = sum(len(request.prompt) + request.output_length for request in trace)
    reserved = sum(len(request.prompt) + request.max_new_tokens for request in trace)
    assert 0.63 < 1 - used / reserved < 2 / 3


def test_sharing_is_what_the_cache_and_the_review_count(facts):
    cache = PagedCache(1000, 16)
    cache.open(0, range(1000))
    cache.commit(0, 1000)
    for sample in (1, 2, 3):
        cache.fork(0, sample)
    copies = [pair for sample in range(4) for pair in cache.append(sample, range(100))]
    full, own = facts["shared-blocks"]["full"], facts["shared-blocks"]["own"]
    assert cache.num_blocks - cache.num_free == full + 4 * own == 90
    assert len(copies) == 3  # one for all but one
    key = KEYS["q9"](Blocks(16, 1000, 4, 100, (2, 4, 8, 10)))
    assert key["shared"].value == full + 4 * own
    assert key["apart"].value == facts["separate-blocks"] == 4 * ceil(1100 / 16)
    assert key["useful"].value == facts["useful-share"] == 24 / 40
    assert [r.output_length for r in named_trace("lengths-2-4-8-10")] == [2, 4, 8, 10]


def test_rows_and_scores_are_those_of_the_review(facts):
    key = KEYS["q10"](Rows((3, 9, 5)))
    assert facts["rows"] == [key["rows"].value, key["padded_rows"].value]
    assert facts["scores"] == [key["scores"].value, key["padded_scores"].value]


def test_the_longest_of_a_batch(facts):
    """The mean of the largest of B exponential numbers, by inclusion and exclusion."""
    for batch, share in zip((4, 16, 64), facts["useful-share-exponential"], strict=True):
        longest = sum(Fraction((-1) ** (k + 1) * comb(batch, k), k) for k in range(1, batch + 1))
        assert share == pytest.approx(float(1 / longest), rel=1e-12)


def test_timelines(facts):
    """Each seat is taken by the next request as soon as its own has ended, or only all at once."""
    static, continuous = facts["timelines"]
    assert (static["requests"], static["slots"]) == (continuous["requests"], continuous["slots"])
    lengths = [(2, 4, 8, 10)[i % 4] for i in range(static["requests"])]
    seats = [0] * static["slots"]
    for length in lengths:
        seats[seats.index(min(seats))] += length
    steps = {"static": sum(lengths[3::4]), "continuous": max(seats)}
    for name, counts in zip(steps, (static, continuous), strict=True):
        assert counts["steps"] == steps[name]
        assert counts["useful"] == round(100 * sum(lengths) / (4 * steps[name]))


def test_batches_in_a_share_of_the_memory(facts):
    for held, seat in zip((0.204, 0.268, 0.382, 0.963), facts["seats"], strict=True):
        free = (MEMORY - 2 * parameters(N)) * held
        assert seat["batch"] * S * KV <= free < (seat["batch"] + 1) * S * KV
        seconds = step_bytes(N, seat["batch"]) / BANDWIDTH
        assert seat["seconds"] == pytest.approx(seconds, rel=1e-12)
        assert seat["throughput"] == pytest.approx(seat["batch"] / seconds, rel=1e-12)


def prompt_flops(new, held):
    """All layers, no head: the rows and pairs of a chunk."""
    return model_flops(new, held) - 2 * new * V * D


def step_seconds(chunk, held):
    flops = DECODES * model_flops(1, S - 1) + prompt_flops(chunk, held) + 2 * V * D
    moved = step_bytes(N, DECODES) + held * KV
    return max(flops / PEAK, moved / BANDWIDTH)


def test_what_the_budget_trades(facts):
    budgets = (64, 128, 256, 512, 1024, 2048, 4128)
    for budget, result in zip(budgets, facts["chunked"], strict=True):
        held, steps = 0, []
        while held < PROMPT:
            chunk = min(budget - DECODES, PROMPT - held)
            steps.append(step_seconds(chunk, held))
            held += chunk
        assert result["steps"] == len(steps)
        assert result["ttft"] == pytest.approx(sum(steps), rel=1e-12)
        assert result["gap"] == pytest.approx(max(steps), rel=1e-12)
    assert facts["decodes-alone"] == pytest.approx(step_seconds(0, 0), rel=1e-12)
    gaps = {budget: result["gap"] for budget, result in zip(budgets, facts["chunked"], strict=True)}
    assert max(gaps[b] for b in budgets[:4]) < 1.1 * facts["decodes-alone"]  # nearly free
    assert gaps[1024] > 1.8 * facts["decodes-alone"]


def test_swapped_and_found(facts):
    assert facts["swap"] == pytest.approx(S * KV / 64e9, rel=1e-12)
    flops = prompt_flops(96, 4000) + 2 * V * D
    moved = 2 * parameters(N) + 4000 * KV
    assert facts["prefix-hit"] == pytest.approx(max(flops / PEAK, moved / BANDWIDTH), rel=1e-12)
    assert 4000 % 16 == 0 and 4000 + 96 == 4096


# --- the table by hand ---------------------------------------------------------------------------


class WatchedScheduler(Scheduler):
    """Notes how many blocks are in use once a step is planned."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.in_use = []

    def schedule(self) -> Step:
        step = super().schedule()
        self.in_use.append(self.cache.num_blocks - self.cache.num_free)
        return step


def test_the_table_by_hand_is_what_a_scheduler_does(facts):
    [schedule] = query("schedule")
    server, names = schedule["server"], dict(enumerate(schedule["requests"]))
    told = list(schedule["requests"].values())
    requests = [
        Request(i, 0.0, tuple(range(100 * i, 100 * i + r["prompt"])), r["new"], r["new"])
        for i, r in enumerate(told)
    ]
    for kind in (CountedBlocks, PagedCache):  # with a prefix cache, C finds nothing
        cache = kind(server["blocks"], server["block"])
        scheduler = WatchedScheduler(cache, server["max-tokens"], server["max-sequences"])
        steps = drive(scheduler, requests, [r["arrival"] - 1 for r in told])
        assert [as_told(step, names) for step in steps] == schedule["steps"]
        assert scheduler.in_use == facts["server-blocks"]
        assert cache.num_free == cache.num_blocks
    rows, least = sum(step.num_tokens for step in steps), 6 + 4 + 6 + 4 + 8 + 2
    assert (rows, least) == (38, 30)  # C's eight computed tokens again


def as_told(step, names):
    return {
        "chunks": [[names[c.request], c.start, len(c.tokens), c.samples] for c in step.chunks],
        "preempted": [names[number] for number in step.preempted],
        "waiting": [names[number] for number in step.waiting],
    }


# --- what the text says --------------------------------------------------------------------------


def test_a_refusal_counts_hits_out_of_the_free_blocks():
    """Five free blocks of which two are hits, four others needed."""
    cache = PagedCache(6, 4)
    cache.open(0, range(8))
    cache.commit(0, 8)
    cache.close(0)
    cache.open(1, [99])
    assert cache.num_free == 5
    with pytest.raises(RuntimeError, match="4 more blocks"):
        cache.open(2, [*range(8), *range(50, 66)])
    assert cache.num_free == 5
    assert cache.open(2, [*range(8), *range(50, 62)]) == 8 and cache.num_free == 0


def test_a_prompt_of_whole_blocks_leaves_one_to_compute():
    cache = PagedCache(9, 4)
    cache.open(0, range(12))
    cache.commit(0, 12)
    assert cache.open(1, range(12)) == 8
    assert cache.open(2, range(9)) == 8  # block 4, prompt 9, two cached: one row
