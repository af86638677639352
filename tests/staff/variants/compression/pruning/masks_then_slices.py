"""Boolean masks over the parts, blown up to masks over rows and columns; layers skipped by hand."""

import dataclasses
import math
from collections.abc import Sequence

import torch
from einops import rearrange, repeat
from jaxtyping import Bool, Float, Int
from torch import Tensor

from assignment.provided.compression import Importance, record
from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.llama import attend_causally
from assignment.provided.models.rotary import cos_sin_at
from assignment.provided.models.training import next_token_loss


def head_importance(
    outputs: Float[Tensor, "B S N H"], num_kv_heads: int
) -> Float[Tensor, "{num_kv_heads}"]:
    grouped = rearrange(outputs.float(), "b s (k g) h -> b s k g h", k=num_kv_heads)
    lengths = grouped.square().sum(dim=-1).sqrt().mean(dim=1)
    return lengths.square().sum(dim=0).sqrt().sum(dim=-1)


def neuron_importance(x: Float[Tensor, "B S F"]) -> Float[Tensor, "F"]:
    return torch.linalg.vector_norm(x.float().abs().sum(dim=1) / x.shape[1], dim=0)


def block_influence(before: Float[Tensor, "B S D"], after: Float[Tensor, "B S D"]) -> float:
    before, after = before.float(), after.float()
    products = torch.einsum("bsd,bsd->bs", before, after)
    cosines = products / (before.norm(dim=-1) * after.norm(dim=-1))
    return 1.0 - cosines.double().mean().item()


def importance(model: Llama, tokens: Int[Tensor, "B S"]) -> Importance:
    num_layers, num_heads = model.config.num_layers, model.config.num_heads
    seen = record(model, tokens)

    def of(i: int, part: str) -> Tensor:
        return seen.inputs[f"layers.{i}.{part}_proj"]

    heads = torch.zeros(num_layers, model.config.num_kv_heads)
    neurons = torch.zeros(num_layers, model.config.d_ff)
    channels, layers = torch.zeros(model.config.d_model), torch.zeros(num_layers)
    for i in range(num_layers):
        read = rearrange(of(i, "attention.o"), "b s (n h) -> b s n h", n=num_heads)
        heads[i] = head_importance(read, model.config.num_kv_heads)
        neurons[i] = neuron_importance(of(i, "mlp.down"))
        channels += neuron_importance(of(i, "attention.v"))
        channels += neuron_importance(of(i, "mlp.up"))
        layers[i] = block_influence(seen.states[i], seen.states[i + 1])
    return Importance(kv_heads=heads, neurons=neurons, channels=channels, layers=layers)


@torch.no_grad()
def loss_without(model: Llama, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "L"]:
    """What comes before the layer that is left out is computed once for all."""
    positions = torch.arange(tokens.shape[1])[None]
    cos_sin = cos_sin_at(positions, model.config.head_dim, model.config.rope_theta)

    def through(x: Tensor, layers: Sequence[int]) -> Tensor:
        for i in layers:
            x = model.layers[i](x, cos_sin, lambda q, k, v: attend_causally(0, q, k, v))
        return x

    x, count, losses = model.embedding(tokens), model.config.num_layers, []
    for i in range(count):
        end = through(x, range(i + 1, count))
        losses.append(next_token_loss(model.logits(end), tokens).item())
        x = through(x, [i])
    whole = next_token_loss(model.logits(x), tokens).item()
    return torch.tensor([loss - whole for loss in losses])


def prune_depth(model: Llama, layers: Sequence[int]) -> Llama:
    stays = [True] * model.config.num_layers
    for layer in layers:
        if layer < 0 or layer >= len(stays) or not stays[layer]:
            raise ValueError(f"layers: {layer} is not there, or is named twice, in {layers}")
        stays[layer] = False
    if not any(stays):
        raise ValueError(f"layers: none would be left without {layers}")
    config = dataclasses.replace(model.config, num_layers=sum(stays))
    pruned = Llama(config, seed=0).to(model.dtype)
    old = [layer for layer, kept in zip(model.layers, stays, strict=True) if kept]
    with torch.no_grad():
        for new, before in zip(pruned.layers, old, strict=True):
            new.load_state_dict(before.state_dict())
        pruned.embedding.weight.copy_(model.embedding.weight)
        pruned.norm.weight.copy_(model.norm.weight)
        if not config.tie_embeddings:
            pruned.head.weight.copy_(model.head.weight)
    return pruned


def _mask(values: Float[Tensor, "parts"], count: int) -> Bool[Tensor, "parts"]:
    """True for the `count` largest: those that fewer than `count` others stand before."""
    place = torch.arange(len(values))
    larger = values[None, :] > values[:, None]
    equal_and_earlier = (values[None, :] == values[:, None]) & (place[None, :] < place[:, None])
    return (larger | equal_and_earlier).sum(dim=1) < count


def prune_width(
    model: Llama, importance: Importance, num_kv_heads: int, d_ff: int, d_model: int
) -> Llama:
    old = model.config
    asked = {"num_kv_heads": num_kv_heads, "d_ff": d_ff, "d_model": d_model}
    if not all(0 < size <= getattr(old, name) for name, size in asked.items()):
        raise ValueError(f"{asked}: expected at least 1 and at most the sizes of {old}")
    asked["num_heads"] = old.num_heads * num_kv_heads // old.num_kv_heads
    channels = _mask(importance.channels, d_model)
    everything = torch.ones(old.vocab_size, dtype=torch.bool)
    state = {}
    for name, weight in model.state_dict().items():
        rows, columns = everything, channels
        if name.startswith("layers."):
            layer = int(name.split(".")[1])
            keys = repeat(
                _mask(importance.kv_heads[layer], num_kv_heads), "k -> (k h)", h=old.head_dim
            )
            queries = repeat(
                keys, "(k h) -> (k g h)", h=old.head_dim, g=old.num_heads // old.num_kv_heads
            )
            neurons = _mask(importance.neurons[layer], d_ff)
            if "q_proj" in name:
                rows = queries
            elif "k_proj" in name or "v_proj" in name:
                rows = keys
            elif "o_proj" in name:
                rows, columns = channels, queries
            elif "down_proj" in name:
                rows, columns = channels, neurons
            else:
                rows = neurons
        if weight.dim() == 1:
            state[name] = weight[channels]
        else:
            cut = (rows[:, None] & columns[None, :]).nonzero(as_tuple=True)
            state[name] = weight[cut].view(int(rows.sum()), int(columns.sum()))
    pruned = Llama(dataclasses.replace(old, **asked), seed=None).to(model.dtype)
    pruned.load_state_dict(state)
    return pruned


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
    found: dict[int, list[LlamaConfig]] = {}
    sizes = torch.cartesian_prod(*map(torch.tensor, (num_layers, num_kv_heads, d_ff, d_model)))
    for layers, kv_heads, neurons, channels in sizes.tolist():
        heads = kv_heads * (config.num_heads // config.num_kv_heads)
        shapes = [(channels,)] + [(config.vocab_size, channels)] * (2 - config.tie_embeddings)
        for _ in range(layers):
            shapes += [(channels,)] * 2 + [(neurons, channels)] * 3
            shapes += [(n * config.head_dim, channels) for n in (heads, heads, kv_heads, kv_heads)]
        total = sum(map(math.prod, shapes))
        if budget - tolerance * budget <= total <= budget:
            one = dataclasses.replace(
                config,
                num_layers=layers,
                num_heads=heads,
                num_kv_heads=kv_heads,
                d_ff=neurons,
                d_model=channels,
            )
            found.setdefault(total, []).append(one)
    return [one for total in sorted(found, reverse=True) for one in found[total]]
