"""What requests did in which steps, and static batching: by hand, and by a simulation."""

from __future__ import annotations

from itertools import pairwise

from assignment.provided.data.traces import named_trace
from assignment.provided.serving import count_steps, static_steps
from assignment.provided.serving.spans import read_steps
from tests.staff.test_serving_picture import BY_HAND, repeated, under_pressure

# What the steps were.


def test_spans_by_hand():
    found = {
        request: [(span.kind, span.first, span.tokens) for span in history.spans]
        for request, history in read_steps(BY_HAND).items()
    }
    assert found == {
        0: [("prefill", 0, (5,)), ("decode", 1, (1, 1, 1))],
        1: [
            ("prefill", 0, (3, 2)),
            ("waiting", 2, (0, 0)),
            ("held", 4, (0,)),
            ("prefill", 5, (4,)),
        ],
        2: [
            ("waiting", 0, (0, 0)),
            ("prefill", 2, (3,)),
            ("held", 3, (0, 0)),
            ("prefill", 5, (1,)),
        ],
        3: [("decode", 3, (1,)), ("held", 4, (0,)), ("padding", 5, (1,))],
    }
    assert {r: h.preempted for r, h in read_steps(BY_HAND).items() if h.preempted} == {1: (2,)}


def test_counts_by_hand():
    counts = count_steps(BY_HAND, slots=4)
    assert (counts.steps, counts.slots, counts.useful, counts.tokens) == (5, 4, 10, 23)
    # Request 1 had five tokens and finds two of them; 2 found four, and the fork 3 eight.
    assert (counts.again, counts.found, counts.preempted) == (3, 2 + 4 + 8, 1)
    assert counts.useful_share == 10 / 20
    assert count_steps(BY_HAND).slots == 3
    assert (count_steps([]).useful_share, count_steps([]).tokens) == (0, 0)


def test_counts_are_those_of_a_simulation():
    steps = under_pressure()
    counts = count_steps(steps, 5)
    assert counts.preempted > 1 and counts.again > 0 and counts.found > 0
    held, once, again, found = {}, {}, 0, 0
    for step in steps:
        for number in step.preempted:
            held[number] = 0
        for each in step.chunks:
            have = held.get(each.request, 0)
            found += each.start - have
            positions = range(each.start, each.stop)
            again += sum(position in once.setdefault(each.request, set()) for position in positions)
            once[each.request] |= set(positions) | set(range(each.start))
            held[each.request] = each.stop
    assert (counts.again, counts.found) == (again, found)
    assert counts.useful == sum(len(step.chunks) for step in steps)


# Static batching.


def test_a_static_batch_of_2_4_8_10_uses_60_percent():
    counts = count_steps(static_steps(repeated(3), 4), 4)
    assert (counts.steps, counts.useful, counts.useful_share) == (30, 72, 0.6)
    assert counts.tokens == 3 * (4 * 5 + 4 * 9)  # the prompts, and four rows in nine steps


def test_static_batches_are_groups_in_order_of_arrival():
    trace = named_trace("batch")
    steps = static_steps(trace, 24)
    groups = [trace[:24], trace[24:48], trace[48:]]
    begins = 0
    for group in groups:
        longest = max(request.output_length for request in group)
        for step in steps[begins : begins + longest]:
            assert [each.request for each in step.chunks] == [request.id for request in group]
        begins += longest
    assert begins == len(steps)
    for request in trace:
        chunks = [each for step in steps for each in step.chunks if each.request == request.id]
        assert chunks[0].tokens == request.prompt
        assert [each.samples for each in chunks] == [
            index < request.output_length for index in range(len(chunks))
        ]
        assert all(len(each.tokens) == 1 for each in chunks[1:])
        assert all(a.stop == b.start for a, b in pairwise(chunks))


def test_a_static_batch_takes_those_that_are_there_and_the_others_wait():
    steps = static_steps(repeated(1), 3, arrivals=[2, 2, 3, 30])
    assert [len(step.chunks) for step in steps[:3]] == [0, 0, 2]
    assert [step.waiting for step in steps[3:6]] == [(2,)] * 3
    assert [each.request for each in steps[6].chunks] == [2]
    assert [len(step.chunks) for step in steps[14:31]] == [0] * 16 + [1]
