"""One list of all requests in order of arrival, each with a state; a fork is put in its place."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from assignment.provided.serving import Chunk, OutOfBlocks, Step


class State(Enum):
    WAITS = 0
    PREFILL = 1
    DECODES = 2
    GONE = 3


@dataclass
class Record:
    number: int
    tokens: list[int]
    state: State = State.WAITS
    computed: int = 0
    family: tuple[int, ...] = ()  # unique keys of all that it stems from, its own the last


class Scheduler:
    def __init__(self, cache: object, max_tokens: int, max_sequences: int):
        if max_sequences < 1 or max_tokens < max_sequences:
            raise ValueError("max_sequences must be from 1 to max_tokens")
        self.cache, self.max_tokens, self.max_sequences = cache, max_tokens, max_sequences
        self.records: list[Record] = []
        self.serial = 0
        self.planned = None

    def of(self, *states):
        return [record for record in self.records if record.state in states]

    def find(self, number):
        alive = [r for r in self.records if r.number == number and r.state is not State.GONE]
        return alive[0] if alive else None

    def add(self, request: int, tokens: Sequence[int], max_new_tokens: int) -> None:
        if self.find(request):
            raise ValueError(f"{request}: in use")
        if len(tokens) == 0 or max_new_tokens < 1:
            raise ValueError(f"{request}: {len(tokens)} tokens, {max_new_tokens} new")
        size = self.cache.block_size
        blocks = -(-(len(tokens) + max_new_tokens - 1) // size)
        if blocks > self.cache.num_blocks:
            raise ValueError(
                f"{request}: {len(tokens)} and {max_new_tokens} tokens need {blocks} blocks of "
                f"{size}, there are {self.cache.num_blocks}"
            )
        self.serial += 1
        self.records.append(Record(request, [*tokens], family=(self.serial,)))

    def schedule(self) -> Step:
        if self.planned:
            raise RuntimeError("commit first")
        plan, copies, preempted = {}, [], []
        decodes, prefills = self.of(State.DECODES), self.of(State.PREFILL)
        for record in decodes:
            while record.state is State.DECODES and record.number not in plan:
                try:
                    copies.extend(self.cache.append(record.number, [record.tokens[-1]]))
                    plan[record.number] = 1
                except OutOfBlocks:
                    victim = self.of(State.PREFILL, State.DECODES)[-1]
                    self.cache.close(victim.number)
                    victim.state, victim.computed = State.WAITS, 0
                    preempted.append(victim.number)
        for record in prefills:
            room = self.max_tokens - sum(plan.values())
            if record.state is State.PREFILL and room:
                plan[record.number] = min(room, len(record.tokens) - record.computed)
        for record in [] if preempted else self.of(State.WAITS):
            room = self.max_tokens - sum(plan.values())
            if not room or len(self.of(State.PREFILL, State.DECODES)) == self.max_sequences:
                break
            try:
                record.computed = self.cache.open(record.number, record.tokens)
            except OutOfBlocks:
                break
            record.state = State.PREFILL
            plan[record.number] = min(room, len(record.tokens) - record.computed)
        self.planned = plan
        return Step(
            chunks=tuple(self.chunk(number, count) for number, count in plan.items()),
            copies=tuple(copies),
            preempted=tuple(preempted),
            waiting=tuple(record.number for record in self.of(State.WAITS)),
        )

    def chunk(self, number, count):
        record = self.find(number)
        stop = record.computed + count
        tokens = record.tokens[record.computed : stop]
        return Chunk(number, record.computed, tuple(tokens), stop == len(record.tokens))

    def commit(self, new_tokens: Mapping[int, int]) -> None:
        if not self.planned:
            raise RuntimeError("nothing is planned")
        ends = {n for n, count in self.planned.items() if self.chunk(n, count).samples}
        if ends != set(new_tokens):
            raise ValueError(f"expected tokens for {ends}")
        for number, count in self.planned.items():
            record = self.find(number)
            record.computed += count
            self.cache.commit(number, count)
            if number in new_tokens:
                record.tokens.append(new_tokens[number])
                record.state = State.DECODES
        self.planned = None

    def fork(self, request: int, new_request: int, token: int) -> None:
        parent = self.find(request)
        if not parent or parent.state is not State.DECODES or self.find(new_request):
            raise ValueError(f"{request} cannot become {new_request}")
        runs = len(self.of(State.PREFILL, State.DECODES)) < self.max_sequences
        if runs:
            self.cache.fork(request, new_request)
        self.serial += 1
        child = Record(
            new_request,
            [*parent.tokens[:-1], token],
            State.DECODES if runs else State.WAITS,
            parent.computed if runs else 0,
            family=(*parent.family, self.serial),
        )
        key = parent.family[-1]
        place = max(i for i, record in enumerate(self.records) if key in record.family)
        self.records.insert(place + 1, child)

    def remove(self, request: int) -> None:
        record = self.find(request)
        if record is None:
            raise ValueError(f"no {request}")
        if record.state is not State.WAITS:
            self.cache.close(request)
        record.state = State.GONE
