"""Nothing but what has happened is kept; every step is worked out anew from that, by functions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assignment.provided.serving import Chunk, OutOfBlocks, Step


@dataclass(frozen=True)
class Facts:
    """Of one request. `held`: tokens with room in the cache, None while it waits."""

    tokens: tuple[int, ...]
    held: int | None = None
    computed: int = 0

    @property
    def decodes(self):
        return self.held is not None and self.held == len(self.tokens) - 1

    @property
    def left(self):
        return len(self.tokens) - self.computed


WAITS = {"held": None, "computed": 0}


class Scheduler:
    def __init__(self, cache: object, max_tokens: int, max_sequences: int):
        if max_sequences not in range(1, max_tokens + 1):
            raise ValueError("there must be room for all decodes")
        self.cache, self.max_tokens, self.max_sequences = cache, max_tokens, max_sequences
        self.facts: dict[int, Facts] = {}  # in order of arrival, always
        self.lineage: list[tuple[int, int]] = []  # (depth, number): a tree, written line by line
        self.open_step = Step()

    def add(self, request: int, tokens: Sequence[int], max_new_tokens: int) -> None:
        need, have = len(tokens) + max_new_tokens - 1, self.cache.block_size * self.cache.num_blocks
        faults = {
            "is there": request in self.facts,
            "has no tokens": len(tokens) == 0,
            "wants no tokens": max_new_tokens <= 0,
            f"has {len(tokens)} tokens and may get {max_new_tokens}, for which "
            f"{self.cache.num_blocks} blocks of {self.cache.block_size} are too few": need > have,
        }
        if any(faults.values()):
            raise ValueError(
                f"{request} " + ", ".join(text for text, is_so in faults.items() if is_so)
            )
        self.facts[request] = Facts(tuple(tokens))
        self.lineage.append((0, request))

    def schedule(self) -> Step:
        if self.open_step.chunks:
            raise RuntimeError("a step is open")
        facts, copies, preempted = dict(self.facts), [], []
        counts = dict.fromkeys((n for n in facts if facts[n].decodes), 1)
        prefills = [n for n in facts if facts[n].held is not None and n not in counts]
        for n in list(counts):
            while n in counts and facts[n].decodes:
                try:
                    copies += self.cache.append(n, list(facts[n].tokens[-1:]))
                    facts[n] = replace(facts[n], held=facts[n].held + 1)
                except OutOfBlocks:
                    last = [m for m in facts if facts[m].held is not None].pop()
                    self.cache.close(last)
                    facts[last] = replace(facts[last], **WAITS)
                    counts.pop(last, None)
                    preempted += [last]
        for n in prefills:
            if facts[n].held is not None:
                counts[n] = min(facts[n].left, self.max_tokens - sum(counts.values()))
        queue = [] if preempted else [n for n in facts if facts[n].held is None]
        for n in queue[: self.max_sequences - (len(facts) - len(queue))]:
            room = self.max_tokens - sum(counts.values())
            try:
                found = self.cache.open(n, list(facts[n].tokens)) if room else None
            except OutOfBlocks:
                found = None
            if found is None:
                break
            facts[n] = replace(facts[n], held=len(facts[n].tokens), computed=found)
            counts[n] = min(facts[n].left, room)
        self.facts = facts
        self.open_step = Step(
            tuple(chunk(n, facts[n], counts[n]) for n in sorted(counts) if counts[n]),
            tuple(copies),
            tuple(preempted),
            tuple(n for n in facts if facts[n].held is None),
        )
        return self.open_step

    def commit(self, new_tokens: Mapping[int, int]) -> None:
        if not self.open_step.chunks:
            raise RuntimeError("no step is open")
        if {c.request for c in self.open_step.chunks if c.samples} ^ set(new_tokens):
            raise ValueError("new_tokens")
        for c in self.open_step.chunks:
            new = (new_tokens[c.request],) if c.samples else ()
            old = self.facts[c.request]
            self.facts[c.request] = replace(old, tokens=old.tokens + new, computed=c.stop)
            self.cache.commit(c.request, c.stop - c.start)
        self.open_step = Step()

    def fork(self, request: int, new_request: int, token: int) -> None:
        if new_request in self.facts or request not in self.facts:
            raise ValueError(f"{request}, {new_request}")
        parent = self.facts[request]
        if not parent.decodes:
            raise ValueError(f"{request} does not decode")
        child = replace(parent, tokens=(*parent.tokens[:-1], token))
        if sum(f.held is not None for f in self.facts.values()) >= self.max_sequences:
            child = replace(child, **WAITS)
        else:
            self.cache.fork(request, new_request)
        self.facts[new_request] = child
        self._write_behind(request, new_request)
        place = {number: i for i, (_, number) in enumerate(self.lineage)}
        self.facts = dict(sorted(self.facts.items(), key=lambda item: place[item[0]]))

    def _write_behind(self, request, new_request):
        numbers = [number for _, number in self.lineage]
        start = numbers.index(request)
        depth = self.lineage[start][0]
        stop = start + 1
        while stop < len(numbers) and self.lineage[stop][0] > depth:
            stop += 1
        self.lineage.insert(stop, (depth + 1, new_request))

    def remove(self, request: int) -> None:
        if request not in self.facts:
            raise ValueError(f"no {request} is here")
        if self.facts.pop(request).held is not None:
            self.cache.close(request)
        line = [number for _, number in self.lineage].index(request)
        self.lineage[line] = (
            self.lineage[line][0],
            -1 - line,
        )  # its number is free, its line stays


def chunk(number, facts, count):
    stop = facts.computed + count
    return Chunk(number, facts.computed, facts.tokens[facts.computed : stop], count == facts.left)
