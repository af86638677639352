"""Pruning: take out the heads, neurons, channels and layers that matter least.

How much they matter is read off a forward pass over calibration texts, without gradients. What is
removed leaves no zeros behind: the matrices shrink, and what comes out is a smaller model of the
same kind. All layers have full attention: `config.attention` is empty.

Minitron: Muralidharan et al., "Compact Language Models via Pruning and Knowledge Distillation",
2024, arXiv:2407.14679. Block influence: Men et al., "ShortGPT", 2024, arXiv:2403.03853.

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
    """Importance of each KV head: the sum of that of the N / K query heads that read it.

    A query head's importance is the length of what it read, ‖outputs[b, s, n]‖₂, averaged over the
    tokens s of a text; of these means, the L2 norm over the texts b. Query head n reads KV head
    n // (N / K).

    In float32, whatever the dtype of the outputs: bfloat16 makes unequal heads equal. 2–3 lines, of
    which one also serves `neuron_importance`.
    """
    # BEGIN SOLUTION
    of_heads = _over_texts(outputs.float().norm(dim=-1))
    return of_heads.view(num_kv_heads, -1).sum(dim=1)
    # END SOLUTION


def neuron_importance(x: Float[Tensor, "B S F"]) -> Float[Tensor, "F"]:
    """Importance of each column of x, a neuron or a channel: |x[b, s, f]|, mean over s, L2 norm
    over b. In float32, whatever the dtype of x.
    """
    # BEGIN SOLUTION
    return _over_texts(x.float().abs())
    # END SOLUTION


# BEGIN SOLUTION
def _over_texts(sizes: Float[Tensor, "B S parts"]) -> Float[Tensor, "parts"]:
    """Mean over the tokens of a text, then the L2 norm over texts."""
    return sizes.mean(dim=1).norm(dim=0)


# END SOLUTION


def block_influence(before: Float[Tensor, "B S D"], after: Float[Tensor, "B S D"]) -> float:
    """How far a layer turns the residual stream: 1 − mean of cos(before[b, s], after[b, s]).

    0 for a layer that turns nothing, however much it stretches. The mean is over all B·S tokens.
    In float32, whatever the dtype: cosines are near 1, and bfloat16 knows nothing between
    1 and 0.996.
    """
    # BEGIN SOLUTION
    return 1 - torch.cosine_similarity(before.float(), after.float(), dim=-1).mean().item()
    # END SOLUTION


def importance(model: Llama, tokens: Int[Tensor, "B S"]) -> Importance:
    """Importance of all parts of the model, from one forward pass over `tokens`.

    kv_heads: `head_importance` of what enters o_proj in each layer, N heads of width H.
    neurons: `neuron_importance` of what enters down_proj.
    channels: `neuron_importance` of what the two norms of a layer return, which is what enters
        q_proj and gate_proj; summed over all 2·L norms. All layers share the channels.
    layers: `block_influence` of each.

    All in float32, whatever the dtype of the model.

    Hint: `record` keeps all of this. 8–12 lines.
    """
    # BEGIN SOLUTION
    config, recording = model.config, record(model, tokens)
    heads, neurons, channels = [], [], []
    for layer in (f"layers.{index}." for index in range(config.num_layers)):
        read = recording.inputs[layer + "attention.o_proj"].unflatten(-1, (config.num_heads, -1))
        heads.append(head_importance(read, config.num_kv_heads))
        neurons.append(neuron_importance(recording.inputs[layer + "mlp.down_proj"]))
        for reader in ("attention.q_proj", "mlp.gate_proj"):
            channels.append(neuron_importance(recording.inputs[layer + reader]))
    layers = [block_influence(*pair) for pair in itertools.pairwise(recording.states)]
    return Importance(
        torch.stack(heads), torch.stack(neurons), torch.stack(channels).sum(0), torch.tensor(layers)
    )
    # END SOLUTION


def prune_depth(model: Llama, layers: Sequence[int]) -> Llama:
    """A new model without these layers, which may be named in any order. The others move up; a copy
    if none is named.

    The new model has the dtype of the old one, which is not changed and shares no memory with it.
    About 10 lines. Hint: `Llama(config, seed=None)` has no weights yet, and
    `load_state_dict(…, assign=True)` takes tensors as they are, in their dtype.

    Raises:
        ValueError: a layer does not exist (there is no layer −1), or is named twice, or none would
            be left.
    """
    # BEGIN SOLUTION
    there = range(model.config.num_layers)
    if len(set(layers)) != len(layers) or not set(layers) < set(there):
        raise ValueError(f"layers: expected some of 0 … {there.stop - 1}, got {layers}")
    kept = [index for index in there if index not in layers]
    state = _outside_the_layers(model)
    for new, old in enumerate(kept):
        for name, weight in model.layers[old].state_dict().items():
            state[f"layers.{new}.{name}"] = weight.clone()
    return _model(replace(model.config, num_layers=len(kept)), state)
    # END SOLUTION


def loss_without(model: Llama, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "L"]:
    """For each layer, by how much the loss on `tokens` rises when that layer alone is left out.

    In nats a token (`nats`); below 0 where the model is better without. For a model of two layers
    or more. The whole model runs once, and a model without a layer L times. 3–4 lines.
    """
    # BEGIN SOLUTION
    whole = nats(model, tokens)
    without = [nats(prune_depth(model, [i]), tokens) for i in range(model.config.num_layers)]
    return torch.tensor(without) - whole
    # END SOLUTION


def prune_width(
    model: Llama, importance: Importance, num_kv_heads: int, d_ff: int, d_model: int
) -> Llama:
    """A new model of these sizes, made of the most important KV heads, neurons and channels.

    A KV head goes with the query heads that read it: N / K stays, and so does H. Each layer keeps
    heads and neurons of its own choice. Channels are the same everywhere, also in the embedding,
    in all norms, and in the head, if it is a matrix of its own. What is kept keeps its order; of
    equally important parts the first are kept. Importance is at least 0, and often 0.

    The new model has the dtype of the old one, which is not changed and shares no memory with it.
    About 25 lines. Hint: of a matrix [out, in], the rows belong to what it writes and the columns
    to what it reads; write down both for each of the seven.

    Raises:
        ValueError: a size is below 1, or larger than it was.
    """
    # BEGIN SOLUTION
    old = model.config
    for name, new in (("num_kv_heads", num_kv_heads), ("d_ff", d_ff), ("d_model", d_model)):
        if not 1 <= new <= getattr(old, name):
            raise ValueError(f"{name}: expected 1 to {getattr(old, name)}, got {new}")
    group = old.num_heads // old.num_kv_heads
    channels = _most(importance.channels, d_model)
    state = {name: weight[..., channels] for name, weight in _outside_the_layers(model).items()}
    for index, layer in enumerate(model.layers):
        heads = _most(importance.kv_heads[index], num_kv_heads)
        keys, queries = _rows_of(heads, old.head_dim), _rows_of(heads, group * old.head_dim)
        neurons = _most(importance.neurons[index], d_ff)
        rows_and_columns = {
            "q_proj": (queries, channels),
            "k_proj": (keys, channels),
            "v_proj": (keys, channels),
            "o_proj": (channels, queries),
            "gate_proj": (neurons, channels),
            "up_proj": (neurons, channels),
            "down_proj": (channels, neurons),
        }
        for name, weight in layer.state_dict().items():
            part = name.split(".")[-2]
            if part in rows_and_columns:
                rows, columns = rows_and_columns[part]
                state[f"layers.{index}.{name}"] = weight[rows[:, None], columns]
            else:
                state[f"layers.{index}.{name}"] = weight[channels]
    sizes = {"num_heads": num_kv_heads * group, "num_kv_heads": num_kv_heads}
    return _model(replace(old, d_ff=d_ff, d_model=d_model, **sizes), state)
    # END SOLUTION


# BEGIN SOLUTION
def _most(importance: Float[Tensor, "parts"], count: int) -> Int[Tensor, "{count}"]:
    """Indices of the `count` largest, ascending; of equal ones the first."""
    return importance.argsort(descending=True, stable=True)[:count].sort().values


def _rows_of(parts: Int[Tensor, "parts"], size: int) -> Int[Tensor, "rows"]:
    """The rows of these parts in a matrix where each part has `size` rows."""
    return (parts[:, None] * size + torch.arange(size)).flatten()


def _outside_the_layers(model: Llama) -> dict[str, Tensor]:
    """Copies of the embedding, the last norm, and the head if it is untied."""
    named = model.state_dict().items()
    return {name: weight.clone() for name, weight in named if not name.startswith("layers.")}


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

    Both ends count. All else is as in `config`, also N / K and H. Every weight counts: matrices,
    norms, the embedding, and the head if it is untied. Of equally large configs, the first is that
    which nested loops meet first: over num_layers, in it over num_kv_heads, d_ff, d_model, each in
    the given order. About 15 lines.
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
