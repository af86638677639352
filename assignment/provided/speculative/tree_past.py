"""A Llama that reads trees: one sequence, and branches that may come after it, in one call."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ..models import Llama


@runtime_checkable
class TreePast(Protocol):
    """The keys and values of one sequence, in slots, and the model that fills and reads them.

    A slot belongs to the token that was fed into it. Which tokens a new one sees, and at which
    position it stands, its caller says: so tokens of several branches can be fed together.
    """

    @property
    def length(self) -> int:
        """Slots in use."""

    def feed(
        self, tokens: Int[Tensor, "T"], positions: Int[Tensor, "T"], mask: Bool[Tensor, "T S"]
    ) -> Float[Tensor, "T D"]:
        """Put new tokens into the next T slots; what the last block says of each, before the norm.

        mask[t, s]: new token t sees slot s. S = length + T, the new tokens' own slots included.
        """

    def logits(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T V"]:
        """The model's norm and head."""

    def keep(self, slots: Sequence[int]) -> None:
        """Move these slots, in this order, to the front, and forget all others."""


class LlamaPast:
    """A `TreePast` of a Llama with full attention, in plain torch."""

    def __init__(self, model: Llama):
        self.model = model
        sizes = model.config
        empty = torch.zeros(1, sizes.num_kv_heads, 0, sizes.head_dim, dtype=model.dtype)
        self._keys_values = [(empty, empty)] * sizes.num_layers

    @property
    def length(self) -> int:
        return self._keys_values[0][0].shape[2]

    @torch.no_grad()
    def feed(
        self, tokens: Int[Tensor, "T"], positions: Int[Tensor, "T"], mask: Bool[Tensor, "T S"]
    ) -> Float[Tensor, "T D"]:
        expected = (len(tokens), self.length + len(tokens))
        if positions.shape != tokens.shape or mask.shape != expected:
            raise ValueError(
                f"expected {list(tokens.shape)} positions and a mask of {list(expected)}, "
                f"got {list(positions.shape)} and {list(mask.shape)}"
            )
        grown: list[tuple[Tensor, Tensor]] = []

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            keys, values = self._keys_values[layer]
            grown.append((torch.cat([keys, k], dim=2), torch.cat([values, v], dim=2)))
            return scaled_dot_product_attention(q, *grown[-1], mask, enable_gqa=True)

        hidden = self.model.hidden(tokens[None], positions[None], attend)[0]
        self._keys_values = grown
        return hidden

    def logits(self, hidden: Float[Tensor, "T D"]) -> Float[Tensor, "T V"]:
        return self.model.logits(hidden[None])[0]

    def keep(self, slots: Sequence[int]) -> None:
        if not all(0 <= slot < self.length for slot in slots) or len(set(slots)) != len(slots):
            raise ValueError(f"slots: expected different ones of {self.length}, got {list(slots)}")
        index = torch.tensor(slots, dtype=torch.int64)
        self._keys_values = [
            (keys[:, :, index], values[:, :, index]) for keys, values in self._keys_values
        ]


@dataclass(frozen=True)
class TreePastParts:
    """A `TreePast` made of functions of yours, for tests; `held` returns its length."""

    feed: Callable
    logits: Callable
    keep: Callable
    held: Callable

    @property
    def length(self) -> int:
        return self.held()
