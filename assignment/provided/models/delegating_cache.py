"""A layer's cache whose work is done by functions that you give: for tests of a layer."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .slots import token_of_each_slot


class DelegatingCache:
    """A LayerCache that keeps nothing: every method calls a function.

    Args:
        read_lengths: () -> lengths [B].
        append: (k [B,K,T,H], v [B,K,T,H], num_tokens [B] or None) -> None.
        keys_values: () -> keys and values, each [B,K,S,H].
        truncate: (lengths [B]) -> None; may be left out.
        key_positions: () -> [B,S], as a rolling cache has it; may be left out, and then slot j
            holds token j.
    """

    def __init__(
        self,
        read_lengths: Callable,
        append: Callable,
        keys_values: Callable,
        truncate: Callable | None = None,
        key_positions: Callable | None = None,
    ):
        self._read_lengths, self._append = read_lengths, append
        self._keys_values, self._truncate = keys_values, truncate
        self._key_positions = key_positions

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

    def key_positions(self) -> Int[Tensor, "B S"]:
        if self._key_positions is None:
            return token_of_each_slot(self.lengths, self.keys_values()[0].shape[2])
        return self._key_positions()

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        if self._truncate is None:
            raise RuntimeError("this DelegatingCache was given no function to roll back")
        self._truncate(lengths)
