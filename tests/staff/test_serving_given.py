"""assignment/provided/serving: samplings, answers, counted blocks and scripts."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
import torch

from assignment.provided.serving import (
    Answer,
    Completion,
    CountedBlocks,
    Outcome,
    OutOfBlocks,
    Sampling,
    run_script,
)
from assignment.provided.serving.drive import TellingBlocks

# --- Sampling: what a request may ask for, and the numbers that draw its tokens -------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("max_new_tokens", value) for value in (0, -1)),
        *(("n", value) for value in (0, -3)),
        *(("temperature", value) for value in (-0.1, math.inf, math.nan)),
        *(("top_k", value) for value in (0, -1)),
        *(("top_p", value) for value in (0, -0.5, 1.001, math.nan)),
    ],
)
def test_a_sampling_that_makes_no_sense_names_its_field(field, value):
    with pytest.raises(ValueError, match=rf"^{field}: expected .*, got {value}$"):
        Sampling(**{field: value})


def test_the_ends_of_what_makes_sense():
    Sampling(max_new_tokens=1, temperature=0, top_k=1, top_p=1e-9, n=1)
    Sampling(temperature=1e9, top_k=None, top_p=1)
    with pytest.raises(FrozenInstanceError):
        Sampling().n = 2


SEEDS = (0, 1, 2**40, -5)


def streams():
    """For each of 10,000 (answer, token): its numbers under a few seeds."""
    places = [(sample, index) for sample in range(100) for index in range(100)]
    samplings = [Sampling(seed=seed) for seed in SEEDS]
    return [tuple(sampling.uniform(*place) for sampling in samplings) for place in places]


def test_uniforms_are_multiples_of_a_step_that_float32_holds():
    for numbers in streams():
        for u in numbers:
            assert 0 <= u < 1 and (u * 2**24).is_integer()
            assert torch.tensor(u, dtype=torch.float32).item() == u


def test_every_token_of_every_answer_has_numbers_of_its_own():
    found = streams()
    assert len(set(found)) == len(found)  # also (1, 23) and (12, 3)
    for numbers in zip(*found, strict=True):  # four hash collisions in 10⁴ draws of 2²⁴ are usual
        assert len(set(numbers)) > len(numbers) - 50


def test_uniforms_are_uniform_and_uncorrelated():
    numbers = torch.tensor(streams(), dtype=torch.float64)
    n = len(numbers)
    for column in numbers.T:
        # Hoeffding: off by more than 0.03 with probability 2·exp(−18); the hash is fixed besides.
        assert column.mean().item() == pytest.approx(1 / 2, abs=0.03)
        assert column.var().item() == pytest.approx(1 / 12, abs=0.01)
        for tenth in range(10):
            share = ((column * 10).floor() == tenth).double().mean().item()
            assert share == pytest.approx(0.1, abs=0.02)
    neighbours = [*numbers.T, numbers[:, 0].roll(1), numbers[:, 0].roll(100)]  # a token, an answer
    correlations = torch.corrcoef(torch.stack(neighbours)).fill_diagonal_(0)
    assert correlations.abs().max() < 5 / math.sqrt(n)


def test_uniforms_depend_on_the_seed_and_the_place_alone():
    plain = Sampling(seed=7)
    other = Sampling(100, 1.5, 5, 0.9, 7, n=8, stop_tokens=(1,), logprobs=True)
    assert [plain.uniform(0, i) for i in range(9)] == [other.uniform(0, i) for i in range(9)]
    assert plain.uniform(3, 4) != replace(plain, seed=8).uniform(3, 4)
    assert plain.uniform(0, 0) == 0x067821 / 2**24  # printf '7 0 0' | sha256sum


# --- Answer --------------------------------------------------------------------------------------

FLAT = torch.zeros(10)


def answer(sample=0, told=None, **fields):
    return Answer(Sampling(**fields), sample, told)


def test_an_answer_ends_with_its_last_token():
    one = answer(max_new_tokens=3)
    for token in (4, 5):
        one.take(token, FLAT)
        assert not one.finished and one.completion == Completion(tuple(one.tokens), None, ())
    one.take(6, FLAT)
    assert one.finished and one.completion == Completion((4, 5, 6), "length", ())


def test_an_answer_ends_with_a_stop_token_which_stays():
    one = answer(max_new_tokens=3, stop_tokens=(9, 5))
    one.take(4, FLAT)
    one.take(5, FLAT)
    assert one.completion == Completion((4, 5), "stop")
    both = answer(max_new_tokens=1, stop_tokens=(5,))
    both.take(5, FLAT)
    assert both.finish_reason == "stop"
    first = answer(max_new_tokens=1)
    first.take(5, FLAT)
    assert first.finish_reason == "length"


def test_an_answers_uniform_is_that_of_its_next_token():
    one = answer(sample=2, seed=3)
    for index in range(3):
        assert one.uniform == Sampling(seed=3).uniform(2, index)
        one.take(0, FLAT)


def test_logprobs_are_the_models_own_in_float64():
    logits = torch.tensor([0.0, 30.0, -30.0, 29.5])
    exact = [float(x) - math.log(sum(math.exp(float(y)) for y in logits)) for x in logits]
    one = answer(logprobs=True, temperature=0.2, top_k=1)  # filters change nothing
    for token in range(4):
        one.take(token, logits.to(torch.bfloat16))
    assert one.logprobs == pytest.approx(exact, rel=1e-12)
    assert answer().logprobs == []


def test_an_answer_tells_of_its_newest_token():
    told = []
    one = answer(3, lambda *what: told.append(what))
    for token in (7, 7, 1):
        one.take(token, FLAT)
        one.tell()
    assert told == [(3, 7), (3, 7), (3, 1)]
    answer().tell()  # nobody to tell


# --- Blocks that are only counted ----------------------------------------------------------------


def test_a_request_needs_as_many_blocks_as_its_tokens_fill():
    cache = CountedBlocks(10, 4)
    assert (cache.num_blocks, cache.block_size, cache.num_free) == (10, 4, 10)
    assert cache.open(0, [1] * 4) == 0 and cache.num_free == 9
    assert cache.append(0, [1]) == [] and cache.num_free == 8
    cache.append(0, [1] * 3)
    assert cache.num_free == 8
    cache.commit(0, 8)
    cache.fork(0, 1)
    assert cache.num_free == 6  # nothing is shared
    cache.close(0)
    assert cache.num_free == 8
    cache.close(1)
    assert cache.num_free == 10
    with pytest.raises(KeyError):
        cache.close(1)


def test_a_refusal_changes_nothing():
    cache = CountedBlocks(3, 4)
    cache.open(0, [1] * 8)
    refused = [
        (OutOfBlocks, cache.open, (1, [1] * 5)),
        (OutOfBlocks, cache.append, (0, [1] * 5)),
        (OutOfBlocks, cache.fork, (0, 1)),
        (ValueError, cache.open, (0, [1])),
        (ValueError, cache.fork, (0, 0)),
    ]
    for kind, call, arguments in refused:
        with pytest.raises(kind, match="request [01] "):
            call(*arguments)
        assert cache.num_free == 1
    cache.append(0, [1] * 4)
    assert cache.num_free == 0


def test_a_prefix_counts_as_computed_and_needs_its_blocks():
    cache = CountedBlocks(4, 4, lambda tokens: 4 * (tokens[:4] == [1, 2, 3, 4]))
    assert cache.open(0, (1, 2, 3, 4, 5)) == 4 and cache.open(1, (1, 2, 3)) == 0
    assert cache.num_free == 1


def test_telling_blocks_tell_what_they_were_told():
    cache = TellingBlocks(
        4, 4, lambda tokens: 4 * (tokens[0] == 1), lambda request: [(request, 9)] * (request == 2)
    )
    assert [cache.open(0, [1, 2, 3, 4, 5]), cache.open(2, [2])] == [4, 0]
    assert cache.held == {0: ([1, 2, 3, 4, 5], 4), 2: ([2], 0)}
    assert [cache.append(0, [6]), cache.append(2, [3])] == [[], [(2, 9)]]
    cache.commit(0, 2)
    cache.commit(2, 1)
    assert cache.held == {0: ([1, 2, 3, 4, 5, 6], 6), 2: ([2, 3], 1)}
    before = dict(cache.held)
    for refused in (cache.fork, cache.append):
        with pytest.raises(OutOfBlocks):
            refused(0, 1 if refused == cache.fork else [0] * 9)
    assert cache.held == before
    cache.close(0)
    cache.fork(2, 5)
    assert cache.held == {2: ([2, 3], 1), 5: ([2, 3], 1)} and cache.num_free == 2


def test_out_of_blocks_says_who_needs_what():
    error = OutOfBlocks(7, 3, 2)
    assert str(error) == "request 7 needs 3 more blocks, 2 are free"
    assert isinstance(error, RuntimeError) and not isinstance(error, ValueError)
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(other) is OutOfBlocks and str(other) == str(error)
        assert (other.request, other.needed, other.free) == (7, 3, 2)


# --- Scripts -------------------------------------------------------------------------------------


class Toy:
    """A cache that runs over: what it holds is what it was told."""

    def __init__(self):
        self.held: dict[int, list[int]] = {}

    num_free = property(lambda self: 9 - len(self.held))

    def open(self, request, tokens):
        if not tokens:
            raise ValueError("no tokens")
        if request in self.held:
            raise OutOfBlocks(request, 1, 0)
        self.held[request] = list(tokens)
        return 10 * request

    def fork(self, request, new_request):
        self.held[new_request] = self.held[request]

    def close(self, request):
        del self.held[request]

    def table(self, request):
        return self.held[request]

    def length(self, request):
        return len(self.held[request])

    def computed(self, request):
        return len(self.held[request]) - 1


def test_a_script_notes_what_came_and_how_the_cache_was_left():
    calls = [("open", [2, [5, 6]]), ("open", [1, []]), ("open", [2, [7]]), ("fork", [2, 0])]
    outcomes = run_script(Toy(), [*calls, ("close", [2]), ("open", [2, [8]])])
    two = {"tables": {2: [5, 6]}, "lengths": {2: 2}, "computed": {2: 1}, "num_free": 8}
    assert outcomes[:3] == [
        Outcome(20, "", "", **two),
        Outcome(None, "ValueError", "no tokens", **two),
        Outcome(None, "OutOfBlocks", "request 2 needs 1 more blocks, 0 are free", **two),
    ]
    assert [list(outcome.tables) for outcome in outcomes] == [[2], [2], [2], [0, 2], [0], [0, 2]]
    assert outcomes[0].tables == {2: [5, 6]}  # a copy, and not what the cache has later


def test_a_commit_without_a_count_is_of_all_that_is_left():
    cache = Toy()
    cache.commit = lambda request, count: (request, count)
    _, done = run_script(cache, [("open", [3, [5, 6, 7]]), ("commit", [3])])
    assert done.value == (3, 1)  # of three tokens the toy has two
    assert run_script(cache, [("commit", [3, 0])])[0].value == (3, 0)


@pytest.mark.parametrize(
    "call", [("open", [0]), ("close", [5]), ("no_such_method", []), ("table", [5])]
)
def test_a_fault_of_the_cache_ends_the_script(call):
    with pytest.raises((TypeError, KeyError, AttributeError)):
        run_script(Toy(), [call])
