"""The state dict, name by name, with einops: heads and their rows get axes of their own."""

import re
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise, product

import torch
from einops import rearrange, reduce
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.compression import Importance, nats, record
from assignment.provided.models import Llama, LlamaConfig


def _text_norms(sizes: Tensor) -> Tensor:
    means = reduce(sizes, "b s ... -> b ...", "mean")
    return reduce(means**2, "b ... -> ...", "sum") ** 0.5


def head_importance(
    outputs: Float[Tensor, "B S N H"], num_kv_heads: int
) -> Float[Tensor, "{num_kv_heads}"]:
    lengths = reduce(outputs.to(torch.float32) ** 2, "b s n h -> b s n", "sum") ** 0.5
    return reduce(_text_norms(lengths), "(k g) -> k", "sum", k=num_kv_heads)


def neuron_importance(x: Float[Tensor, "B S F"]) -> Float[Tensor, "F"]:
    return _text_norms(x.to(torch.float32).abs())


def block_influence(before: Float[Tensor, "B S D"], after: Float[Tensor, "B S D"]) -> float:
    turned = 0.0
    for text_before, text_after in zip(before.double(), after.double(), strict=True):
        for x, y in zip(text_before, text_after, strict=True):
            turned += 1 - float((x @ y) / torch.sqrt((x @ x) * (y @ y)))
    return turned / before.shape[:2].numel()


def importance(model: Llama, tokens: Int[Tensor, "B S"]) -> Importance:
    recording = record(model, tokens)
    kept = {"o_proj": [], "down_proj": [], "q_proj": [], "gate_proj": []}
    for i in range(model.config.num_layers):
        for name, given in recording.inputs.items():
            _, layer, _, part = name.split(".")
            if int(layer) == i and part in kept:
                kept[part].append(given)
    read = torch.stack(kept["o_proj"])
    read = rearrange(read, "l b s (n h) -> l b s n h", n=model.config.num_heads)
    normed = [neuron_importance(x) for x in kept["q_proj"] + kept["gate_proj"]]
    states = recording.states
    influence = [block_influence(states[i], states[i + 1]) for i in range(len(states) - 1)]
    return Importance(
        torch.stack([head_importance(x, model.config.num_kv_heads) for x in read]),
        torch.stack([neuron_importance(x) for x in kept["down_proj"]]),
        torch.stack(normed).sum(dim=0),
        torch.tensor(influence),
    )


def loss_without(model: Llama, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "L"]:
    count = model.config.num_layers
    losses = [
        nats(prune_depth(model, layers), tokens) for layers in [[], *([i] for i in range(count))]
    ]
    return torch.tensor([loss - losses[0] for loss in losses[1:]])


def _built(sizes: dict, weights: dict[str, Tensor]) -> Llama:
    model = Llama(LlamaConfig(**sizes), seed=None).to(weights["norm.weight"].dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])
    return model


def prune_depth(model: Llama, layers: Sequence[int]) -> Llama:
    sizes, gone = asdict(model.config), sorted(layers)
    count = sizes["num_layers"]
    distinct = all(a < b for a, b in pairwise(gone))
    if not distinct or any(not 0 <= i < count for i in gone) or len(gone) >= count:
        raise ValueError(f"layers: cannot leave out {list(layers)} of {count}")
    weights = {}
    for name, weight in model.state_dict().items():
        found = re.match(r"layers\.(\d+)\.(.*)", name)
        if not found:
            weights[name] = weight
        elif int(found[1]) not in gone:
            moved = int(found[1]) - sum(i < int(found[1]) for i in gone)
            weights[f"layers.{moved}.{found[2]}"] = weight
    return _built(sizes | {"num_layers": count - len(gone)}, weights)


def _first_largest(values: Tensor, count: int) -> list[int]:
    """Take the largest that is left, `count` times."""
    values, taken = values.double().clone(), []
    for _ in range(count):
        best = next(i for i in range(len(values)) if values[i] == values.max())
        taken.append(best)
        values[best] = -torch.inf
    return sorted(taken)


def prune_width(
    model: Llama, importance: Importance, num_kv_heads: int, d_ff: int, d_model: int
) -> Llama:
    sizes = asdict(model.config)
    new = {"num_kv_heads": num_kv_heads, "d_ff": d_ff, "d_model": d_model}
    for name, size in new.items():
        if size not in range(1, sizes[name] + 1):
            raise ValueError(f"{name} = {size} is not 1 … {sizes[name]}")
    head_dim, old_kv_heads = sizes["head_dim"], sizes["num_kv_heads"]
    channels = _first_largest(importance.channels, d_model)
    heads = [_first_largest(row, num_kv_heads) for row in importance.kv_heads]
    neurons = [_first_largest(row, d_ff) for row in importance.neurons]
    weights = {}
    for name, weight in model.state_dict().items():
        layer = int(name.split(".")[1]) if name.startswith("layers") else None
        if re.search("[qkv]_proj", name):
            blocks = rearrange(weight, "(k rows) d -> k rows d", k=old_kv_heads)
            weight = rearrange(blocks[heads[layer]][..., channels], "k rows d -> (k rows) d")
        elif "o_proj" in name:
            blocks = rearrange(weight, "d (k g h) -> d k (g h)", k=old_kv_heads, h=head_dim)
            weight = rearrange(blocks[channels][:, heads[layer]], "d k gh -> d (k gh)")
        elif "gate_proj" in name or "up_proj" in name:
            weight = weight[neurons[layer]][:, channels]
        elif "down_proj" in name:
            weight = weight[:, neurons[layer]][channels]
        else:
            weight = weight[..., channels]
        weights[name] = weight
    new["num_heads"] = num_kv_heads * (sizes["num_heads"] // old_kv_heads)
    return _built(sizes | new, weights)


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
    group = config.num_heads // config.num_kv_heads
    found = []
    for place, (layers, heads, f, d) in enumerate(product(num_layers, num_kv_heads, d_ff, d_model)):
        queries, keys = d * heads * group * config.head_dim, d * heads * config.head_dim
        size = layers * (2 * queries + 2 * keys + 3 * d * f + 2 * d) + d
        size += config.vocab_size * d * (1 if config.tie_embeddings else 2)
        if budget >= size >= budget * (1 - tolerance):
            sizes = dict(num_layers=layers, num_kv_heads=heads, d_ff=f, d_model=d)
            found.append((-size, place, asdict(config) | sizes | {"num_heads": heads * group}))
    return [LlamaConfig(**sizes) for _, _, sizes in sorted(found, key=lambda one: one[:2])]
