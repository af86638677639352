"""A scheduler of the submission, and the replay of what it does: every step is judged at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from assignment.provided.data.traces import Request
from assignment.provided.serving import Step, drive
from tests.grading.closeness import Mismatch, assert_equal
from tests.grading.draw import Draw
from tests.serving.scheduler_replay import Limits, Plan, Replay, fail
from tests.serving.scheduler_rules import ALL, Rule

__tracebackhide__ = True

PINNED = -1  # a request in the cache that is not the scheduler's


class Watched:
    """Takes a scheduler's calls, passes them on, and judges what comes by the rules.

    Its cache, a TellingBlocks, is looked at after every call: who has room for how many tokens,
    how many are computed.
    """

    def __init__(self, scheduler: object, cache: object, replay: Replay, rules: Sequence[Rule]):
        self.scheduler, self.cache, self.replay, self.rules = scheduler, cache, replay, rules
        self.last: Plan | None = None
        pinned = replay.limits.pinned
        if pinned:
            cache.open(PINNED, [0] * pinned * replay.limits.block_size)

    def add(self, number: int, tokens: Sequence[int], max_new_tokens: int) -> None:
        self.scheduler.add(number, tokens, max_new_tokens)
        self.replay.add(number, tokens)

    def schedule(self) -> Step:
        step = self.scheduler.schedule()
        self.last = self.replay.plan(step)
        for rule in self.rules:
            rule(self.last)
        self.check_cache(f"step {self.last.index}, planned")
        return step

    def commit(self, new_tokens: Mapping[int, int]) -> None:
        self.scheduler.commit(dict(new_tokens))
        self.replay.commit(new_tokens)
        self.check_cache(f"step {self.last.index}, committed")

    def fork(self, parent: int, number: int, token: int) -> None:
        self.scheduler.fork(parent, number, token)
        self.replay.fork(parent, number, token)
        self.check_cache(f"request {parent} forked into {number}")

    def remove(self, number: int) -> None:
        self.scheduler.remove(number)
        self.replay.remove(number)
        self.check_cache(f"request {number} removed")

    def check_cache(self, when: str) -> None:
        """What the cache holds for whom is what the steps so far come to."""
        got = dict(self.cache.held)
        got.pop(PINNED, None)
        expected = self.replay.held
        for number in sorted(expected.keys() | got.keys()):
            what = f"{when}: the cache's (tokens with room, tokens computed) for request {number}"
            assert_equal(got.get(number), expected.get(number), what=what)

    def add_prompts(self, draw: Draw, lengths: dict[int, int], max_new_tokens: int = 20) -> None:
        """Add requests, number: length of the prompt, in this order."""
        for request, length in lengths.items():
            self.add(request, draw.integers(0, 50_000, length).tolist(), max_new_tokens)

    def step(
        self,
        tokens: dict[int, int] | None = None,
        *,
        preempted: list[int] | None = None,
        waiting: list[int] | None = None,
        token: int = 0,
    ) -> None:
        """A step, in which whoever samples gets `token`.

        It should compute this many `tokens` of each request; None: whatever, as for the others.
        """
        self.schedule()
        plan, chunks = self.last, self.last.chunks.values()
        got = {chunk.request: len(chunk.tokens) for chunk in chunks}
        for what, came, expected in [
            ("tokens of each request", got, tokens),
            ("Step.preempted", plan.preempted, preempted),
            ("Step.waiting", plan.still_waiting, waiting),
        ]:
            if expected is not None:
                assert_equal(came, expected, what=f"{plan.where}, {what}")
        if chunks:
            self.commit({chunk.request: token for chunk in chunks if chunk.samples})


class Played:
    """Stands for a scheduler that has returned these steps when it was driven."""

    def __init__(self, steps: Sequence[Step], replay: Replay, rules: Sequence[Rule]):
        self.replay, self.rules = replay, rules
        self.plans: list[Plan] = []
        self._steps = iter(steps)
        self.commit, self.remove = replay.commit, replay.remove

    def add(self, number: int, tokens: Sequence[int], max_new_tokens: int) -> None:
        self.replay.add(number, tokens)

    def schedule(self) -> Step:
        step = next(self._steps, None)
        if step is None:
            left = [seen.number for seen in self.replay.everybody]
            fail(f"after {len(self.plans)} steps", "all requests finished", f"{left} not")
        self.plans.append(self.replay.plan(step))
        for rule in self.rules:
            rule(self.plans[-1])
        return step


class Bench:
    """The submission's Scheduler, and what is `provided` on its side, as a test file has them."""

    def __init__(self, scheduler: Callable, telling_blocks: Callable, drive: Callable):
        self._scheduler, self._telling_blocks, self._drive = scheduler, telling_blocks, drive

    def watched(
        self,
        draw: Draw,
        prompts: dict[int, int] | None = None,
        max_new_tokens: int = 20,
        *,
        rules: Sequence[Rule] = ALL,
        find: Callable[[list[int]], int] | None = None,
        copies: Callable[[int], list[tuple[int, int]]] | None = None,
        **limits: int,
    ) -> Watched:
        """A scheduler with requests, number: length of the prompt.

        find, copies: `find_prefix` and `copies_for` of its cache.
        """
        replay = Replay(Limits(**limits), find)
        cache, scheduler = self._begin(replay.limits, find, copies)
        server = Watched(scheduler, cache, replay, rules)
        server.add_prompts(draw, prompts or {}, max_new_tokens)
        return server

    def serve(
        self,
        limits: Limits,
        requests: Sequence[Request],
        arrivals: Sequence[int] | None = None,
        rules: Sequence[Rule] = ALL,
    ) -> Played:
        """Serve a trace in one go, and judge its steps afterwards; by all rules, the cache too."""
        cache, scheduler = self._begin(limits)
        work = sum(len(request.prompt) + request.output_length for request in requests)
        most = 2 * work + max(arrivals or [0])  # far more than a right one needs
        played = Played(self._drive(scheduler, requests, arrivals, most), Replay(limits), rules)
        try:
            drive(played, requests, arrivals)
        except Mismatch as mismatch:
            mismatch.add_note(_trace_told(limits, requests, arrivals))
            raise
        if rules is ALL:
            kept = list(cache.held)
            assert_equal(kept, [], what="requests that the cache holds when all have finished")
        return played

    def _begin(self, limits: Limits, find=None, copies=None) -> tuple[object, object]:
        cache = self._telling_blocks(limits.num_blocks, limits.block_size, find, copies)
        return cache, self._scheduler(cache, limits.max_tokens, limits.max_sequences)


def _trace_told(limits: Limits, requests: Sequence[Request], arrivals: Sequence[int] | None) -> str:
    """A trace in words, short enough to be tried by hand."""
    arrivals = arrivals or [0] * len(requests)
    lines = [
        f"  {request.id}: before step {step}, {len(request.prompt)} tokens, gets "
        f"{request.output_length} of at most {request.max_new_tokens}"
        for request, step in zip(requests[:20], arrivals, strict=False)
    ]
    more = ["  …"] if len(requests) > 20 else []
    return "\n".join([f"Served with {limits}:", *lines, *more])
