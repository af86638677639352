"""Pruning: take out the heads, neurons, channels and layers that matter least.

How much they matter is read off one forward pass over calibration texts. What is removed leaves no
zeros behind: the matrices shrink, and what comes out is a smaller model of the same kind.

Minitron: Muralidharan et al., 2024, arXiv:2407.14679. Block influence: Men et al., 2024,
arXiv:2403.03853.
Axes: B texts, S tokens, D channels, F neurons, N query heads, K KV heads, H head width, L layers.
"""

import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.compression import Importance, nats, record
from assignment.provided.models import Llama, LlamaConfig


def head_importance(
    outputs: Float[Tensor, "B S N H"], num_kv_heads: int
) -> Float[Tensor, "{num_kv_heads}"]:
    """Importance of each KV head: the sum of that of the N/K query heads that read it.

    A query head's: the norm of what it reads, ‖outputs[b, s, n]‖₂, mean over s, L2 norm over b.
    """
    # BEGIN SOLUTION
    of_heads = _aggregate(outputs.norm(dim=-1))
    return of_heads.view(num_kv_heads, -1).sum(dim=1)
    # END SOLUTION


def neuron_importance(x: Float[Tensor, "B S F"]) -> Float[Tensor, "F"]:
    """|x| of each column, mean over s, L2 norm over b: for neurons, and for channels."""
    # BEGIN SOLUTION
    return _aggregate(x.abs())
    # END SOLUTION


# BEGIN SOLUTION
def _aggregate(sizes: Float[Tensor, "B S parts"]) -> Float[Tensor, "parts"]:
    """Mean over the tokens of a text, then the L2 norm over texts, in float32."""
    return sizes.float().mean(dim=1).norm(dim=0)


# END SOLUTION


def block_influence(before: Float[Tensor, "B S D"], after: Float[Tensor, "B S D"]) -> float:
    """1 − mean cos(before[b, s], after[b, s]): 0 for a layer that turns nothing."""
    # BEGIN SOLUTION
    return 1 - torch.cosine_similarity(before.float(), after.float(), dim=-1).mean().item()
    # END SOLUTION


def importance(model: Llama, tokens: Int[Tensor, "B S"]) -> Importance:
    """Of all parts of the model, from one forward pass over `tokens`.

    KV heads: `head_importance` of the inputs of each o_proj. Neurons: of those of each down_proj.
    Channels: `neuron_importance` of what the two norms of each layer return, summed over all 2·L.
    Layers: `block_influence`.
    """
    # BEGIN SOLUTION
    config, recording = model.config, record(model, tokens)
    heads, neurons, channels = [], [], torch.zeros(config.d_model)
    for layer in (f"layers.{index}." for index in range(config.num_layers)):
        read = recording.inputs[layer + "attention.o_proj"].unflatten(-1, (config.num_heads, -1))
        heads.append(head_importance(read, config.num_kv_heads))
        neurons.append(neuron_importance(recording.inputs[layer + "mlp.down_proj"]))
        for name in ("attention.q_proj", "mlp.gate_proj"):
            channels += neuron_importance(recording.inputs[layer + name])
    layers = [block_influence(a, b) for a, b in itertools.pairwise(recording.states)]
    return Importance(torch.stack(heads), torch.stack(neurons), channels, torch.tensor(layers))
    # END SOLUTION


def loss_without(model: Llama, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "L"]:
    """For each layer, by how many nats a token the loss on `tokens` rises when it is left out."""
    # BEGIN SOLUTION
    whole = nats(model, tokens)
    num_layers = model.config.num_layers
    return torch.tensor([nats(prune_depth(model, [i]), tokens) - whole for i in range(num_layers)])
    # END SOLUTION


def prune_depth(model: Llama, layers: Sequence[int]) -> Llama:
    """A new model without these layers. The model itself is not changed.

    Raises:
        ValueError: a layer does not exist, or is named twice, or none would be left.
    """
    # BEGIN SOLUTION
    there = range(model.config.num_layers)
    if len(set(layers)) != len(layers) or not set(layers) < set(there):
        raise ValueError(f"layers: expected some of {there.start} … {there.stop - 1}, got {layers}")
    kept = [i for i in there if i not in layers]
    state = {}
    for name, value in model.state_dict().items():
        if not name.startswith("layers."):
            state[name] = value.clone()
    for new, old in enumerate(kept):
        for name, value in model.layers[old].state_dict().items():
            state[f"layers.{new}.{name}"] = value.clone()
    return _model(replace(model.config, num_layers=len(kept)), state)
    # END SOLUTION


def prune_width(
    model: Llama, importance: Importance, num_kv_heads: int, d_ff: int, d_model: int
) -> Llama:
    """A new model of these sizes, with the most important heads, neurons and channels.

    A KV head goes with the query heads that read it, so that N/K stays. Each layer keeps its own
    heads and neurons; the channels are the same everywhere. What is kept keeps its order; of equally
    important parts the first are kept. The model itself is not changed.

    Raises:
        ValueError: a size is below 1, or larger than it was.
    """
    # BEGIN SOLUTION
    old = model.config
    for name, new in (("num_kv_heads", num_kv_heads), ("d_ff", d_ff), ("d_model", d_model)):
        if not 1 <= new <= getattr(old, name):
            raise ValueError(f"{name}: expected 1 to {getattr(old, name)}, got {new}")
    group, width = old.num_heads // old.num_kv_heads, old.head_dim
    channels = _most(importance.channels, d_model)
    state = {
        name: value[..., channels].clone()
        for name, value in model.state_dict().items()
        if not name.startswith("layers.")
    }
    for index, layer in enumerate(model.layers):
        heads = _most(importance.kv_heads[index], num_kv_heads)
        neurons = _most(importance.neurons[index], d_ff)
        keys = _members(heads, width)
        queries = _members(heads, group * width)
        rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys, "o_proj": channels}
        rows |= {"gate_proj": neurons, "up_proj": neurons, "down_proj": channels}
        columns = {"o_proj": queries, "down_proj": neurons}
        for name, value in layer.state_dict().items():
            part = name.split(".")[-2]
            if value.dim() == 1:
                kept = value[channels]
            else:
                kept = value[rows[part]][:, columns.get(part, channels)]
            state[f"layers.{index}.{name}"] = kept.clone()
    sizes = {"num_heads": num_kv_heads * group, "num_kv_heads": num_kv_heads}
    return _model(replace(old, d_ff=d_ff, d_model=d_model, **sizes), state)
    # END SOLUTION


# BEGIN SOLUTION
def _most(importance: Float[Tensor, "parts"], count: int) -> Int[Tensor, "{count}"]:
    """Indices of the `count` largest, ascending; of equal ones the first."""
    return importance.argsort(descending=True, stable=True)[:count].sort().values


def _members(parts: Int[Tensor, "parts"], size: int) -> Int[Tensor, "all"]:
    """Rows of parts that are `size` rows each."""
    return (parts.unsqueeze(1) * size + torch.arange(size)).flatten()


def _model(config: LlamaConfig, state: dict[str, Tensor]) -> Llama:
    model = Llama(config, seed=None)
    model.load_state_dict(state, assign=True)
    return model.requires_grad_(False)


# END SOLUTION


def search_configs(
    config: LlamaConfig,
    budget: int,
    *,
    num_layers: Sequence[int],
    num_kv_heads: Sequence[int],
    d_ff: Sequence[int],
    d_model: Sequence[int],
    tolerance: float = 0.05,
) -> list[LlamaConfig]:
    """All configs of these sizes with (1 − tolerance) · budget to budget parameters, largest first.

    Every other size is that of `config`, and so is the number of query heads to a KV head. Norms,
    the embedding and an untied head count. Of equally large ones, the first in the order of the
    arguments.
    """
    # BEGIN SOLUTION
    group, found = config.num_heads // config.num_kv_heads, []
    for layers, heads, neurons, channels in itertools.product(
        num_layers, num_kv_heads, d_ff, d_model
    ):
        sizes = {"num_heads": heads * group, "num_kv_heads": heads}
        sizes |= {"num_layers": layers, "d_ff": neurons, "d_model": channels}
        candidate = replace(config, **sizes)
        if (1 - tolerance) * budget <= _parameters(candidate) <= budget:
            found.append(candidate)
    return sorted(found, key=_parameters, reverse=True)
    # END SOLUTION


# BEGIN SOLUTION
def _parameters(config: LlamaConfig) -> int:
    attention = 2 * (config.num_heads + config.num_kv_heads) * config.head_dim
    layer = config.d_model * (attention + 3 * config.d_ff + 2)
    tables = 1 if config.tie_embeddings else 2
    return config.num_layers * layer + config.d_model * (tables * config.vocab_size + 1)


# END SOLUTION
