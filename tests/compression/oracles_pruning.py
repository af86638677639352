"""What pruning is checked against: a Llama from its formulas in float64, and slicing by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from assignment.provided.compression import Importance
from assignment.provided.models import Llama, LlamaConfig
from tests.attention.oracles import attention, rope_angles, rotate

Weights = dict[str, Tensor]


def draw_weights(draw, config: LlamaConfig, dtype: torch.dtype = torch.float32) -> Weights:
    """Matrices from N(0, 1 / inputs), norms near 1, by the names of a Llama's state dict."""
    shapes = {name: weight.shape for name, weight in Llama(config, seed=None).state_dict().items()}
    return {
        name: draw.normal(*shape, scale=shape[1] ** -0.5).to(dtype)
        if len(shape) == 2
        else (1 + draw.normal(*shape, scale=0.3)).to(dtype)
        for name, shape in shapes.items()
    }


# --- the model -----------------------------------------------------------------------------------


@dataclass
class Pass:
    """What a model computes on the way. read [B S N H] and neurons [B S F] have one entry a layer,
    normed [B S D] two, states [B S D] one more than there are layers."""

    read: list[Tensor] = field(default_factory=list)
    neurons: list[Tensor] = field(default_factory=list)
    normed: list[Tensor] = field(default_factory=list)
    states: list[Tensor] = field(default_factory=list)
    logits: Tensor | None = None


def run(config: LlamaConfig, weights: Weights, tokens: Tensor) -> Pass:
    """The whole model in float64."""
    weights = {name: weight.double() for name, weight in weights.items()}
    found = Pass()
    x = weights["embedding.weight"][tokens]
    found.states.append(x)
    for index in range(config.num_layers):
        of_layer = {
            name.removeprefix(f"layers.{index}."): weight
            for name, weight in weights.items()
            if name.startswith(f"layers.{index}.")
        }
        x = _layer(config, of_layer, x, found)
        found.states.append(x)
    head = weights["embedding.weight" if config.tie_embeddings else "head.weight"]
    found.logits = _norm(config, weights["norm.weight"], x) @ head.T
    return found


def _layer(config: LlamaConfig, weights: Weights, x: Tensor, found: Pass) -> Tensor:
    inside = _norm(config, weights["attention_norm.weight"], x)
    found.normed.append(inside)

    def heads(name: str) -> Tensor:
        projected = inside @ weights[f"attention.{name}_proj.weight"].T
        return projected.unflatten(-1, (-1, config.head_dim)).transpose(1, 2)

    positions = torch.arange(x.shape[1])[None].expand(len(x), -1)
    angles = rope_angles(positions, config.head_dim, config.rope_theta, torch.float64)
    read = attention(rotate(heads("q"), angles), rotate(heads("k"), angles), heads("v"))
    read = read.transpose(1, 2)
    found.read.append(read)
    x = x + read.flatten(2) @ weights["attention.o_proj.weight"].T

    inside = _norm(config, weights["mlp_norm.weight"], x)
    found.normed.append(inside)
    gate, up = (inside @ weights[f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
    neurons = gate / (1 + (-gate).exp()) * up
    found.neurons.append(neurons)
    return x + neurons @ weights["mlp.down_proj.weight"].T


def _norm(config: LlamaConfig, weight: Tensor, x: Tensor) -> Tensor:
    return x / (x.square().mean(dim=-1, keepdim=True) + config.norm_eps).sqrt() * weight


def nats(logits: Tensor, tokens: Tensor) -> float:
    """Mean of −log p of each next token."""
    log_p = logits - logits.logsumexp(dim=-1, keepdim=True)
    rows, length = tokens.shape
    found = [
        -log_p[row, place, tokens[row, place + 1]].item()
        for row in range(rows)
        for place in range(length - 1)
    ]
    return sum(found) / len(found)


# --- importance ----------------------------------------------------------------------------------


def over_texts(sizes: list[list[float]]) -> float:
    """sizes[text][token] -> the L2 norm over texts of the mean over tokens."""
    return math.sqrt(sum((sum(text) / len(text)) ** 2 for text in sizes))


def head_importance(outputs: Tensor, num_kv_heads: int) -> Tensor:
    lengths = outputs.double().square().sum(dim=-1).sqrt()
    num_heads = outputs.shape[2]
    of_queries = [over_texts(lengths[:, :, head].tolist()) for head in range(num_heads)]
    found = [0.0] * num_kv_heads
    for head, value in enumerate(of_queries):
        found[head // (num_heads // num_kv_heads)] += value
    return torch.tensor(found, dtype=torch.float64)


def neuron_importance(x: Tensor) -> Tensor:
    sizes = x.double().abs()
    found = [over_texts(sizes[:, :, column].tolist()) for column in range(x.shape[2])]
    return torch.tensor(found, dtype=torch.float64)


def block_influence(before: Tensor, after: Tensor) -> float:
    pairs = zip(before.double().flatten(0, 1), after.double().flatten(0, 1), strict=True)
    cosines = [float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)) for a, b in pairs]
    return 1 - sum(cosines) / len(cosines)


def importance(config: LlamaConfig, weights: Weights, tokens: Tensor) -> Importance:
    found = run(config, weights, tokens)
    return Importance(
        kv_heads=torch.stack([head_importance(read, config.num_kv_heads) for read in found.read]),
        neurons=torch.stack([neuron_importance(x) for x in found.neurons]),
        channels=sum(neuron_importance(x) for x in found.normed),
        layers=torch.tensor([block_influence(*pair) for pair in itertools.pairwise(found.states)]),
    )


# --- removal -------------------------------------------------------------------------------------


def without_layers(
    config: LlamaConfig, weights: Weights, layers: Sequence[int]
) -> tuple[LlamaConfig, Weights]:
    """Sizes and weights of what is left."""
    kept = [index for index in range(config.num_layers) if index not in layers]
    left = {}
    for name, weight in weights.items():
        parts = name.split(".")
        if parts[0] == "layers":
            if int(parts[1]) not in kept:
                continue
            parts[1] = str(kept.index(int(parts[1])))
        left[".".join(parts)] = weight
    return replace(config, num_layers=len(kept)), left


def losses_without(config: LlamaConfig, weights: Weights, tokens: Tensor) -> Tensor:
    """Loss of the model without each layer, [L]."""
    found = []
    for index in range(config.num_layers):
        left = without_layers(config, weights, [index])
        found.append(nats(run(*left, tokens).logits, tokens))
    return torch.tensor(found, dtype=torch.float64)


def narrowed(
    config: LlamaConfig, weights: Weights, parts: Importance, sizes: tuple[int, int, int]
) -> tuple[LlamaConfig, Weights]:
    """Sizes and weights of a model with `sizes` = (KV heads, neurons, channels), row by row."""
    num_kv_heads, d_ff, d_model = sizes
    group = config.num_heads // config.num_kv_heads
    channels, left = largest(parts.channels, d_model), {}
    for name, weight in weights.items():
        rows, columns = list(range(len(weight))), channels
        if name.startswith("layers."):
            layer = int(name.split(".")[1])
            heads = largest(parts.kv_heads[layer], num_kv_heads)
            queries = [head * group + member for head in heads for member in range(group)]
            neurons = largest(parts.neurons[layer], d_ff)
            kind = name.split(".")[-2]
            if kind == "q_proj":
                rows = _rows(queries, config.head_dim)
            elif kind in ("k_proj", "v_proj"):
                rows = _rows(heads, config.head_dim)
            elif kind in ("gate_proj", "up_proj"):
                rows = neurons
            elif kind == "o_proj":
                rows, columns = channels, _rows(queries, config.head_dim)
            elif kind == "down_proj":
                rows, columns = channels, neurons
        if weight.dim() == 1:
            left[name] = torch.stack([weight[channel] for channel in channels])
        else:
            left[name] = torch.stack([weight[row][columns] for row in rows])
    config = replace(config, num_heads=num_kv_heads * group, num_kv_heads=num_kv_heads)
    return replace(config, d_ff=d_ff, d_model=d_model), left


def largest(values: Tensor, count: int) -> list[int]:
    """Places of the `count` largest in their order; of equal ones the first."""
    ranked = sorted(range(len(values)), key=lambda place: (-values[place].item(), place))
    return sorted(ranked[:count])


def _rows(parts: list[int], size: int) -> list[int]:
    return [part * size + row for part in parts for row in range(size)]


# --- sizes ---------------------------------------------------------------------------------------


def parameters(config: LlamaConfig) -> int:
    """Weights of a model that is built for it."""
    return sum(weight.numel() for weight in Llama(config, seed=None).parameters())


def configs(config: LlamaConfig, lists: dict[str, list[int]]) -> list[tuple[LlamaConfig, int]]:
    """All configs of these sizes in the order of nested loops, with their numbers of weights."""
    group, found = config.num_heads // config.num_kv_heads, []
    for layers in lists["num_layers"]:
        for heads in lists["num_kv_heads"]:
            for neurons in lists["d_ff"]:
                for channels in lists["d_model"]:
                    one = LlamaConfig(
                        config.vocab_size,
                        layers,
                        channels,
                        heads * group,
                        heads,
                        config.head_dim,
                        neurons,
                        config.rope_theta,
                        config.norm_eps,
                        config.tie_embeddings,
                    )
                    found.append((one, parameters(one)))
    return found
