"""A layer's cache whose work is done by functions that you give: for tests of a layer."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor


class DelegatingCache:
    """A LayerCache that keeps nothing: every method calls a function.

    Args:
        read_lengths: () -> lengths [B].
        append: (k [B,K,T,H], v [B,K,T,H], num_tokens [B] or None) -> None.
        keys_values: () -> keys and values, each [B,K,S,H].
        truncate: (lengths [B]) -> None; may be left out.
    """

    def __init__(
        self,
        read_lengths: Callable,
        append: Callable,
        keys_values: Callable,
        truncate: Callable | None = None,
    ):
        self._read_lengths, self._append = read_lengths, append
        self._keys_values, self._truncate = keys_values, truncate

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self._read_lengths()

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return self.lengths.unsqueeze(1) + torch.arange(num_new)

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        self._append(k, v, num_tokens)

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        return self._keys_values()

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        if self._truncate is None:
            raise RuntimeError("this DelegatingCache was given no function to roll back")
        self._truncate(lengths)
