"""A layer's cache in its plainest form: glue the new keys and values behind the old ones."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class GrowingCache:
    """A LayerCache by `torch.cat`, to try a layer before you have a real cache.

    It copies everything it holds at every append, knows rows of equal length only, has no capacity
    and cannot roll back.

    Args:
        batch_size: rows. Without it the first `append` tells; until then `positions` and `lengths`
            have one row, which stands for all.
    """

    def __init__(self, batch_size: int | None = None):
        self._batch_size = batch_size
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return torch.full((self._batch_size or 1,), self._held)

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return self.lengths.unsqueeze(1) + torch.arange(num_new)

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        """Add all T columns to every row.

        Raises:
            ValueError: if rows differ in their number of tokens, or k and v do not fit each other
                or what is held. Nothing has changed then.
        """
        if num_tokens is not None and num_tokens.tolist() != [k.shape[2]] * k.shape[0]:
            raise ValueError(
                f"num_tokens: a GrowingCache adds all {k.shape[2]} columns to all {k.shape[0]} "
                f"rows, got {num_tokens.tolist()}"
            )
        held = [self._batch_size or k.shape[0], *k.shape[1:]]
        if self._k is not None:
            held = [*self._k.shape[:2], k.shape[2], self._k.shape[3]]
        if list(k.shape) != held or v.shape[:3] != k.shape[:3]:
            raise ValueError(
                f"k, v: expected {held} [batch, kv heads, seq, head_dim], "
                f"got {list(k.shape)} and {list(v.shape)}"
            )
        self._k = k if self._k is None else torch.cat([self._k, k], dim=2)
        self._v = v if self._v is None else torch.cat([self._v, v], dim=2)
        self._batch_size = k.shape[0]

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        if self._k is None or self._v is None:
            raise ValueError("this GrowingCache is empty: append first")
        return self._k, self._v

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        raise RuntimeError("a GrowingCache cannot roll back: use a KVCache")

    @property
    def _held(self) -> int:
        return 0 if self._k is None else self._k.shape[2]
