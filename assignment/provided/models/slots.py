"""Which token stands in which slot of a layer's cache."""

import torch
from jaxtyping import Int
from torch import Tensor


def key_positions(cache) -> Int[Tensor, "B S"]:
    """For each slot of `cache.keys_values()`, the position of the token in it; −1 for no token.

    A rolling cache, whose slots are not in order, has a method of this name, which is called. In
    any other LayerCache slot j holds token j of its row.
    """
    if hasattr(cache, "key_positions"):
        return cache.key_positions()
    return token_of_each_slot(cache.lengths, cache.keys_values()[0].shape[2])


def token_of_each_slot(lengths: Int[Tensor, "B"], num_slots: int) -> Int[Tensor, "B S"]:
    """Slot j of row b holds token j, if the row has that many."""
    slots = torch.arange(num_slots, device=lengths.device)
    return torch.where(slots < lengths.unsqueeze(1), slots, -1)
