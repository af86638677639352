"""The linear layers of a Llama by name, and a copy of the model with others in their place."""

import copy
from collections.abc import Mapping

from torch import nn

from ..models import Llama

# Of each layer. The embedding, which is also the head, is a table: it is not among them.
LINEARS = (
    "attention.q_proj",
    "attention.k_proj",
    "attention.v_proj",
    "attention.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
)


def linears(model: Llama) -> dict[str, nn.Module]:
    """Name -> layer, as "layers.0.attention.q_proj", for all linear layers of all blocks."""
    names = [f"layers.{i}.{part}" for i in range(len(model.layers)) for part in LINEARS]
    return {name: model.get_submodule(name) for name in names}


def with_linears(model: Llama, replaced: Mapping[str, nn.Module]) -> Llama:
    """A copy of the model with other modules, such as quantised ones, where the names say.

    The copy shares nothing with the model; what is replaced is not copied first.

    Raises:
        ValueError: a name is none of `linears(model)`.
    """
    there = linears(model)
    for name in replaced:
        if name not in there:
            raise ValueError(f"replaced: the model has no linear layer {name!r}")
    # deepcopy leaves out what it is told it has copied already.
    memo = {id(there[name]): layer for name, layer in replaced.items()}
    return copy.deepcopy(model, memo)
