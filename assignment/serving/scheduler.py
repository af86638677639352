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
        raise NotImplementedError

    def add(self, request: int, tokens: Sequence[int], max_new_tokens: int) -> None:
        """A new request waits.

        Raises:
            ValueError: the number is in use; there are no tokens, or max_new_tokens is below 1; or
                it could never run to its end, alone and with the whole cache: its
                last new token is never computed, all others must fit. Nothing has changed then.
        """
        raise NotImplementedError

    def schedule(self) -> Step:
        """Plan the next step, and take the blocks for it. An empty Step if there is nothing to do.

        Raises:
            RuntimeError: the last step that had chunks is not committed.
        """
        raise NotImplementedError

    def commit(self, new_tokens: Mapping[int, int]) -> None:
        """The step that `schedule` returned has been computed.

        Args:
            new_tokens: the next token of each request whose chunk says `samples`, and of no other.

        Raises:
            RuntimeError: there is no such step. ValueError: new_tokens is for other requests.
        """
        raise NotImplementedError

    def fork(self, request: int, new_request: int, token: int) -> None:
        """Right after `commit`: a new request as `request`, but with another newest token.

        It shares the blocks and runs, if fewer than `max_sequences` do; else it waits.

        Raises:
            ValueError: there is no `request` that decodes, or there is a `new_request`.
        """
        raise NotImplementedError

    def remove(self, request: int) -> None:
        """Between steps: a request has finished, or is aborted; its blocks go back.

        Raises:
            ValueError: there is no such request.
        """
        raise NotImplementedError
