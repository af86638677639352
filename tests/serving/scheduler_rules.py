"""The scheduler's policy, rule by rule: each looks at one step and says what is against it.

They do not plan: a rule takes what the step did in all other respects as given. So a test can hold
a scheduler to some of them only.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.grading.closeness import assert_equal
from tests.serving.scheduler_replay import Plan, Seen, fail

__tracebackhide__ = True

Rule = Callable[[Plan], None]


def within_the_budget(plan: Plan) -> None:
    total = sum(map(plan.num_tokens, plan.chunks))
    if total > plan.limits.max_tokens:
        tokens = {number: plan.num_tokens(number) for number in plan.chunks}
        note = f"by request {tokens}"
        fail(f"{plan.where}, tokens", f"at most {plan.limits.max_tokens}", str(total), note)


def every_decode_gets_its_token(plan: Plan) -> None:
    for seen in plan.running:
        if seen.decodes and seen.number not in plan.preempted:
            what = f"{plan.where}, request {seen.number}, which decodes: tokens in this step"
            assert_equal(plan.num_tokens(seen.number), 1, what=what)


def prefills_fill_the_step(plan: Plan) -> None:
    """Those under way first, in order of arrival, then those that the step admits."""
    going_on = [s for s in plan.running if s.number not in plan.preempted]
    room = plan.limits.max_tokens - sum(seen.decodes for seen in going_on)
    for seen in [s for s in going_on if not s.decodes] + _admitted(plan):
        left = seen.length - plan.prefixes.get(seen.number, seen.computed)
        what = (
            f"{plan.where}, request {seen.number}, {left} tokens of its prefill left, "
            f"room for {room} in the step: tokens in this step"
        )
        got = plan.num_tokens(seen.number)
        assert_equal(got, min(left, room), what=what)
        room -= got


def within_the_sequences(plan: Plan) -> None:
    running = _running_after(plan)
    if len(running) > plan.limits.max_sequences:
        expected = f"at most {plan.limits.max_sequences}"
        fail(f"{plan.where}, running requests", expected, f"{len(running)}: {running}")


def nobody_overtakes(plan: Plan) -> None:
    expected = [seen.number for seen in plan.waiting[: len(plan.admitted)]]
    if plan.admitted != expected:
        fail(f"{plan.where}, admitted", str(expected), str(plan.admitted), plan.told)


def nobody_waits_without_need(plan: Plan) -> None:
    """The first that is left waiting found no room in the step, among the sequences, or blocks."""
    left = [seen for seen in plan.waiting if seen.number not in plan.admitted]
    if not left or plan.preempted:
        return
    room = plan.limits.max_tokens - sum(map(plan.num_tokens, plan.chunks))
    places = plan.limits.max_sequences - len(_running_after(plan))
    needed, free = plan.limits.blocks(left[0].length), _free_after(plan)
    if room > 0 and places > 0 and needed <= free:
        found = (
            f"the step has room for {room} more tokens, {places} more requests may run, "
            f"it needs {needed} blocks and {free} are free"
        )
        fail(f"{plan.where}, request {left[0].number}", "it admitted", "it waiting", found)


def the_waiting_stand_in_order(plan: Plan) -> None:
    expected = [seen.number for seen in plan.everybody if seen.number in plan.still_waiting]
    if plan.still_waiting != expected:
        fail(f"{plan.where}, Step.waiting", str(expected), str(plan.still_waiting), plan.told)


def the_last_arrived_go(plan: Plan) -> None:
    by_age = [seen.number for seen in plan.running]
    expected = by_age[::-1][: len(plan.preempted)]
    if plan.preempted != expected:
        fail(f"{plan.where}, Step.preempted", str(expected), str(plan.preempted), plan.told)


def nobody_goes_without_need(plan: Plan) -> None:
    """With one fewer preempted there would have been too few blocks for the decodes."""
    if not plan.preempted:
        return
    *spared, last = plan.preempted
    gone = {seen.number: seen for seen in plan.running if seen.number in spared}
    free = plan.free + sum(plan.limits.blocks(seen.placed) for seen in gone.values())
    needed = sum(_needs_a_block(plan, seen) for seen in plan.running if seen.number not in gone)
    if needed <= free:
        enough = f"the decodes need {needed} more blocks, {free} are free without it"
        fail(f"{plan.where}, request {last}", "it not preempted", "it preempted", enough)


def nobody_comes_while_others_go(plan: Plan) -> None:
    if plan.preempted and plan.admitted:
        preempted = f"{plan.preempted} preempted in the same step"
        fail(f"{plan.where}, admitted", "nobody", str(plan.admitted), preempted)


BUDGET: list[Rule] = [within_the_budget, every_decode_gets_its_token, prefills_fill_the_step]
ORDER: list[Rule] = [
    within_the_sequences,
    nobody_overtakes,
    nobody_waits_without_need,
    the_waiting_stand_in_order,
]
PREEMPTION: list[Rule] = [
    the_last_arrived_go,
    nobody_goes_without_need,
    nobody_comes_while_others_go,
]
ALL: list[Rule] = [*PREEMPTION, *BUDGET, *ORDER]


def _admitted(plan: Plan) -> list[Seen]:
    return [seen for seen in plan.waiting if seen.number in plan.admitted]


def _running_after(plan: Plan) -> list[int]:
    stay = [seen.number for seen in plan.running if seen.number not in plan.preempted]
    return stay + plan.admitted


def _needs_a_block(plan: Plan, seen: Seen) -> bool:
    return seen.decodes and seen.placed % plan.limits.block_size == 0


def _free_after(plan: Plan) -> int:
    free = plan.free
    for seen in plan.running:
        if seen.number in plan.preempted:
            free += plan.limits.blocks(seen.placed)
        elif seen.number in plan.chunks:
            free -= _needs_a_block(plan, seen)
    return free - sum(plan.limits.blocks(seen.length) for seen in _admitted(plan))
