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

    `order`: its place in the order of arrival.
    """

    order: tuple[int, ...]
    id: int
    tokens: list[int]
    computed: int = 0
    placed: int = 0
    forks: int = 0

    @property
    def decodes(self) -> bool:
        return self.computed == self.placed == len(self.tokens) - 1

    def __lt__(self, other: "_Request") -> bool:
        return self.order < other.order


# END SOLUTION


class Scheduler:
    """Plans the steps of a server.

    A request waits (it has no blocks) or runs. When it is admitted, it is in its prefill until all
    the tokens that it has by then are computed, and then it decodes: in each step it brings the
    token that it got from the last. The order of arrival is that of `add`; a fork stands right
    behind the request that it came from and that one's earlier forks.

    The policy, for one step of at most `max_tokens` tokens:
      1. Every running request that decodes gets its one token, in order of arrival.
      2. The running requests in their prefill get as many of their tokens as the step still has
         room for, in order of arrival.
      3. Waiting requests are admitted in order of arrival, while fewer than `max_sequences` run and
         the step has room: `cache.open` with all the request's tokens, and then as many of those
         that are not computed as there is room for. At the first for which there are no blocks
         this ends: nobody overtakes. In a step in which 1. has preempted, nobody is admitted.
      If there is no block for a decode, the running request that arrived last is preempted, until
      there is one, or until it has come to the one that decodes itself: its blocks go
      back, and it waits, in its place in the order of arrival, with all tokens it has, none of them
      computed.
    So a request that decodes gets a token in every step unless it is preempted; the first in order
    of arrival never is; and a large one waits for room, but nobody takes it from under its nose.

    Size of a good answer: about 80 lines in all.
    """

    def __init__(self, cache: BlockCache, max_tokens: int, max_sequences: int):
        """
        Args:
            cache: told of everything that happens: `open`, `append`, `commit`, `fork`, `close`.
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
        self._step: Step | None = None
        # END SOLUTION

    def add(self, request: int, tokens: Sequence[int], max_new_tokens: int) -> None:
        """A new request waits.

        Raises:
            ValueError: the number is in use; there are no tokens, or max_new_tokens is below 1; or
                it could never run to its end, alone and with the whole cache: its
                last new token is never computed, all others must fit. Nothing has changed then.
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
        """Plan the next step, and take the blocks for it. An empty Step if there is nothing to do.

        Raises:
            RuntimeError: the last step that had chunks is not committed.
        """
        # BEGIN SOLUTION
        if self._step is not None:
            raise RuntimeError("the last step is not committed")
        chunks: list[Chunk] = []
        copies: list[tuple[int, int]] = []
        preempted: list[int] = []
        # 1. Decodes.
        prefills = [request for request in self._running if not request.decodes]
        for request in [request for request in self._running if request.decodes]:
            if self._make_room(request, copies, preempted):
                chunks.append(self._chunk(request, 1))
        # 2. Prefills under way.
        room = self.max_tokens - len(chunks)
        for request in prefills:
            if room > 0 and request in self._running:
                chunks.append(self._chunk(request, room))
                room -= len(chunks[-1].tokens)
        # 3. Admissions.
        while room > 0 and not preempted and (request := self._admit()):
            chunks.append(self._chunk(request, room))
            room -= len(chunks[-1].tokens)
        step = Step(
            tuple(chunks),
            tuple(copies),
            tuple(preempted),
            tuple(request.id for request in self._waiting),
        )
        self._step = step if chunks else None
        return step
        # END SOLUTION

    def commit(self, new_tokens: Mapping[int, int]) -> None:
        """The step that `schedule` returned has been computed.

        Args:
            new_tokens: the next token of each request whose chunk says `samples`, and of no other.

        Raises:
            RuntimeError: there is no such step. ValueError: new_tokens is for other requests.
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
        """Right after `commit`: a new request as `request`, but with another newest token.

        It shares the blocks and runs, if fewer than `max_sequences` do; else it waits.

        Raises:
            ValueError: there is no `request` that decodes, or there is a `new_request`.
        """
        # BEGIN SOLUTION
        parent = self._requests.get(request)
        if parent is None or not parent.decodes:
            raise ValueError(f"request {request} does not decode")
        if new_request in self._requests:
            raise ValueError(f"request {new_request} is there already")
        order = (*parent.order, parent.forks)
        parent.forks += 1
        child = _Request(order, new_request, [*parent.tokens[:-1], token])
        if len(self._running) < self.max_sequences:
            self.cache.fork(request, new_request)
            child.computed = child.placed = parent.computed
            self._requests[new_request] = child
            insort(self._running, child)
        else:
            self._enter(child)
        # END SOLUTION

    def remove(self, request: int) -> None:
        """Between steps: a request has finished, or is aborted; its blocks go back.

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
