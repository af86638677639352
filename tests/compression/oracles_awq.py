"""AWQ in float64 and in plain steps: what the submission's scales, clips and models are judged by.

A scale is judged by the error that it leaves, not by which of two near-equal α it came from.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from assignment.provided.compression import record

ALPHAS = [step / 20 for step in range(20)]
RATIOS = [1 - step / 20 for step in range(10)]
READERS = {
    "attention_norm": ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
    "attention.v_proj": ("attention.o_proj",),
    "mlp_norm": ("mlp.gate_proj", "mlp.up_proj"),
    "mlp.up_proj": ("mlp.down_proj",),
}
NOT_CLIPPED = ("attention.q_proj", "attention.k_proj")


def groups(weight: Tensor, group: int) -> list[slice]:
    """The columns of each group; the last may be shorter."""
    columns = weight.shape[1]
    return [slice(i, min(i + group, columns)) for i in range(0, columns, group)]


def ends(part: Tensor) -> tuple[Tensor, Tensor]:
    """Of each row [O 1], zero included."""
    zero = torch.zeros(len(part), 1, dtype=part.dtype)
    return torch.cat([part, zero], 1).amin(1, True), torch.cat([part, zero], 1).amax(1, True)


def step_of(weight: Tensor, bits: int, group: int) -> Tensor:
    """[O I]: the step of the grid that each weight is on, 1 in a group of zeros."""
    steps = torch.ones_like(weight)
    for columns in groups(weight, group):
        low, high = ends(weight[:, columns])
        steps[:, columns] = torch.where(high > low, (high - low) / (2**bits - 1), 1.0)
    return steps


def rounded(weight: Tensor, bits: int, group: int) -> Tensor:
    steps, low = step_of(weight, bits, group), torch.zeros_like(weight)
    for columns in groups(weight, group):
        low[:, columns] = ends(weight[:, columns])[0]
    zero = (-low / steps).round()
    return steps * (((weight / steps).round() + zero).clamp(0, 2**bits - 1) - zero)


def magnitude(x: Tensor) -> Tensor:
    rows = x.double().reshape(-1, x.shape[-1])
    return sum(row.abs() for row in rows) / len(rows)


def scale_of(magnitudes: Tensor, alpha: float) -> Tensor:
    logs = alpha * magnitudes.double().clamp(min=1e-4).log()
    return torch.exp(logs - (logs.max() + logs.min()) / 2)


def error(weight: Tensor, x: Tensor, scale: Tensor, bits: int, group: int) -> float:
    weight, x, scale = weight.double(), x.double(), scale.double()
    got = rounded(weight * scale, bits, group) @ (x / scale).T
    return float((got - weight @ x.T).square().sum())


def errors(weights, x: Tensor, magnitudes: Tensor, bits: int, group: int) -> list[float]:
    """Of each α, summed over the weights."""
    scales = [scale_of(magnitudes, alpha) for alpha in ALPHAS]
    return [sum(error(weight, x, scale, bits, group) for weight in weights) for scale in scales]


def clipped(weight: Tensor, x: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    """(the candidates [10 O I], one a ratio; what each costs each row's groups [10 O G])."""
    weight, x, candidates, costs = weight.double(), x.double(), [], []
    for ratio in RATIOS:
        candidate, cost = torch.zeros_like(weight), []
        for columns in groups(weight, group):
            part = weight[:, columns]
            low, high = (ratio * end for end in ends(part))
            candidate[:, columns] = torch.maximum(torch.minimum(part, high), low)
            off = rounded(candidate[:, columns], bits, group) - part
            cost.append((off @ x[:, columns].T).square().sum(1))
        candidates.append(candidate)
        costs.append(torch.stack(cost, dim=1))
    return torch.stack(candidates), torch.stack(costs)


def best_clipped(weight: Tensor, x: Tensor, bits: int, group: int) -> Tensor:
    candidates, costs = clipped(weight, x, bits, group)
    best = costs.argmin(dim=0)  # the first of equals: the largest ratio
    parts = [
        candidates[best[:, i], torch.arange(len(weight)), columns]
        for i, columns in enumerate(groups(weight, group))
    ]
    return torch.cat(parts, dim=1)


@dataclass(frozen=True)
class Choice:
    """What the search of one scale looks at, in a layer of a model."""

    weights: list[Tensor]
    x: Tensor
    magnitudes: Tensor
    errors: list[float]  # of each α

    @property
    def best(self) -> Tensor:
        return scale_of(self.magnitudes, ALPHAS[self.errors.index(min(self.errors))])


def choice(model, layer: int, before: str, inputs, bits: int, group: int) -> Choice:
    """`inputs` as `record` has them; `before` is one of READERS."""
    names = [f"layers.{layer}.{name}" for name in READERS[before]]
    weights = [model.get_submodule(name).weight.double() for name in names]
    x = inputs[names[0]].flatten(0, 1).double()
    magnitudes, config = magnitude(x), model.config
    if before == "attention.v_proj":
        magnitudes = for_queries(
            over_group(magnitudes, config.num_heads, config.num_kv_heads), config
        )
    return Choice(weights, x, magnitudes, errors(weights, x, magnitudes, bits, group))


def over_group(magnitudes: Tensor, num_heads: int, num_kv_heads: int) -> Tensor:
    """Query head n reads KV head n // (N / K)."""
    heads, readers = magnitudes.chunk(num_heads), num_heads // num_kv_heads
    return torch.cat([sum(heads[i : i + readers]) / readers for i in range(0, num_heads, readers)])


def for_queries(of_kv_heads: Tensor, config) -> Tensor:
    readers = config.num_heads // config.num_kv_heads
    heads = of_kv_heads.split(config.head_dim)
    return torch.cat([head for head in heads for _ in range(readers)])


def awq(model, tokens: Tensor, bits: int, group: int) -> dict[str, Tensor]:
    """The state dict of a model with plain weights that computes what AWQ's result does."""
    inputs = record(model, tokens).inputs
    state = {name: weight.double().clone() for name, weight in model.state_dict().items()}
    for layer in range(model.config.num_layers):
        given = _fold(state, model, layer, inputs, bits, group)
        for name, x in given.items():
            weight = state[name]
            if not name.removesuffix(".weight").endswith(NOT_CLIPPED):
                weight = best_clipped(weight, x, bits, group)
            state[name] = rounded(weight, bits, group)
    return state


def _fold(state, model, layer: int, inputs, bits: int, group: int) -> dict[str, Tensor]:
    """The four best scales of a layer, put into `state`; what each weight reads then."""
    given = {}
    for before, names in READERS.items():
        found = choice(model, layer, before, inputs, bits, group)
        scale = divisor = found.best
        if before == "attention.v_proj":
            heads = model.config.num_heads, model.config.num_kv_heads
            divisor = over_group(scale, *heads)  # of equal ones
        previous = f"layers.{layer}.{before}.weight"
        rows = divisor if state[previous].dim() == 1 else divisor[:, None]
        state[previous] = state[previous] / rows
        for name in names:
            weight = f"layers.{layer}.{name}.weight"
            state[weight] = state[weight] * scale
            given[weight] = found.x / scale
    return given
