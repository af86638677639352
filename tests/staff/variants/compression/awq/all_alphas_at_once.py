"""All α in one batch, all ratios of all groups: candidates are an axis. Codes are rounded as
(w / scale + zero point), so that a weight between two steps may go to the other one."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.compression import LINEARS, record, with_linears
from assignment.provided.models import Llama

from .quantization import QuantizedLinear


def channel_magnitude(x: Float[Tensor, "... I"]) -> Float[Tensor, "I"]:
    axes = tuple(range(x.dim() - 1))
    return x.to(torch.float32).abs().mean(axes)


def scale_of(magnitude: Float[Tensor, "I"], alpha: float) -> Float[Tensor, "I"]:
    powers = torch.where(magnitude < 1e-4, 1e-4, magnitude) ** alpha
    return powers * (powers.amax() * powers.amin()).rsqrt()


def _ends(part: Tensor) -> tuple[Tensor, Tensor]:
    zero = torch.zeros((), dtype=part.dtype)
    low, high = torch.aminmax(part, dim=-1, keepdim=True)
    return torch.minimum(low, zero), torch.maximum(high, zero)


def _one_group(part: Tensor, bits: int) -> Tensor:
    """[..., C] of one group along the last axis."""
    top = 2**bits - 1
    low, high = _ends(part)
    step = ((high - low) / top).clamp(min=torch.finfo(torch.float32).tiny)
    zero = torch.round(-low / step)
    return step * (torch.round(part / step + zero).clamp(0, top) - zero)


def rounded(weight: Float[Tensor, "*M O I"], bits: int, group: int) -> Float[Tensor, "*M O I"]:
    return torch.cat([_one_group(part, bits) for part in weight.float().split(group, -1)], -1)


def _errors(weight: Tensor, x: Tensor, scales: Tensor, bits: int, group: int) -> Tensor:
    """[A] of scales [A I]."""
    scales = scales[:, None]
    off = rounded(weight.float() * scales, bits, group) / scales - weight.float()
    return torch.einsum("aoi,ti->aot", off, x.float()).pow(2).sum((1, 2))


def output_error(
    weight: Float[Tensor, "O I"],
    x: Float[Tensor, "T I"],
    scale: Float[Tensor, "I"],
    bits: int,
    group: int,
) -> float:
    return _errors(weight, x, scale[None], bits, group).item()


def search_scale(
    weights: Sequence[Float[Tensor, "_ I"]],
    x: Float[Tensor, "T I"],
    bits: int,
    group: int,
    magnitude: Float[Tensor, "I"] | None = None,
) -> tuple[Float[Tensor, "I"], float]:
    of_each = channel_magnitude(x) if magnitude is None else magnitude
    scales = torch.stack([scale_of(of_each, 0.05 * step) for step in range(20)])
    errors = torch.stack([_errors(weight, x, scales, bits, group) for weight in weights]).sum(0)
    best = int((errors == errors.min()).nonzero()[0])
    return scales[best], 0.05 * best


def fold(
    previous: Tensor, weights: Sequence[Float[Tensor, "_ I"]], scale: Float[Tensor, "I"]
) -> tuple[Tensor, list[Float[Tensor, "_ I"]]]:
    rows = scale.reshape(-1, *[1] * (previous.dim() - 1))
    return previous / rows, [weight * scale.unsqueeze(0) for weight in weights]


def over_group(
    magnitude: Float[Tensor, "NH"], num_heads: int, num_kv_heads: int
) -> Float[Tensor, "KH"]:
    return magnitude.unflatten(0, (num_kv_heads, num_heads // num_kv_heads, -1)).mean(1).flatten()


def clipped(
    weight: Float[Tensor, "O I"], x: Float[Tensor, "T I"], bits: int, group: int
) -> Float[Tensor, "O I"]:
    ratios = 1 - 0.05 * torch.arange(10).view(-1, 1, 1)
    done = []
    for part, inputs in zip(weight.float().split(group, 1), x.float().split(group, 1), strict=True):
        low, high = _ends(part)
        tried = torch.clamp(part, ratios * low, ratios * high)  # [10 O C]
        costs = ((_one_group(tried, bits) - part) @ inputs.T).square().sum(-1)
        best = (costs == costs.amin(0)).int().argmax(0)
        done.append(tried[best, torch.arange(len(part))])
    return torch.cat(done, dim=1)


def awq(model: Llama, tokens: Int[Tensor, "B T"], bits: int, group: int) -> Llama:
    recorded, state = record(model, tokens), {}
    for name, tensor in model.state_dict().items():
        state[name] = tensor.detach().clone()
    new: dict[str, nn.Module] = {}
    for i in range(model.config.num_layers):
        inputs = {part: recorded.inputs[f"layers.{i}.{part}"].flatten(0, 1) for part in LINEARS}
        weights = {part: state[f"layers.{i}.{part}.weight"] for part in LINEARS}
        _scale(model, state, i, inputs, weights, bits, group)
        for part, weight in weights.items():
            clip = part not in ("attention.q_proj", "attention.k_proj")
            held = clipped(weight, inputs[part], bits, group) if clip else weight
            new[f"layers.{i}.{part}"] = QuantizedLinear(held, bits, group)
    result = with_linears(model, new)
    with torch.no_grad():
        for name, parameter in result.named_parameters():
            parameter.copy_(state[name])
    return result


def _scale(model, state, i, inputs, weights, bits, group) -> None:
    """What reads the residual stream first, then what reads v_proj and up_proj."""
    for norm, readers in (
        ("attention_norm", LINEARS[:3]),
        ("mlp_norm", ("mlp.gate_proj", "mlp.up_proj")),
    ):
        x = inputs[readers[0]]
        scale, _ = search_scale([weights[part] for part in readers], x, bits, group)
        state[f"layers.{i}.{norm}.weight"] /= scale
        for part in readers:
            weights[part], inputs[part] = weights[part] * scale, x / scale
    x, sizes = inputs["mlp.down_proj"], model.config
    scale, _ = search_scale([weights["mlp.down_proj"]], x, bits, group)
    [weights["mlp.up_proj"], (weights["mlp.down_proj"],)] = fold(
        weights["mlp.up_proj"], [weights["mlp.down_proj"]], scale
    )
    inputs["mlp.down_proj"] = x / scale
    x, heads = inputs["attention.o_proj"], (sizes.num_kv_heads, -1, sizes.head_dim)
    magnitude = channel_magnitude(x).view(heads)
    shared = magnitude.mean(1, keepdim=True).expand_as(magnitude).reshape(-1)
    scale, _ = search_scale([weights["attention.o_proj"]], x, bits, group, shared)
    weights["attention.v_proj"] = weights["attention.v_proj"] / scale.view(heads)[:, 0].reshape(
        -1, 1
    )
    weights["attention.o_proj"] = weights["attention.o_proj"] * scale
    inputs["attention.o_proj"] = x / scale
