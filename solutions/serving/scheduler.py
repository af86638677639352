"""Continuous batching: which tokens of which requests go through the model in the next step.

A request is a row of tokens of which some are computed. Prefill and decode are one thing then: a
request in its prefill has many tokens left to compute, one that decodes has one, its newest. A step
takes from each what the policy below says, and all go through the model together. Requests come
and go between steps, not between batches.

Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative Models", OSDI 2022;
chunked prefill: Agrawal et al., "Sarathi-Serve", OSDI 2024, arXiv:2403.02310.
"""

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assignment.provided.serving import BlockCache, Chunk, OutOfBlocks, Step


# BEGIN SOLUTION
@dataclass(eq=False)
class _Request:
    """`tokens`: all that it has; of these `placed` have room in the cache, `computed` are computed.

    `order`: its place in the order of arrival: a fork's is its parent's and one number more.
    """

    order: tuple[int, ...]
    id: int
    tokens: list[int]
    computed: int = 0
    placed: int = 0
    forks: int = 0

    @property
    def decodes(self) -> bool:
        """It runs, and its newest token has no room yet. A prefill has room for all it has."""
        return 0 < self.placed < len(self.tokens)

    def __lt__(self, other: "_Request") -> bool:
        return self.order < other.order


# END SOLUTION


class Scheduler:
    """Plans the steps of a server.

    A request waits, and holds no blocks, or it runs. From its admission until all tokens that it
    has by then are computed, it is in its prefill. After that it decodes: each step it brings one
    token, the one that it got from the last.

    Order of arrival: that of `add`. A fork comes behind its parent, the parent's earlier forks and
    whatever was forked from those, and before everybody else.

    The policy. A step has at most `max_tokens` tokens, and at most `max_sequences` requests run.
      1. Decodes. In order of arrival, each running request that decodes gets its one token:
         `cache.append` takes room for it. At OutOfBlocks the running request that arrived last is
         preempted, be it in its prefill, and `append` is tried again, until there is room or the
         request that decodes was the last itself and is preempted.
      2. Prefill. The running request in its prefill gets as many of its tokens as the step still
         has room for. They have blocks since its admission. (There is one at most: while it leaves
         no room, nobody is admitted.)
      3. Admissions, in no step in which 1. has preempted. In order of arrival, while fewer than
         `max_sequences` run and the step has room for a token, a waiting request is admitted:
         `cache.open` takes blocks for all its tokens and says how many are computed; of the others
         it gets as many as the step has room for. At OutOfBlocks nobody else is admitted in
         this step: nobody overtakes.
    A preempted request gives its blocks back (`cache.close`) and waits, at its place in the order
    of arrival, with all its tokens, the new ones too, none of them computed.
    What is free, only the cache knows: blocks may be shared, or held by others. Ask it, and catch
    OutOfBlocks. The chunks of a step may stand in any order.

    So who decodes gets a token in every step unless preempted; who arrived first never is; and a
    large request waits for room, but nobody takes it from under its nose.

    Size of a good answer: about 100 lines in all.
    """

    def __init__(self, cache: BlockCache, max_tokens: int, max_sequences: int):
        """
        Args:
            cache: a `provided.serving.BlockCache`. Its `open`, `append`, `commit`, `fork` and
                `close` are told what happens.
            max_tokens: most tokens in one step.
            max_sequences: most requests that run at the same time.

        Raises:
            ValueError: not 1 ≤ max_sequences ≤ max_tokens: there must be room for all decodes.
        """
        if not 1 <= max_sequences <= max_tokens:
            raise ValueError(
                f"max_sequences is {max_sequences}, expected 1 to max_tokens = {max_tokens}"
            )
        self.cache, self.max_tokens, self.max_sequences = cache, max_tokens, max_sequences
        # BEGIN SOLUTION
        self._waiting: list[_Request] = []  # both in order of arrival
        self._running: list[_Request] = []
        self._requests: dict[int, _Request] = {}
        self._arrivals = 0
        self._step: Step | None = None  # planned, with chunks, not committed
        # END SOLUTION

    def add(self, request: int, tokens: Sequence[int], max_new_tokens: int) -> None:
        """A new request waits. `tokens` stays the caller's: it is copied and not changed.

        Whoever calls takes a request out (`remove`) once it has max_new_tokens new ones.

        Raises:
            ValueError: there is a request with this number, waiting or running; there are no
                tokens; max_new_tokens is below 1; or it could not run to its end even with the
                whole cache to itself: all its tokens but the last new one, which is never
                computed, must fit. The message names the request, how many tokens it has and may
                get, num_blocks and block_size. Nothing has changed then.
        """
        # BEGIN SOLUTION
        if request in self._requests:
            raise ValueError(f"request {request} is there already")
        if not tokens:
            raise ValueError(f"request {request}: expected at least one token, got none")
        if max_new_tokens < 1:
            raise ValueError(
                f"request {request}: max_new_tokens is {max_new_tokens}, expected 1 or more"
            )
        if len(tokens) + max_new_tokens - 1 > self.cache.num_blocks * self.cache.block_size:
            raise ValueError(
                f"request {request}: {len(tokens)} tokens and {max_new_tokens} new ones do not fit "
                f"into a cache of {self.cache.num_blocks} blocks of {self.cache.block_size}"
            )
        self._enter(_Request((self._arrivals,), request, list(tokens)))
        self._arrivals += 1
        # END SOLUTION

    def schedule(self) -> Step:
        """Plan the next step by the policy, and take the blocks for it.

        A step without chunks is not to be committed: there was nothing to do, or nobody was left
        after a preemption.

        Raises:
            RuntimeError: the last step that had chunks is not committed.
        """
        # BEGIN SOLUTION
        if self._step is not None:
            raise RuntimeError("the last step is not committed")
        chunks: list[Chunk] = []
        copies: list[tuple[int, int]] = []
        preempted: list[int] = []
        decodes = [request for request in self._running if request.decodes]
        prefills = [request for request in self._running if not request.decodes]
        # 1. Decodes.
        for request in decodes:
            if self._make_room(request, copies, preempted):
                chunks.append(self._chunk(request, 1))
        room = self.max_tokens - len(chunks)
        # 2. Prefills.
        for request in prefills:
            if room > 0 and request in self._running:
                chunks.append(self._chunk(request, room))
                room -= len(chunks[-1].tokens)
        # 3. Admissions.
        while room > 0 and not preempted and (request := self._admit()):
            chunks.append(self._chunk(request, room))
            room -= len(chunks[-1].tokens)
        waiting = tuple(request.id for request in self._waiting)
        step = Step(tuple(chunks), tuple(copies), tuple(preempted), waiting)
        self._step = step if chunks else None
        return step
        # END SOLUTION

    def commit(self, new_tokens: Mapping[int, int]) -> None:
        """The step that `schedule` returned last has been computed; `cache.commit` is told so.

        Args:
            new_tokens: the next token of each request whose chunk says `samples`, and of no other.

        Raises:
            RuntimeError: no step is left to commit. A step without chunks is not to be committed.
            ValueError: new_tokens is for other requests. Nothing has changed then.
        """
        # BEGIN SOLUTION
        if self._step is None:
            raise RuntimeError("there is no step to commit")
        expected = {chunk.request for chunk in self._step.chunks if chunk.samples}
        if set(new_tokens) != expected:
            raise ValueError(
                f"new_tokens: expected one for {sorted(expected)}, got {sorted(new_tokens)}"
            )
        for chunk in self._step.chunks:
            request = self._requests[chunk.request]
            request.computed = chunk.stop
            self.cache.commit(chunk.request, len(chunk.tokens))
            if chunk.samples:
                request.tokens.append(new_tokens[chunk.request])
        self._step = None
        # END SOLUTION

    def fork(self, request: int, new_request: int, token: int) -> None:
        """Between `commit` and `schedule`: a new request with the tokens of one that decodes, but
        with `token` for the newest.

        If fewer than `max_sequences` run, whoever waits, it runs at once, and decodes: it shares
        the blocks (`cache.fork`). Else it waits, and has nothing computed.

        Raises:
            ValueError: `request` is none that decodes, or there is a `new_request` already.
                Nothing has changed then.
        """
        # BEGIN SOLUTION
        parent = self._requests.get(request)
        if parent is None or not parent.decodes:
            raise ValueError(f"request {request} does not decode")
        if new_request in self._requests:
            raise ValueError(f"request {new_request} is there already")
        order = (*parent.order, parent.forks)
        child = _Request(order, new_request, [*parent.tokens[:-1], token])
        if len(self._running) < self.max_sequences:
            self.cache.fork(request, new_request)
            child.computed, child.placed = parent.computed, parent.placed
            self._requests[new_request] = child
            insort(self._running, child)
        else:
            self._enter(child)
        parent.forks += 1
        # END SOLUTION

    def remove(self, request: int) -> None:
        """Between `commit` and `schedule`: a request has finished, or is aborted, waiting or
        running. Its blocks go back at once, and its number may be used again.

        Raises:
            ValueError: there is no such request.
        """
        # BEGIN SOLUTION
        found = self._requests.pop(request, None)
        if found is None:
            raise ValueError(f"there is no request {request}")
        if found in self._waiting:
            self._waiting.remove(found)
        else:
            self._running.remove(found)
            self.cache.close(request)
        # END SOLUTION

    # BEGIN SOLUTION
    def _enter(self, request: _Request) -> None:
        self._requests[request.id] = request
        insort(self._waiting, request)

    def _chunk(self, request: _Request, room: int) -> Chunk:
        start = request.computed
        tokens = tuple(request.tokens[start : start + room])
        return Chunk(request.id, start, tokens, start + len(tokens) == len(request.tokens))

    def _make_room(self, request: _Request, copies: list, preempted: list[int]) -> bool:
        """Room for the newest token, whoever has to go; False if the request itself had to."""
        while request in self._running:
            try:
                copies += self.cache.append(request.id, request.tokens[-1:])
                request.placed += 1
                return True
            except OutOfBlocks:
                last = self._running.pop()
                self.cache.close(last.id)
                last.computed = last.placed = 0
                insort(self._waiting, last)
                preempted.append(last.id)
        return False

    def _admit(self) -> _Request | None:
        """The first waiting request runs, if there is room for it."""
        if not self._waiting or len(self._running) >= self.max_sequences:
            return None
        request = self._waiting[0]
        try:
            request.computed = self.cache.open(request.id, request.tokens)
        except OutOfBlocks:
            return None
        request.placed = len(request.tokens)
        insort(self._running, self._waiting.pop(0))
        return request

    # END SOLUTION
