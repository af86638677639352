"""One iteration of a server: the tokens that go through the model together."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chunk:
    """Some consecutive tokens of one request, to be computed in this step.

    request: its id.
    start: the position of the first of them, which is also how many came before.
    tokens: at least one.
    samples: whether they reach the request's newest token, so that the logits after the last of
        them give it the next.
    """

    request: int
    start: int
    tokens: tuple[int, ...]
    samples: bool

    @property
    def stop(self) -> int:
        """The position after the last token: the length that attention sees."""
        return self.start + len(self.tokens)


@dataclass(frozen=True)
class Step:
    """What one call of the model computes, and what led to it.

    chunks: at most one per request; none at all when there is nothing to do.
    copies: pairs (from, to) of blocks, to be copied in this order before anything is written.
    preempted: requests that lost their blocks, in the order in which it happened.
    waiting: requests that hold nothing after this plan, the next to be admitted first.
    """

    chunks: tuple[Chunk, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    preempted: tuple[int, ...] = ()
    waiting: tuple[int, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Rows that the linear layers compute."""
        return sum(len(chunk.tokens) for chunk in self.chunks)
