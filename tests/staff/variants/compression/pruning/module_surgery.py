"""Operates on a deep copy of the model, layer by layer; own hooks, one text at a time."""

import copy
from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.compression import Importance
from assignment.provided.models import Llama, LlamaConfig


def head_importance(
    outputs: Float[Tensor, "B S N H"], num_kv_heads: int
) -> Float[Tensor, "{num_kv_heads}"]:
    total = torch.zeros(outputs.shape[2], dtype=torch.float64)
    for text in outputs.double():
        total += torch.linalg.vector_norm(text, dim=-1).mean(dim=0) ** 2
    return torch.stack([part.sum() for part in total.sqrt().chunk(num_kv_heads)])


def neuron_importance(x: Float[Tensor, "B S F"]) -> Float[Tensor, "F"]:
    return head_importance(x.unsqueeze(-1), x.shape[2])


def block_influence(before: Float[Tensor, "B S D"], after: Float[Tensor, "B S D"]) -> float:
    a, b = (F.normalize(x.double(), dim=-1) for x in (before, after))
    return float(1 - (a * b).sum(dim=-1).mean())


class _Means(nn.Module):
    """Means over the tokens of each text that goes through the hooked modules."""

    def __init__(self, model: Llama):
        super().__init__()
        self.model, self.squares, self.cosines = model, {}, {}

    def run(self, tokens: Tensor) -> None:
        hooks = []
        for i, layer in enumerate(self.model.layers):
            hooks += [
                layer.register_forward_hook(self._turn(i)),
                layer.attention.o_proj.register_forward_hook(self._heads(i)),
                layer.mlp.down_proj.register_forward_hook(self._sizes("neurons", i)),
                layer.attention_norm.register_forward_hook(self._sizes("first", i, output=True)),
                layer.mlp_norm.register_forward_hook(self._sizes("second", i, output=True)),
            ]
        with torch.no_grad():
            for text in tokens:
                self.model.hidden(text[None])
        for hook in hooks:
            hook.remove()

    def roots(self, kind: str) -> Tensor:
        num_layers = len(self.model.layers)
        return torch.stack([self.squares[kind, i].sqrt() for i in range(num_layers)])

    def _add(self, key, mean: Tensor) -> None:
        self.squares[key] = self.squares.get(key, 0) + mean.double() ** 2

    def _turn(self, i: int):
        def hook(module, given, result):
            cosines = F.cosine_similarity(given[0], result, dim=-1)
            self.cosines.setdefault(i, []).append(cosines.mean().item())

        return hook

    def _heads(self, i: int):
        def hook(module, given, result):
            heads = given[0].unflatten(-1, (self.model.config.num_heads, -1))
            self._add(("heads", i), heads.norm(dim=-1).mean(dim=(0, 1)))

        return hook

    def _sizes(self, kind: str, i: int, output: bool = False):
        def hook(module, given, result):
            self._add((kind, i), (result if output else given[0]).abs().mean(dim=(0, 1)))

        return hook


def importance(model: Llama, tokens: Int[Tensor, "B S"]) -> Importance:
    means = _Means(model)
    means.run(tokens)
    heads = means.roots("heads").unflatten(1, (model.config.num_kv_heads, -1)).sum(dim=2)
    channels = means.roots("first").sum(0) + means.roots("second").sum(0)
    layers = [1 - sum(means.cosines[i]) / len(tokens) for i in range(len(model.layers))]
    return Importance(heads, means.roots("neurons"), channels, torch.tensor(layers))


@torch.no_grad()
def loss_without(model: Llama, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "L"]:
    def loss() -> Tensor:
        logits = model(tokens)[:, :-1]
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    whole, rises = loss(), []
    for layer in model.layers:
        layer.forward = lambda x, cos_sin, attend: x
        rises.append(loss() - whole)
        del layer.forward  # the class's own again
    return torch.stack(rises)


def prune_depth(model: Llama, layers: Sequence[int]) -> Llama:
    num_layers = len(model.layers)
    for layer in layers:
        if layer not in range(num_layers) or list(layers).count(layer) > 1:
            raise ValueError(f"layers: {layer} cannot be taken out of {num_layers}")
    if len(layers) == num_layers:
        raise ValueError("layers: no layer would be left")
    pruned = copy.deepcopy(model)
    for layer in sorted(layers, reverse=True):
        del pruned.layers[layer]
    pruned.config = replace(model.config, num_layers=len(pruned.layers))
    return pruned


def _keep(module: nn.Module, *places: Tensor | None) -> None:
    """Keep these places along each axis of a module's weight."""
    weight = module.weight.data
    for axis, kept in enumerate(places):
        if kept is not None:
            weight = weight.index_select(axis, kept)
    module.weight = nn.Parameter(weight)


def _best(values: Tensor, count: int) -> Tensor:
    ranked = sorted(range(len(values)), key=lambda i: values[i].item(), reverse=True)
    return torch.tensor(sorted(ranked[:count]))


def prune_width(
    model: Llama, importance: Importance, num_kv_heads: int, d_ff: int, d_model: int
) -> Llama:
    config = model.config
    for new, old in (
        (num_kv_heads, config.num_kv_heads),
        (d_ff, config.d_ff),
        (d_model, config.d_model),
    ):
        if new < 1 or new > old:
            raise ValueError(f"a size of {new} where there was {old}")
    group = config.num_heads // config.num_kv_heads
    pruned, channels = copy.deepcopy(model), _best(importance.channels, d_model)
    for layer, heads, neurons in zip(
        pruned.layers, importance.kv_heads, importance.neurons, strict=True
    ):
        heads, neurons = _best(heads, num_kv_heads), _best(neurons, d_ff)
        k = torch.arange(config.num_kv_heads * config.head_dim).view(config.num_kv_heads, -1)
        q = torch.arange(config.num_heads * config.head_dim).view(config.num_kv_heads, -1)
        k, q = k[heads].flatten(), q[heads].flatten()
        attention, mlp = layer.attention, layer.mlp
        _keep(layer.attention_norm, channels)
        _keep(layer.mlp_norm, channels)
        _keep(attention.q_proj, q, channels)
        _keep(attention.k_proj, k, channels)
        _keep(attention.v_proj, k, channels)
        _keep(attention.o_proj, channels, q)
        _keep(mlp.gate_proj, neurons, channels)
        _keep(mlp.up_proj, neurons, channels)
        _keep(mlp.down_proj, channels, neurons)
    _keep(pruned.norm, channels)
    _keep(pruned.embedding, None, channels)
    if not config.tie_embeddings:
        _keep(pruned.head, None, channels)
    pruned.config = replace(
        config,
        num_heads=num_kv_heads * group,
        num_kv_heads=num_kv_heads,
        d_ff=d_ff,
        d_model=d_model,
    )
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
    found: list[tuple[int, LlamaConfig]] = []
    for layers in num_layers:
        for heads in num_kv_heads:
            for width in d_ff:
                for channels in d_model:
                    one = replace(
                        config,
                        num_layers=layers,
                        num_heads=heads * config.num_heads // config.num_kv_heads,
                        num_kv_heads=heads,
                        d_ff=width,
                        d_model=channels,
                    )
                    size = sum(p.numel() for p in Llama(one, seed=None).parameters())
                    if size <= budget and budget - size <= tolerance * budget:
                        found.append((size, one))
    found.sort(key=lambda pair: -pair[0])
    return [one for _, one in found]
