"""A class that takes one layer at a time: search all four, fold all four, clip, quantise. Groups as
an axis of their own, the last one padded with zeros, which no scale notices."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from einops import rearrange, repeat
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.compression import Quantized, record, with_linears
from assignment.provided.models import Llama

from .quantization import QuantizedLinear, dequantize, quantize

ALPHAS = torch.arange(20) / 20


def channel_magnitude(x: Float[Tensor, "... I"]) -> Float[Tensor, "I"]:
    total, count = torch.zeros(x.shape[-1], dtype=torch.float64), 0
    for row in x.reshape(-1, x.shape[-1]).split(64):
        total += row.double().abs().sum(0)
        count += len(row)
    return (total / count).float()


def scale_of(magnitude: Float[Tensor, "I"], alpha: float) -> Float[Tensor, "I"]:
    s = torch.pow(torch.maximum(magnitude, torch.tensor(1e-4)), alpha)
    return s / torch.sqrt(s.max()) / torch.sqrt(s.min())


def _padded(x: Tensor, group: int) -> Tensor:
    """[R C] -> [R · G, group]: a row a group."""
    return F.pad(x, (0, -x.shape[1] % group)).reshape(-1, group)


def rounded(weight: Float[Tensor, "O I"], bits: int, group: int) -> Float[Tensor, "O I"]:
    rows: Quantized = quantize(_padded(weight.float(), group), bits, "row", symmetric=False)
    return dequantize(rows).reshape(len(weight), -1)[:, : weight.shape[1]]


def output_error(
    weight: Float[Tensor, "O I"],
    x: Float[Tensor, "T I"],
    scale: Float[Tensor, "I"],
    bits: int,
    group: int,
) -> float:
    got = F.linear(x.float() / scale, rounded(weight.float() * scale, bits, group))
    return float(torch.sum((got - F.linear(x.float(), weight.float())) ** 2))


def search_scale(
    weights: Sequence[Float[Tensor, "_ I"]],
    x: Float[Tensor, "T I"],
    bits: int,
    group: int,
    magnitude: Float[Tensor, "I"] | None = None,
) -> tuple[Float[Tensor, "I"], float]:
    magnitude = magnitude if magnitude is not None else channel_magnitude(x)
    found, least = None, None
    for alpha in ALPHAS.tolist():
        scale = scale_of(magnitude, alpha)
        error = 0.0
        for weight in weights:
            error += output_error(weight, x, scale, bits, group)
        if least is None or error < least:
            found, least = (scale, round(alpha, 2)), error
    return found


def fold(
    previous: Tensor, weights: Sequence[Float[Tensor, "_ I"]], scale: Float[Tensor, "I"]
) -> tuple[Tensor, list[Float[Tensor, "_ I"]]]:
    inverse = scale.reciprocal()
    first = torch.diag(inverse) @ previous if previous.dim() == 2 else inverse * previous
    return first, [weight @ torch.diag(scale) for weight in weights]


def over_group(
    magnitude: Float[Tensor, "NH"], num_heads: int, num_kv_heads: int
) -> Float[Tensor, "KH"]:
    readers = num_heads // num_kv_heads
    heads = rearrange(magnitude, "(k g h) -> g (k h)", k=num_kv_heads, g=readers)
    return sum(heads) / readers


def clipped(
    weight: Float[Tensor, "O I"], x: Float[Tensor, "T I"], bits: int, group: int
) -> Float[Tensor, "O I"]:
    flat = _padded(weight.float(), group)
    inputs = rearrange(F.pad(x.float(), (0, -x.shape[1] % group)), "t (g i) -> g t i", i=group)
    ends = torch.stack([flat.amin(1).clamp(max=0), flat.amax(1).clamp(min=0)], dim=1)
    best, least = flat.clone(), torch.full((len(flat),), float("inf"))
    for step in range(10):
        low, high = ((1 - 0.05 * step) * ends).split(1, dim=1)
        tried = torch.minimum(torch.maximum(flat, low), high)
        off = rearrange(rounded(tried, bits, group) - flat, "(o g) i -> g i o", o=len(weight))
        cost = rearrange((inputs @ off).square().sum(1), "g o -> (o g)")
        better = cost < least
        best[better], least[better] = tried[better], cost[better]
    return best.reshape(len(weight), -1)[:, : weight.shape[1]]


class _LayerByLayer:
    def __init__(self, model: Llama, tokens: Tensor, bits: int, group: int):
        self.result, self.config = with_linears(model, {}), model.config
        self.inputs = record(model, tokens).inputs
        self.bits, self.group = bits, group

    def do(self, index: int) -> None:
        layer, base = self.result.layers[index], f"layers.{index}."
        part, mlp = layer.attention, layer.mlp
        of_norm, of_values = self._x(base + "attention.q_proj"), self._x(base + "attention.o_proj")
        of_mlp, of_up = self._x(base + "mlp.gate_proj"), self._x(base + "mlp.down_proj")
        sizes = (self.config.num_heads, self.config.num_kv_heads)
        shared = over_group(channel_magnitude(of_values), *sizes)
        scales = [
            self._search([part.q_proj, part.k_proj, part.v_proj], of_norm),
            self._search([part.o_proj], of_values, self._as_read(shared)),
            self._search([mlp.gate_proj, mlp.up_proj], of_mlp),
            self._search([mlp.down_proj], of_up),
        ]
        of_v = over_group(scales[1], *sizes)
        self._fold(layer.attention_norm, [part.q_proj, part.k_proj, part.v_proj], scales[0])
        self._fold(part.v_proj, [], of_v)
        self._fold(None, [part.o_proj], scales[1])
        self._fold(layer.mlp_norm, [mlp.gate_proj, mlp.up_proj], scales[2])
        self._fold(mlp.up_proj, [mlp.down_proj], scales[3])
        part.q_proj, part.k_proj = self._quantized(part.q_proj), self._quantized(part.k_proj)
        part.v_proj = self._quantized(part.v_proj, of_norm / scales[0])
        part.o_proj = self._quantized(part.o_proj, of_values / scales[1])
        mlp.gate_proj = self._quantized(mlp.gate_proj, of_mlp / scales[2])
        mlp.up_proj = self._quantized(mlp.up_proj, of_mlp / scales[2])
        mlp.down_proj = self._quantized(mlp.down_proj, of_up / scales[3])

    def _x(self, name: str) -> Tensor:
        return rearrange(self.inputs[name], "b t i -> (b t) i")

    def _search(self, readers, x: Tensor, magnitude: Tensor | None = None) -> Tensor:
        weights = [reader.weight for reader in readers]
        return search_scale(weights, x, self.bits, self.group, magnitude)[0]

    def _as_read(self, shared: Tensor) -> Tensor:
        readers = self.config.num_heads // self.config.num_kv_heads
        return repeat(shared, "(k h) -> (k g h)", g=readers, h=self.config.head_dim)

    def _fold(self, previous, readers, scale: Tensor) -> None:
        before = scale if previous is None else previous.weight
        divided, scaled = fold(before, [reader.weight for reader in readers], scale)
        if previous is not None:
            previous.weight.data = divided
        for reader, weight in zip(readers, scaled, strict=True):
            reader.weight.data = weight

    def _quantized(self, layer, x: Tensor | None = None) -> QuantizedLinear:
        weight = layer.weight if x is None else clipped(layer.weight, x, self.bits, self.group)
        return QuantizedLinear(weight, self.bits, self.group)


def awq(model: Llama, tokens: Int[Tensor, "B T"], bits: int, group: int) -> Llama:
    with torch.no_grad():
        work = _LayerByLayer(model, tokens, bits, group)
        for index in range(model.config.num_layers):
            work.do(index)
        return work.result
