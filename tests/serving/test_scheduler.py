"""serving.scheduler: every step does what the policy in its docstring says, on any trace.

The cache only counts blocks. Whatever the scheduler does is followed by `scheduler_replay` and
judged, step by step, by `scheduler_rules`; each group holds it to rules of its own.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from submission.provided.serving.drive import TellingBlocks, drive
from submission.serving.scheduler import Scheduler
from tests.grading.boundary import watch
from tests.grading.closeness import assert_equal
from tests.serving.scheduler_replay import Limits
from tests.serving.scheduler_rules import BUDGET, ORDER, within_the_budget
from tests.serving.scheduler_traces import arrivals_of, live, number, ragged, requests_of, tight
from tests.serving.scheduler_watched import Bench

bench = Bench(Scheduler, TellingBlocks, drive)
watched, serve = bench.watched, bench.serve
SMALL = {"num_blocks": 10, "block_size": 4}


@pytest.mark.group("budget")
class TestBudget:
    @pytest.mark.parametrize("prompt", [1, 7, 8, 9, 16, 17, 30])
    def test_a_prompt_in_chunks(self, draw, prompt):
        """Of 9 tokens with room for 8 the last is still of the prompt: it has its block already."""
        server = watched(draw, {4: prompt}, rules=BUDGET, max_tokens=8, block_size=3)
        for chunk in [*(min(8, prompt - start) for start in range(0, prompt, 8)), 1, 1, 1]:
            server.step({4: chunk})

    def test_decodes_first_and_counted_once(self, draw):
        server = watched(draw, {5: 2, 3: 2, 1: 2}, rules=BUDGET, max_tokens=8)
        server.step({5: 2, 3: 2, 1: 2})
        server.add_prompts(draw, {2: 11})
        for prefill in (5, 5, 1, 1):
            server.step({5: 1, 3: 1, 1: 1, 2: prefill})

    def test_prefills_share_what_is_left(self, draw):
        server = watched(draw, {7: 5, 2: 9, 5: 30, 1: 4}, rules=BUDGET, max_tokens=16)
        server.step({7: 5, 2: 9, 5: 2})
        for _ in range(2):
            server.step({7: 1, 2: 1, 5: 14})
        server.step({7: 1, 2: 1, 5: 1, 1: 4})

    @pytest.mark.parametrize(
        "found, steps", [(8, [{0: 1, 1: 5}]), (4, [{0: 5, 1: 1}]), (0, [{0: 6}, {0: 3, 1: 3}])]
    )
    def test_what_the_prefix_cache_has_is_not_computed(self, draw, found, steps):
        """Blocks of 4 and a prompt of 9, two blocks of it found: one token is scheduled."""
        find = lambda tokens: found if len(tokens) == 9 else 0  # noqa: E731
        server = watched(draw, {0: 9, 1: 7}, rules=BUDGET, find=find, max_tokens=6)
        for tokens in steps:
            server.step(tokens)

    @pytest.mark.parametrize("most", [1, 2, 5, 17, 64])
    def test_any_trace(self, draw, most):
        for _ in range(2):
            limits = Limits(max_tokens=most, max_sequences=min(most, number(draw, 2, 8)))
            serve(limits, ragged(draw, 12), arrivals_of(draw, 12), BUDGET)

    def test_what_four_decodes_leave_is_used(self, draw):
        server = watched(draw, {1: 1, 2: 1, 3: 1, 4: 1}, max_tokens=5, max_sequences=5)
        server.step()
        server.add_prompts(draw, {5: 9})
        for _ in range(9):
            server.step({1: 1, 2: 1, 3: 1, 4: 1, 5: 1})

    def test_a_chunk_is_as_long_as_the_step_allows(self, draw):
        server = watched(draw, {1: 100, 2: 100}, max_tokens=73)
        for chunks in ({1: 73}, {1: 27, 2: 46}, {1: 1, 2: 54}):
            server.step(chunks)


@pytest.mark.group("order")
class TestOrder:
    def test_a_large_one_waits_and_nobody_overtakes(self, draw):
        """Small ones behind it would have room, now and in the steps to come."""
        server = watched(draw, {1: 12, 2: 9, 3: 30}, 4, rules=ORDER, **SMALL)
        server.step(waiting=[3])
        server.add_prompts(draw, {4: 2}, 2)
        server.step(waiting=[3, 4])
        server.add_prompts(draw, {5: 2}, 2)
        server.step(waiting=[3, 4, 5])
        server.remove(1)
        server.step(waiting=[3, 4, 5])  # 7 blocks are free, it needs 8
        server.remove(2)
        server.step({3: 30, 4: 2, 5: 2}, waiting=[])

    def test_only_the_cache_knows_what_is_free(self, draw):
        """Somebody else holds some of its blocks."""
        server = watched(draw, {0: 16, 1: 13, 2: 8}, 4, rules=ORDER, **SMALL, pinned=3)
        server.step({0: 16}, waiting=[1, 2])
        server.remove(0)
        server.step({1: 13, 2: 8}, waiting=[])

    def test_a_free_place_is_taken_in_the_next_step(self, draw):
        """Outputs of 2, 4, 8 and 10, again and again: static batches of 4 use 60% of the slots."""
        outputs = [2, 4, 8, 10] * 20
        requests = requests_of(draw, [5] * len(outputs), outputs)
        steps = len(serve(Limits(max_sequences=4), requests, rules=[]).plans)
        share = sum(outputs) / (4 * steps)
        assert share > 0.9, f"expected above 90% of the slots to give a token, got {share:.0%}"

    def test_any_trace(self, draw):
        """Decodes stay within the blocks that their prompts have: nobody is preempted."""
        for _ in range(8):
            prompts = [16 * number(draw, 0, 3) + number(draw, 1, 8) for _ in range(14)]
            requests = requests_of(draw, prompts, [number(draw, 1, 8) for _ in prompts])
            serve(tight(draw, requests, 16, least=1), requests, arrivals_of(draw, 14), ORDER)


@pytest.mark.group("preemption")
class TestPreemption:
    def test_the_last_arrived_goes(self, draw):
        """Each fills its block; one block is free for three that need one."""
        server = watched(draw, {8: 4, 5: 4, 6: 4}, 12, num_blocks=4, block_size=4)
        server.step({8: 4, 5: 4, 6: 4})
        server.step({8: 1, 5: 1}, preempted=[6], waiting=[6])

    def test_it_goes_in_the_middle_of_its_prefill(self, draw):
        server = watched(draw, {1: 4, 0: 15}, 5, num_blocks=5, block_size=4, max_tokens=5)
        server.step({1: 4, 0: 1})
        server.step({1: 1}, preempted=[0], waiting=[0])
        server.step({1: 1}, preempted=[], waiting=[0])
        server.remove(1)
        server.step({0: 5})

    def test_who_needs_a_block_and_is_the_last_goes_itself(self, draw):
        server = watched(draw, {2: 5, 9: 4}, 7, num_blocks=3, block_size=4)
        server.step({2: 5, 9: 4})
        server.step({2: 1}, preempted=[9], waiting=[9])

    def test_one_for_each_that_needs_a_block(self, draw):
        server = watched(draw, {0: 4, 1: 4, 4: 4, 3: 4, 2: 4}, 12, num_blocks=5, block_size=4)
        server.step({0: 4, 1: 4, 4: 4, 3: 4, 2: 4})
        server.step({0: 1, 1: 1}, preempted=[2, 3, 4], waiting=[4, 3, 2])

    def test_it_comes_back_before_those_that_came_later(self, draw):
        server = watched(draw, {5: 4, 4: 12, 3: 5}, 9, num_blocks=6, block_size=4, max_sequences=2)
        server.step({5: 4, 4: 12}, waiting=[3])
        for _ in range(4):
            server.step({5: 1, 4: 1}, waiting=[3])
        server.step({5: 1}, preempted=[4], waiting=[4, 3])
        server.remove(5)
        server.step({4: 17}, waiting=[3])

    @pytest.mark.parametrize("found", [0, 8])
    def test_all_is_computed_anew_but_what_is_found(self, draw, found):
        """The new tokens too, in chunks as any prompt; and the next token is the next."""
        find = lambda tokens: found if len(tokens) > 12 else 0  # noqa: E731
        server = watched(draw, {1: 3, 2: 12}, 15, find=find, **SMALL, max_tokens=6)
        while not server.replay.preempted and server.replay.num_steps < 30:
            server.step()
        server.remove(1)
        length = len(server.replay.requests[2].tokens)
        for start in range(found, length, 6):
            server.step({2: min(6, length - start)})
        server.step({2: 1})

    @pytest.mark.parametrize("block_size", [1, 4, 16])
    def test_any_trace(self, draw, block_size):
        for _ in range(8):
            requests = ragged(draw, 12, prompts=(1, 30), outputs=(1, 40), spare=number(draw, 0, 4))
            serve(tight(draw, requests, block_size), requests, arrivals_of(draw, 12))

    def test_many_at_once(self, draw):
        """Prompts of whole blocks: many need their next block in the same step."""
        for _ in range(4):
            prompts = [4 * number(draw, 1, 4) for _ in range(12)]
            requests = requests_of(draw, prompts, [number(draw, 8, 30) for _ in prompts])
            serve(replace(tight(draw, requests, 4), max_tokens=64), requests)


@pytest.mark.group("requests")
class TestRequests:
    @pytest.mark.parametrize("block_size", [1, 4, 16])
    def test_what_can_never_fit_is_refused_and_others_go_on(self, draw, block_size):
        room = 3 * block_size
        server = watched(draw, {1: 1}, 3, rules=[], num_blocks=3, block_size=block_size)
        for prompt, new in [(room + 1, 1), (1, room + 1), (room - 1, 3)]:
            with pytest.raises(ValueError) as refusal:
                server.scheduler.add(77, [5] * prompt, new)
            numbers = set(map(int, re.findall(r"\d+", str(refusal.value))))
            wanted = {77, prompt, new, 3, block_size}
            assert wanted <= numbers, f"expected {wanted} in the message, got: {refusal.value}"
        server.step({1: 1}, waiting=[])

    @pytest.mark.parametrize("prompt, new", [(12, 1), (1, 12), (7, 6)])
    def test_what_just_fits_runs_to_its_end(self, draw, prompt, new):
        """The last new token is never computed: it needs no room."""
        requests = requests_of(draw, [prompt, 3], [new, 2])
        plans = serve(Limits(num_blocks=3, block_size=4), requests, rules=[]).plans
        computed = sum(plan.num_tokens(requests[0].id) for plan in plans)
        assert_equal(computed, prompt + new - 1, what="tokens computed of the one that just fits")

    def test_requests_that_make_no_sense(self, draw):
        server = watched(draw, {3: 4, 5: 4}, rules=[], max_sequences=1)
        for _ in range(2):  # 3 and 5 wait; then 3 runs
            for refused in [(3, [1], 1), (5, [1, 2], 1), (6, [], 1), (6, [1], 0), (6, [1], -1)]:
                with pytest.raises(ValueError):
                    server.scheduler.add(*refused)
            server.step()
        server.step({3: 1}, waiting=[5])

    def test_who_is_removed_leaves_at_once(self, draw):
        """One that waits, one in its prefill, two that decode: the blocks are free for others."""
        server = watched(draw, {0: 7, 1: 20, 2: 9, 3: 28}, 2, rules=[], **SMALL, max_tokens=10)
        server.step({0: 7, 1: 3}, waiting=[2, 3])
        server.remove(2)
        server.step({0: 1, 1: 9}, waiting=[3])
        server.remove(1)
        server.step({0: 1, 3: 9}, waiting=[])
        for last in (0, 3):
            server.remove(last)
        server.step({}, preempted=[], waiting=[])

    def test_a_preempted_one_is_removed(self, draw):
        server = watched(draw, {0: 4, 1: 4, 2: 4}, 12, rules=[], num_blocks=4, block_size=4)
        server.step()
        server.step(preempted=[2])
        server.remove(2)
        for _ in range(3):
            server.step({0: 1, 1: 1}, waiting=[])

    def test_who_is_gone_cannot_be_removed_and_leaves_its_number(self, draw):
        server = watched(draw, {2: 3, 4: 3}, rules=[])
        server.step()
        server.remove(2)
        for stranger in (2, 7):
            with pytest.raises(ValueError):
                server.scheduler.remove(stranger)
        server.add_prompts(draw, {2: 8})
        server.step({4: 1, 2: 8})

    def test_steps_are_committed_once_each_and_empty_ones_never(self, draw):
        server = watched(draw, rules=[])
        for _ in range(2):
            server.step({}, preempted=[], waiting=[])
            with pytest.raises(RuntimeError):
                server.scheduler.commit({})
        server.add_prompts(draw, {1: 3})
        server.schedule()
        with pytest.raises(RuntimeError):
            server.scheduler.schedule()
        server.commit({1: 9})
        with pytest.raises(RuntimeError):
            server.scheduler.commit({1: 9})
        server.step({1: 1})

    def test_a_step_without_chunks_is_not_committed(self, draw):
        """Somebody else holds blocks: the only one has to go, and nothing is computed."""
        server = watched(draw, {1: 4}, 5, num_blocks=3, block_size=4, pinned=2)
        server.step({1: 4})
        server.step({}, preempted=[1], waiting=[1])
        with pytest.raises(RuntimeError):
            server.scheduler.commit({})
        server.step({}, preempted=[], waiting=[1])

    @pytest.mark.parametrize("max_tokens, max_sequences", [(8, 0), (8, 9), (0, 0), (8, -1)])
    def test_limits_that_make_no_sense(self, max_tokens, max_sequences):
        with pytest.raises(ValueError):
            Scheduler(TellingBlocks(4, 4), max_tokens, max_sequences)

    def test_a_number_that_is_used_again_arrives_anew(self, draw):
        server = watched(draw, {2: 3, 4: 3, 6: 3, 8: 3}, max_sequences=1)
        server.step({2: 3}, waiting=[4, 6, 8])
        server.remove(2)
        server.remove(6)
        server.step({4: 3}, waiting=[8])
        server.add_prompts(draw, {9: 3, 2: 3, 6: 3})
        server.step({4: 1}, waiting=[8, 9, 2, 6])

    def test_who_comes_after_some_have_left_the_queue_is_the_last(self, draw):
        server = watched(draw, dict.fromkeys(range(6), 3), max_sequences=1)
        server.step({0: 3}, waiting=[1, 2, 3, 4, 5])
        for gone in (1, 2, 3):
            server.remove(gone)
        server.add_prompts(draw, {7: 3, 3: 3})
        server.step({0: 1}, waiting=[4, 5, 7, 3])

    def test_tokens_for_other_requests_change_nothing(self, draw):
        server = watched(draw, {1: 3, 2: 4, 3: 6}, rules=[], max_tokens=9)
        server.schedule()  # 3 does not sample yet
        for wrong in ({}, {1: 5}, {1: 5, 2: 6, 3: 7}, {1: 5, 3: 6}):
            with pytest.raises(ValueError):
                server.scheduler.commit(wrong)
            server.check_cache(f"commit({wrong}) refused")
        server.commit({1: 5, 2: 6})
        server.step({1: 1, 2: 1, 3: 4})

    def test_lists_stay_the_callers(self, draw):
        _, changed = watch(watched(draw, rules=[]).scheduler.add, 4, [7, 8, 9], 3)
        assert changed == [], "add changed the list of tokens"
        one, *others = requests_of(draw, [6, 1, 1], [4, 4, 4])
        twins = [one, *(replace(other, prompt=one.prompt) for other in others)]
        serve(Limits(), twins, [0, 2, 4], rules=[])  # all three are added with the same list

    def test_any_life(self, draw):
        for _ in range(6):
            requests = ragged(draw, 12, prompts=(1, 30), outputs=(1, 30))
            server = watched(draw, **vars(tight(draw, requests, 4)))
            live(draw, server, requests, arrivals=arrivals_of(draw, 12), aborts=0.03)


@pytest.mark.group("forks")
class TestForks:
    def test_it_runs_at_once(self, draw):
        """And has its parent's tokens and blocks, but for the newest token."""
        server = watched(draw, {3: 6, 1: 4})
        server.step(token=5)
        server.fork(3, 8, 6)
        server.step(token=7)
        server.fork(8, 9, 4)
        server.remove(3)
        server.step({1: 1, 8: 1, 9: 1})

    def test_it_waits_where_no_more_may_run(self, draw):
        """Behind its parent, before those that came later; then all of it is computed."""
        server = watched(draw, {3: 6, 1: 4, 2: 7}, max_sequences=2)
        server.step(token=5)
        server.fork(3, 9, 6)
        server.step({3: 1, 1: 1}, waiting=[9, 2])
        server.remove(1)
        server.step({3: 1, 9: 7}, waiting=[2])

    def test_it_runs_before_those_that_wait(self, draw):
        server = watched(draw, {1: 6, 2: 32}, 4, num_blocks=9, block_size=4)
        server.step({1: 6}, waiting=[2])
        server.fork(1, 3, 6)
        server.step({1: 1, 3: 1}, waiting=[2])

    def test_order_of_forks(self, draw):
        """Behind the parent, its earlier forks and what was forked from those."""
        server = watched(draw, {7: 3, 6: 3}, max_sequences=3)
        server.step()
        for parent, child in [(7, 5), (7, 4), (5, 3), (6, 2), (7, 1)]:
            server.fork(parent, child, child)
        server.step({7: 1, 6: 1, 5: 1}, waiting=[3, 4, 1, 2])
        server.remove(4)
        server.fork(7, 0, 6)
        server.step({7: 1, 6: 1, 5: 1}, waiting=[3, 1, 0, 2])

    def test_who_came_after_the_parent_goes_before_its_fork(self, draw):
        server = watched(draw, {2: 7, 1: 4}, 9, num_blocks=6, block_size=4)
        server.step()
        server.fork(2, 3, 1)
        server.step({2: 1, 3: 1, 1: 1}, preempted=[])
        server.step({2: 1, 3: 1}, preempted=[1], waiting=[1])

    def test_nobody_comes_in_the_step_in_which_another_goes(self, draw):
        """The fork is the first to wait, and the one that goes leaves the two blocks it needs."""
        server = watched(draw, {0: 4, 1: 8}, 9, num_blocks=4, block_size=4, max_sequences=2)
        server.step()
        server.fork(0, 9, 1)
        server.step({0: 1}, preempted=[1], waiting=[9, 1])
        server.step({0: 1, 9: 5}, preempted=[], waiting=[1])

    def test_what_the_cache_wants_copied_is_in_the_step(self, draw):
        wanted = []

        def copies(request):
            wanted.append((request, 100 + len(wanted)))
            return wanted[-1:]

        server = watched(draw, {3: 5, 1: 4}, copies=copies)
        server.step()
        server.fork(3, 2, 9)
        for _ in range(2):
            wanted.clear()
            assert_equal(list(server.schedule().copies), wanted, what="Step.copies")
            server.commit({3: 1, 1: 1, 2: 1})

    def test_forks_come_behind_those_that_are_gone(self, draw):
        server = watched(draw, {7: 3, 6: 3}, max_sequences=3)
        server.step()
        for fork in (5, 4, 3, 1):
            server.fork(7, fork, fork)
        for gone in (4, 3):
            server.remove(gone)
        server.fork(7, 0, 6)
        server.step({7: 1, 6: 1, 5: 1}, waiting=[1, 0])

    def test_a_preempted_one_cannot_be_forked(self, draw):
        limits = {"num_blocks": 3, "block_size": 4, "max_tokens": 4, "max_sequences": 2}
        server = watched(draw, {1: 4, 2: 4}, 9, **limits)
        while not server.replay.preempted:
            server.step()
        with pytest.raises(ValueError):
            server.scheduler.fork(2, 9, 5)
        server.remove(1)
        server.step({2: 4})  # of five: in its prefill again
        with pytest.raises(ValueError):
            server.scheduler.fork(2, 9, 5)
        server.step({2: 1})

    def test_who_cannot_be_forked(self, draw):
        server = watched(draw, {1: 3, 2: 9, 3: 3, 4: 2}, rules=[], max_tokens=8, max_sequences=3)
        server.step()
        for parent, child in [(2, 9), (3, 9), (7, 9), (1, 1), (1, 2), (1, 4)]:
            with pytest.raises(ValueError):
                server.scheduler.fork(parent, child, 5)
        server.check_cache("forks refused")
        server.step({1: 1, 2: 4, 3: 3}, waiting=[4])

    def test_any_life(self, draw):
        for _ in range(8):
            requests = ragged(draw, 8, prompts=(1, 30), outputs=(1, 30))
            server = watched(draw, **vars(tight(draw, requests, 4)))
            live(draw, server, requests, arrivals=arrivals_of(draw, 8), aborts=0.01, forks=0.15)


@pytest.mark.group("gaps")
class TestGaps:
    def test_long_prompts_that_come_all_the_time(self, draw):
        """Whoever has its first token gets one in every step, and no step is a long one."""
        requests = requests_of(draw, [9] * 3 + [90] * 25, [40] * 3 + [3] * 25)
        arrivals = [0] * 3 + list(range(1, 26))
        played = serve(Limits(max_tokens=16), requests, arrivals, [within_the_budget])
        for request, steps in played.replay.sampled.items():
            without = sorted(set(range(steps[0], steps[-1])) - set(steps))
            since = f"steps without a token since its first in step {steps[0]}"
            assert_equal(without, [], what=f"request {request}, {since}")

    def test_a_large_one_is_not_starved_by_small_ones(self, draw):
        """It is admitted when those that came before it have finished, whoever comes meanwhile."""
        requests = requests_of(draw, [8] * 4 + [60] + [8] * 40, [9] * 4 + [2] + [9] * 40)
        limits = Limits(num_blocks=17, block_size=4, max_tokens=32)
        plans = serve(limits, requests, [0] * 5 + list(range(1, 41)), rules=[]).plans
        step = min(plan.index for plan in plans if requests[4].id in plan.admitted)
        assert step <= 9, f"expected the large request admitted in step 9, got step {step}"


@pytest.mark.cost("steps")
def test_steps_of_ragged_outputs(draw, budget):
    """The ideal: each of the 4 sequences gets a token in every step."""
    outputs = [2, 4, 8, 10] * 40
    requests = requests_of(draw, [5] * len(outputs), outputs)
    steps = len(serve(Limits(max_sequences=4), requests, rules=[]).plans)
    static = sum(max(outputs[i : i + 4]) for i in range(0, len(outputs), 4))
    budget(steps, sum(outputs) / 4, unit="steps", beside={"static batching": static})


@pytest.mark.cost("steps")
def test_steps_of_prefills_and_decodes(draw, budget):
    """The ideal: every step is full."""
    prompts, outputs = [60, 7, 33, 18, 45] * 20, [6, 1, 9, 3] * 25
    requests = requests_of(draw, prompts, outputs)
    steps = len(serve(Limits(max_tokens=32, max_sequences=16), requests, rules=[]).plans)
    decodes = sum(outputs) - len(outputs)
    alone = sum(-(-prompt // 32) for prompt in prompts) + decodes
    budget(steps, (sum(prompts) + decodes) / 32, unit="steps", beside={"one at a time": alone})


@pytest.mark.cost("tokens")
def test_tokens_under_pressure(draw, budget):
    """The ideal: none is computed twice. Those that arrived last have little to compute anew."""
    prompts, outputs = [16, 40, 8] * 8, [12, 16, 4, 32] * 6
    requests = requests_of(draw, prompts, outputs)
    limits = Limits(num_blocks=16, max_tokens=32, max_sequences=8)
    plans = serve(limits, requests, rules=[]).plans
    computed = sum(plan.num_tokens(number) for plan in plans for number in plan.chunks)
    budget(computed, sum(prompts) + sum(outputs) - len(requests), unit="tokens")
