"""What a Llama computes on the way to its logits, kept for calibration."""

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from ..models import Llama
from .linears import linears


@dataclass(frozen=True)
class Recording:
    """One pass of a model over calibration tokens [B T], without gradients.

    inputs: name of a linear layer, as in the model's state dict ("layers.0.attention.q_proj") ->
        what it was given [B T in]. q_proj, k_proj and v_proj of a layer share one tensor, which is
        its attention's normalised input; so do gate_proj and up_proj. The input of o_proj is what
        the query heads read, one after another [B T N·H]; that of down_proj, the MLP's neurons
        [B T F].
    states: L + 1 tensors [B T D], the residual stream before the first layer and after each.
    logits: [B T V].
    """

    inputs: dict[str, Tensor]
    states: list[Tensor]
    logits: Tensor


@torch.no_grad()
def record(model: Llama, tokens: Int[Tensor, "B T"]) -> Recording:
    """Run the model over `tokens` and keep what its parts were given."""
    inputs: dict[str, Tensor] = {}
    states: list[Tensor] = []

    def keep(name: str):
        return lambda module, given, result: inputs.__setitem__(name, given[0])

    with ExitStack() as hooks:
        for name, layer in linears(model).items():
            hooks.callback(layer.register_forward_hook(keep(name)).remove)
        for layer in model.layers:
            before = layer.register_forward_pre_hook(lambda module, given: states.append(given[0]))
            hooks.callback(before.remove)
        states_after = model.hidden(tokens)
        logits = model.logits(states_after)
    return Recording(inputs, [*states, states_after], logits)
