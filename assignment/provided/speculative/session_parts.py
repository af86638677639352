"""A session whose parts are functions: for tests, and for wrapping one."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor


@dataclass(frozen=True)
class SessionParts:
    """A `models.Session` made of functions of yours.

    feed: (tokens [B T], num_tokens [B] or None) -> logits [B T V].
    rewind: (lengths [B]) -> None, what `truncate` does.
    held: () -> lengths [B].
    """

    feed: Callable
    rewind: Callable
    held: Callable

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.held()

    def __call__(
        self, tokens: Int[Tensor, "B T"], num_tokens: Int[Tensor, "B"] | None = None
    ) -> Float[Tensor, "B T V"]:
        return self.feed(tokens, num_tokens)

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        self.rewind(lengths)
