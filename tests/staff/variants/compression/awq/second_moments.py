"""Errors from xᵀx, computed once: no product with the tokens for each α. Folds from the last layer
to the first, down_proj before up_proj; each search sees the weights of the model."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.compression import linears, record, with_linears
from assignment.provided.models import Llama

from .quantization import QuantizedLinear, dequantize, quantize


def channel_magnitude(x: Float[Tensor, "... I"]) -> Float[Tensor, "I"]:
    rows = x.reshape(-1, x.shape[-1]).to(torch.float32)
    return torch.linalg.vector_norm(rows, ord=1, dim=0) / len(rows)


def scale_of(magnitude: Float[Tensor, "I"], alpha: float) -> Float[Tensor, "I"]:
    logs = magnitude.clamp(min=1e-4).log() * alpha
    return (logs - 0.5 * (logs.max() + logs.min())).exp()


def rounded(weight: Float[Tensor, "O I"], bits: int, group: int) -> Float[Tensor, "O I"]:
    parts = [quantize(part, bits, "row", symmetric=False) for part in weight.split(group, dim=1)]
    return torch.cat([dequantize(part) for part in parts], dim=1)


def _moments(x: Tensor) -> Tensor:
    wide = x.double()
    return wide.mT @ wide


def _cost(change: Tensor, moments: Tensor) -> Tensor:
    """Of each row."""
    wide = change.double()
    return torch.einsum("oi,ij,oj->o", wide, moments, wide)


def output_error(
    weight: Float[Tensor, "O I"],
    x: Float[Tensor, "T I"],
    scale: Float[Tensor, "I"],
    bits: int,
    group: int,
) -> float:
    return _error(weight, _moments(x), scale, bits, group)


def _error(weight, moments, scale, bits, group) -> float:
    change = rounded(weight * scale, bits, group) / scale - weight
    return _cost(change, moments).sum().item()


def search_scale(
    weights: Sequence[Float[Tensor, "_ I"]],
    x: Float[Tensor, "T I"],
    bits: int,
    group: int,
    magnitude: Float[Tensor, "I"] | None = None,
) -> tuple[Float[Tensor, "I"], float]:
    if magnitude is None:
        magnitude = channel_magnitude(x)
    stacked, moments = torch.cat(list(weights)), _moments(x)

    def error(step: int) -> float:
        return _error(stacked, moments, scale_of(magnitude, step / 20), bits, group)

    step = min(range(20), key=error)
    return scale_of(magnitude, step / 20), step / 20


def fold(
    previous: Tensor, weights: Sequence[Float[Tensor, "_ I"]], scale: Float[Tensor, "I"]
) -> tuple[Tensor, list[Float[Tensor, "_ I"]]]:
    divided = (previous.mT / scale).mT if previous.dim() == 2 else previous / scale
    return divided, [torch.einsum("oi,i->oi", weight, scale) for weight in weights]


def over_group(
    magnitude: Float[Tensor, "NH"], num_heads: int, num_kv_heads: int
) -> Float[Tensor, "KH"]:
    heads = magnitude.reshape(num_heads, -1)
    readers = num_heads // num_kv_heads
    return torch.cat([heads[i : i + readers].mean(0) for i in range(0, num_heads, readers)])


def clipped(
    weight: Float[Tensor, "O I"], x: Float[Tensor, "T I"], bits: int, group: int
) -> Float[Tensor, "O I"]:
    done = []
    for start in range(0, weight.shape[1], group):
        part = weight[:, start : start + group].float()
        moments = _moments(x[:, start : start + group])
        low, high = part.amin(1, True).clamp(max=0), part.amax(1, True).clamp(min=0)
        tried = [part.clamp(r * low, r * high) for r in (1 - i / 20 for i in range(10))]
        costs = [_cost(rounded(each, bits, group) - part, moments) for each in tried]
        best = torch.stack(costs).argmin(dim=0)
        done.append(torch.stack(tried)[best, torch.arange(len(part))])
    return torch.cat(done, dim=1)


@torch.no_grad()
def awq(model: Llama, tokens: Int[Tensor, "B T"], bits: int, group: int) -> Llama:
    inputs = {k: v.reshape(-1, v.shape[-1]) for k, v in record(model, tokens).inputs.items()}
    there = linears(model)
    weights = {name: layer.weight.clone() for name, layer in there.items()}
    result = with_linears(model, {})
    sizes = model.config
    for i in reversed(range(sizes.num_layers)):
        layer, attention, mlp = result.layers[i], f"layers.{i}.attention.", f"layers.{i}.mlp."
        for previous, readers in (
            (mlp + "up_proj", [mlp + "down_proj"]),
            (layer.mlp_norm.weight, [mlp + "gate_proj", mlp + "up_proj"]),
            (attention + "v_proj", [attention + "o_proj"]),
            (layer.attention_norm.weight, [attention + n for n in ("q_proj", "k_proj", "v_proj")]),
        ):
            x = inputs[readers[0]]
            magnitude = channel_magnitude(x)
            if readers[0].endswith("o_proj"):
                shared = over_group(magnitude, sizes.num_heads, sizes.num_kv_heads)
                magnitude = _as_read(shared, sizes)
            scale, _ = search_scale([there[r].weight for r in readers], x, bits, group, magnitude)
            for reader in readers:
                weights[reader] = weights[reader] * scale
                inputs[reader] = x / scale
            if isinstance(previous, str):
                if previous.endswith("v_proj"):
                    scale = over_group(scale, sizes.num_heads, sizes.num_kv_heads)
                weights[previous] = weights[previous] / scale[:, None]
            else:
                previous.div_(scale)
    layers = {}
    for name, weight in weights.items():
        if "q_proj" not in name and "k_proj" not in name:
            weight = clipped(weight, inputs[name], bits, group)
        layers[name] = QuantizedLinear(weight, bits, group)
    return with_linears(result, layers)


def _as_read(of_kv_heads: Tensor, sizes) -> Tensor:
    heads = of_kv_heads.view(sizes.num_kv_heads, sizes.head_dim)
    return heads.repeat_interleave(sizes.num_heads // sizes.num_kv_heads, dim=0).flatten()
