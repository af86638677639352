"""assignment/provided/serving: steps, `drive`, model parts, and all of it on the wire."""

from __future__ import annotations

import json
from collections import Counter

import pytest
import torch

from assignment.provided.data.traces import Request, named_trace
from assignment.provided.models import LlamaConfig
from assignment.provided.serving import (
    Chunk,
    Completion,
    CountedBlocks,
    ModelParts,
    Outcome,
    OutOfBlocks,
    Sampling,
    Step,
    drive,
)
from solutions.serving.scheduler import Scheduler
from tests.grading.transport.wire import Blob, Codec, WireError

# --- Steps ---------------------------------------------------------------------------------------


def test_a_chunk_ends_before_its_stop_and_a_step_counts_its_rows():
    chunk = Chunk(3, 5, (7, 8, 9), True)
    assert chunk.stop == 8
    assert Step((chunk, Chunk(4, 0, (1,), False))).num_tokens == 4
    assert Step() == Step((), (), (), ()) and Step().num_tokens == 0


# --- drive ---------------------------------------------------------------------------------------


class OneByOne:
    """Serves one request after the other, a token a step, and notes all that it is told."""

    def __init__(self):
        self.notes: list[tuple] = []
        self._queue: list[list] = []  # [request, tokens, how many are computed]

    def add(self, request, tokens, max_new_tokens):
        self.notes.append(("add", request, list(tokens), max_new_tokens))
        self._queue.append([request, list(tokens), 0])

    def schedule(self):
        self.notes.append(("schedule",))
        if not self._queue:
            return Step()
        request, tokens, computed = self._queue[0]
        self._queue[0][2] = len(tokens)
        return Step((Chunk(request, computed, tuple(tokens[computed:]), True),))

    def commit(self, new_tokens):
        self.notes.append(("commit", dict(new_tokens)))
        self._queue[0][1].append(new_tokens[self._queue[0][0]])

    def remove(self, request):
        self.notes.append(("remove", request))
        del self._queue[0]


def requests(*lengths):
    return [Request(i, 0.0, (i + 1, 5), 9, length) for i, length in enumerate(lengths)]


def test_every_request_is_driven_to_its_end_and_removed():
    scheduler = OneByOne()
    steps = drive(scheduler, requests(2, 1, 3))
    assert [chunk.request for step in steps for chunk in step.chunks] == [0, 0, 1, 2, 2, 2]
    names = [name for name, *_ in scheduler.notes]
    turn = ["schedule", "commit"]
    end = [*turn, "remove"]
    assert names == ["add"] * 3 + turn + end + end + turn + turn + end
    assert scheduler.notes[1] == ("add", 1, [2, 5], 9)  # the limit, and not the real length
    assert [note[1] for note in scheduler.notes if note[0] == "remove"] == [0, 1, 2]


def test_tokens_are_made_up_and_every_one_comes_back():
    scheduler = OneByOne()
    steps = drive(scheduler, requests(3, 3))
    given = [token for name, *rest in scheduler.notes if name == "commit" for token in rest[0]]
    assert Counter(given) == {0: 3, 1: 3}
    tokens = [t for name, *rest in scheduler.notes if name == "commit" for t in rest[0].values()]
    assert all(0 <= token < 50_000 for token in tokens)
    assert len({*tokens[:3]}) == 3 and tokens[:3] != tokens[3:]
    again = OneByOne()
    assert drive(again, requests(3, 3)) == steps and again.notes == scheduler.notes


def test_requests_arrive_before_their_step():
    scheduler = OneByOne()
    steps = drive(scheduler, requests(1, 1, 2), arrivals=[0, 3, 3])
    assert [len(step.chunks) for step in steps] == [1, 0, 0, 1, 1, 1]
    at = [i for i, note in enumerate(scheduler.notes) if note[0] == "add"]
    before = [sum(note[0] == "schedule" for note in scheduler.notes[:i]) for i in at]
    assert before == [0, 3, 3]
    late = drive(OneByOne(), requests(1), arrivals=[4])
    assert [step == Step() for step in late] == [True] * 4 + [False]


def test_nothing_to_drive_is_no_step():
    assert drive(OneByOne(), []) == []


@pytest.mark.parametrize("step", [Step(), Step((Chunk(0, 0, (1,), False),))], ids=["idle", "busy"])
def test_a_scheduler_that_never_ends_is_stopped(step):
    class Endless(OneByOne):
        def schedule(self):
            return step

        def commit(self, new_tokens):
            assert new_tokens == {}

    assert drive(Endless(), requests(2), most_steps=50) == [step] * 50


@pytest.mark.parametrize("number", [7, 0], ids=["unknown", "finished"])
def test_a_token_for_nobody_is_the_end(number):
    class Generous(OneByOne):
        def schedule(self):
            chunks = [*super().schedule().chunks, Chunk(number, 0, (1,), True)]
            return Step(tuple(chunks[-2:]))

    steps = drive(Generous(), requests(1, 4), most_steps=50)
    assert 1 <= len(steps) <= 4  # and no KeyError


def test_the_reference_is_driven_through_a_trace():
    trace = named_trace("lengths-2-4-8-10")
    steps = drive(Scheduler(CountedBlocks(10, 16), 64, 4), trace)
    given = Counter(chunk.request for step in steps for chunk in step.chunks if chunk.samples)
    assert given == {request.id: request.output_length for request in trace}
    rows = sum(step.num_tokens for step in steps)
    assert rows == sum(len(r.prompt) + r.output_length - 1 for r in trace)


# --- On the wire ---------------------------------------------------------------------------------


class WithFunctions(Codec):
    """As a session's, functions stay on their side."""

    def __init__(self):
        self.functions = []

    def encode_other(self, value):
        if not callable(value):
            return super().encode_other(value)
        self.functions.append(value)
        return {"$": "callback", "id": len(self.functions) - 1}

    def decode_other(self, kind, message):
        return self.functions[message["id"]]


def there_and_back(value):
    codec, blobs = WithFunctions(), []
    message = json.loads(json.dumps(codec.encode(value, blobs)))
    return codec.decode(message, Blob(b"".join(blobs)))


CONFIG = LlamaConfig(
    vocab_size=8, num_layers=1, d_model=4, num_heads=2, num_kv_heads=1, head_dim=2, d_ff=8
)
CHUNK = Chunk(3, 5, (7, 8), True)
VALUES = [
    CHUNK,
    Step((CHUNK, Chunk(0, 0, (1,), False)), ((1, 2), (1, 3)), (4, 2), (2, 4, 9)),
    Step(),
    Sampling(5, 0.7, None, 0.9, 2**70, 3, (1, 2), True),
    Completion((1, 2), "length", (-0.1, -2.5)),
    Completion(),
    Outcome([(1, 2)], "", "", {0: [1, 2], 5: []}, {0: 3, 5: 0}, {0: 2, 5: 0}, 7),
    Outcome(None, "OutOfBlocks", "request 1 …", {}, {}, {}, 0),
    *requests(4),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_the_parts_say_to_each_other_crosses_unchanged(value):
    got = there_and_back({"it": [value]})["it"][0]
    assert got == value and type(got) is type(value)
    if isinstance(value, Step):
        assert all(type(chunk) is Chunk for chunk in got.chunks)


def test_a_models_parts_are_functions_that_stay_where_they_are():
    def hidden(tokens, positions, attend):
        return attend(0, tokens, tokens, tokens) + positions

    parts = ModelParts(CONFIG, torch.bfloat16, hidden, logits=torch.neg)
    got = there_and_back(parts)
    assert got == parts and got.hidden is hidden and got.logits is torch.neg
    one = torch.ones(1, 2)
    assert torch.equal(got.hidden(one, one, lambda layer, q, k, v: q + k + v), 4 * one)


def test_a_sampling_that_makes_no_sense_does_not_cross():
    message = Codec().encode(Sampling(), [])
    message["fields"] = [[n, 0 if n == "n" else v] for n, v in message["fields"]]
    with pytest.raises(ValueError, match="n: expected at least 1"):
        Codec().decode(message, Blob(b""))


def test_an_exception_does_not_cross_as_a_value():
    with pytest.raises(WireError, match="OutOfBlocks cannot cross"):
        Codec().encode(OutOfBlocks(1, 2, 3), [])
