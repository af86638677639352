"""Two heaps, of who waits and of who goes first, with keys that sort as requests arrive."""

import heapq
from collections.abc import Mapping, Sequence

from assignment.provided.serving import Chunk, OutOfBlocks, Step


class Backwards:
    """A key that sorts the other way round."""

    def __init__(self, key):
        self.key = key

    def __lt__(self, other):
        return other.key < self.key


class Scheduler:
    def __init__(self, cache: object, max_tokens: int, max_sequences: int):
        if not 0 < max_sequences <= max_tokens:
            raise ValueError((max_sequences, max_tokens))
        self.cache, self.max_tokens, self.max_sequences = cache, max_tokens, max_sequences
        self.key = {}  # of every request: its place in the order of arrival
        self.history = {}  # all its tokens
        self.progress = {}  # of those that run: how many are computed
        self.fresh = set()  # those of them whose newest token came from the last step
        self.children = {}
        self.waiting = []
        self.victims = []  # those that run, the last to arrive on top; stale entries stay
        self.clock = 0
        self.ranges = {}

    def add(self, request: int, tokens: Sequence[int], max_new_tokens: int) -> None:
        room = self.cache.num_blocks * self.cache.block_size
        if request in self.key or not len(tokens) or max_new_tokens < 1:
            raise ValueError(f"{request}, {len(tokens)}, {max_new_tokens}")
        if room + 1 < len(tokens) + max_new_tokens:
            raise ValueError(
                f"{request}: {len(tokens)} + {max_new_tokens} − 1 > "
                f"{self.cache.num_blocks} · {self.cache.block_size}"
            )
        self.clock += 1
        self.enter(request, (self.clock,), list(tokens))
        self.queue(request)

    def enter(self, request, key, tokens):
        self.key[request], self.history[request], self.children[request] = key, tokens, 0

    def queue(self, request):
        heapq.heappush(self.waiting, (self.key[request], request))

    def run(self, request, computed):
        self.progress[request] = computed
        heapq.heappush(self.victims, (Backwards(self.key[request]), request))

    def schedule(self) -> Step:
        if self.ranges:
            raise RuntimeError("the planned step is not committed")
        by_age = sorted(self.progress, key=self.key.get)
        decodes = [n for n in by_age if n in self.fresh]
        others = [n for n in by_age if n not in self.fresh]
        copies, gone = [], []
        for request in decodes:
            while request in self.progress:
                try:
                    copies += self.cache.append(request, self.history[request][-1:])
                except OutOfBlocks:
                    gone.append(self.drop_one())
                else:
                    self.ranges[request] = (self.progress[request], self.progress[request] + 1)
                    break
        budget = self.max_tokens - len(self.ranges)
        for request in others:
            if request in self.progress:
                budget -= self.take(request, budget)
        while (
            budget
            and not gone
            and self.waiting
            and len(self.progress) < self.max_sequences
            and self.open(self.waiting[0][1])
        ):
            _, request = heapq.heappop(self.waiting)
            budget -= self.take(request, budget)
        self.fresh.clear()
        chunks = [
            Chunk(n, start, tuple(self.history[n][start:stop]), stop == len(self.history[n]))
            for n, (start, stop) in reversed(self.ranges.items())
        ]
        waiting = [request for _, request in sorted(self.waiting)]
        return Step(tuple(chunks), tuple(copies), tuple(gone), tuple(waiting))

    def open(self, request):
        try:
            self.run(request, self.cache.open(request, list(self.history[request])))
        except OutOfBlocks:
            return False
        return True

    def take(self, request, budget):
        start = self.progress[request]
        stop = min(start + budget, len(self.history[request]))
        if stop > start:
            self.ranges[request] = (start, stop)
        return stop - start

    def drop_one(self):
        while True:
            key, request = heapq.heappop(self.victims)
            if request in self.progress and self.key[request] == key.key:
                break
        self.cache.close(request)
        del self.progress[request]
        self.fresh.discard(request)
        self.queue(request)
        return request

    def commit(self, new_tokens: Mapping[int, int]) -> None:
        if not self.ranges:
            raise RuntimeError("there is no step")
        ends = [n for n, (_, stop) in self.ranges.items() if stop == len(self.history[n])]
        if sorted(ends) != sorted(new_tokens):
            raise ValueError(f"{ends} get a token, not {list(new_tokens)}")
        for request, (start, stop) in self.ranges.items():
            self.cache.commit(request, stop - start)
            self.progress[request] = stop
        for request, token in new_tokens.items():
            self.history[request].append(token)
            self.fresh.add(request)
        self.ranges = {}

    def fork(self, request: int, new_request: int, token: int) -> None:
        if request not in self.fresh or new_request in self.key:
            raise ValueError(f"{request} → {new_request}")
        full = len(self.progress) == self.max_sequences
        if not full:
            self.cache.fork(request, new_request)
        self.children[request] += 1
        key = (*self.key[request], self.children[request])
        self.enter(new_request, key, [*self.history[request][:-1], token])
        if full:
            self.queue(new_request)
        else:
            self.run(new_request, self.progress[request])
            self.fresh.add(new_request)

    def remove(self, request: int) -> None:
        if request not in self.key:
            raise ValueError(request)
        if request in self.progress:
            self.cache.close(request)
            del self.progress[request]
            self.fresh.discard(request)
        else:
            self.waiting = [entry for entry in self.waiting if entry[1] != request]
            heapq.heapify(self.waiting)
        for table in (self.key, self.history, self.children):
            del table[request]
