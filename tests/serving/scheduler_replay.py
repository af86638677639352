"""What a scheduler's steps do to its requests: followed step by step, and checked for sense.

No policy is in here: whatever a step says is done, if it can be. `scheduler_rules` judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from assignment.provided.serving import Chunk, Step
from tests.grading.closeness import Mismatch, assert_equal

__tracebackhide__ = True  # a failure is shown where the test calls the scheduler


@dataclass(frozen=True)
class Limits:
    """A server. `pinned` of its blocks are held by somebody that the scheduler knows nothing of."""

    num_blocks: int = 1000
    block_size: int = 16
    max_tokens: int = 64
    max_sequences: int = 5
    pinned: int = 0

    def blocks(self, length: int) -> int:
        """⌈length / block_size⌉."""
        return -(-length // self.block_size)


@dataclass
class Known:
    """A request: its tokens, and how many of them have room and are computed."""

    number: int
    tokens: list[int]
    parent: Known | None = None
    placed: int = 0
    computed: int = 0

    @property
    def runs(self) -> bool:
        return self.placed > 0

    def stems_from(self, other: Known) -> bool:
        return self is other or (self.parent is not None and self.parent.stems_from(other))


@dataclass(frozen=True)
class Seen:
    """A request as it was before a step."""

    number: int
    length: int
    placed: int
    computed: int

    @property
    def runs(self) -> bool:
        return self.placed > 0

    @property
    def decodes(self) -> bool:
        return self.runs and self.computed == self.placed == self.length - 1

    @property
    def left(self) -> int:
        return self.length - self.computed


@dataclass(frozen=True)
class Plan:
    """A step, and the requests as they were before it.

    everybody, running, waiting: in order of arrival.
    prefixes: of each request that the step admits, how many tokens the prefix cache had.
    still_waiting: Step.waiting.
    """

    index: int
    limits: Limits
    everybody: list[Seen]
    free: int
    chunks: dict[int, Chunk]
    preempted: list[int]
    prefixes: dict[int, int]
    still_waiting: list[int]

    @property
    def where(self) -> str:
        return f"step {self.index}"

    @property
    def running(self) -> list[Seen]:
        return [seen for seen in self.everybody if seen.runs]

    @property
    def waiting(self) -> list[Seen]:
        return [seen for seen in self.everybody if not seen.runs]

    @property
    def admitted(self) -> list[int]:
        return list(self.prefixes)

    def num_tokens(self, number: int) -> int:
        """How many of a request's tokens the step computes."""
        return len(self.chunks[number].tokens) if number in self.chunks else 0

    @property
    def told(self) -> str:
        """The situation in words, for messages."""
        running, waiting = ([s.number for s in group] for group in (self.running, self.waiting))
        blocks = f"{self.free} of {self.limits.num_blocks} blocks free"
        return f"before it {running} run, {waiting} wait, {blocks}"


def fail(what: str, expected: str, got: str, note: str = "") -> None:
    line = f"expected {expected}, got {got}" + (f"; {note}" if note else "")
    raise Mismatch(line, expected=expected, got=got, what=what, note=note)


class Replay:
    """All requests of a scheduler, as its steps leave them. It takes the calls a scheduler takes.

    find_prefix: as the scheduler's cache has it.
    sampled: for each request the steps in which it got a token.
    preempted: all that ever were.
    """

    def __init__(self, limits: Limits, find_prefix: Callable[[list[int]], int] | None = None):
        self.limits = limits
        self._find_prefix = find_prefix or (lambda tokens: 0)
        self._ever: list[Known] = []  # in order of arrival, those that are gone too
        self.requests: dict[int, Known] = {}
        self.sampled: dict[int, list[int]] = {}
        self.preempted: list[int] = []
        self.num_steps = 0
        self._chunks: dict[int, Chunk] = {}

    @property
    def held(self) -> dict[int, tuple[list[int], int]]:
        """For each running request: the tokens that have room, how many are computed."""
        return {n: (r.tokens[: r.placed], r.computed) for n, r in self.requests.items() if r.runs}

    @property
    def free(self) -> int:
        used = sum(self.limits.blocks(r.placed) for r in self.requests.values())
        return self.limits.num_blocks - self.limits.pinned - used

    @property
    def everybody(self) -> list[Seen]:
        """In order of arrival."""
        alive = [r for r in self._ever if self.requests.get(r.number) is r]
        return [Seen(r.number, len(r.tokens), r.placed, r.computed) for r in alive]

    def add(self, number: int, tokens: Sequence[int]) -> None:
        self._ever.append(Known(number, list(tokens)))
        self.requests[number] = self._ever[-1]

    def fork(self, parent: int, number: int, token: int) -> None:
        """A fork of `parent`; it runs if there is room among the sequences."""
        origin = self.requests[parent]
        child = Known(number, [*origin.tokens[:-1], token], parent=origin)
        if len(self.held) < self.limits.max_sequences:
            child.placed, child.computed = origin.placed, origin.computed
        family = [i for i, other in enumerate(self._ever) if other.stems_from(origin)]
        self._ever.insert(family[-1] + 1, child)
        self.requests[number] = child

    def remove(self, number: int) -> None:
        del self.requests[number]

    def plan(self, step: Step) -> Plan:
        """What a step that the scheduler returns says, if it makes sense."""
        where = f"step {self.num_steps}"
        if not isinstance(step, Step):
            fail(f"{where}, schedule()", "a Step", type(step).__name__)
        everybody, free = self.everybody, self.free
        preempted = self._preempt(where, step)
        chunks = self._chunks_by_request(where, step)
        prefixes = {
            seen.number: self._find_prefix(list(self.requests[seen.number].tokens))
            for seen in everybody
            if not seen.runs and seen.number in chunks
        }
        for number, chunk in chunks.items():
            self._place(f"{where}, request {number}", chunk, prefixes.get(number))
        plan = Plan(
            self.num_steps, self.limits, everybody, free, chunks, preempted, prefixes,
            list(step.waiting),
        )  # fmt: skip
        self._check_state(plan)
        self._chunks = chunks
        self.num_steps += 1
        return plan

    def _chunks_by_request(self, where: str, step: Step) -> dict[int, Chunk]:
        chunks: dict[int, Chunk] = {}
        for chunk in step.chunks:
            what = f"{where}, chunks of request {chunk.request}"
            if chunk.request not in self.requests:
                fail(what, "none, as there is no such request", "one")
            if chunk.request in step.preempted:
                fail(what, "none, as it is preempted", "one")
            if chunk.request in chunks:
                fail(what, "one at most", "two")
            chunks[chunk.request] = chunk
        return chunks

    def _preempt(self, where: str, step: Step) -> list[int]:
        for number in step.preempted:
            request = self.requests.get(number)
            if request is None or not request.runs:
                fail(f"{where}, Step.preempted", "requests that run", f"request {number}")
            request.placed = request.computed = 0
            self.preempted.append(number)
        return list(step.preempted)

    def _place(self, what: str, chunk: Chunk, prefix: int | None) -> None:
        """Room for what the step computes; `prefix` tokens of a new one are computed already."""
        request = self.requests[chunk.request]
        if prefix is not None:
            request.computed = prefix
        request.placed = len(request.tokens)
        assert_equal(chunk.start, request.computed, what=f"{what}, start of its chunk")
        expected = request.tokens[chunk.start : chunk.start + max(len(chunk.tokens), 1)]
        assert_equal(list(chunk.tokens), expected, what=f"{what}, tokens from {chunk.start} on")
        reaches = chunk.start + len(chunk.tokens) == len(request.tokens)
        note = f"{what}, tokens {chunk.start} to {chunk.stop - 1} of {len(request.tokens)}: samples"
        assert_equal(chunk.samples, reaches, what=note)

    def _check_state(self, plan: Plan) -> None:
        if self.free < 0:
            what, there = "blocks of running requests", self.limits.num_blocks - self.limits.pinned
            got = str(there - self.free)
            fail(f"{plan.where}, {what}", f"at most {there}", got, plan.told)
        expected = [seen.number for seen in self.everybody if not seen.runs]
        if sorted(plan.still_waiting) != sorted(expected):
            got = str(plan.still_waiting)
            fail(f"{plan.where}, Step.waiting", str(expected), got, plan.told)

    def commit(self, new_tokens: Mapping[int, int]) -> None:
        for number, chunk in self._chunks.items():
            request = self.requests[number]
            request.computed = chunk.stop
            if chunk.samples:
                request.tokens.append(new_tokens[number])
                self.sampled.setdefault(number, []).append(self.num_steps - 1)
