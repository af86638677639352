"""AWQ: 4-bit weights, scaled first so that those which meet large activations lose least.

Rounding costs a weight up to half a step, whatever it is multiplied by later. Multiply a column of
the weight by s > 1 and its input by 1/s: the product stays the same, and the column's rounding now
counts 1/s as much, as long as the group's step hardly grows. So the columns of large activations get
a large s. No weight stays in high precision, and 1/s goes into the operation before.

Lin et al., 2023, arXiv:2306.00978.
Axes: T tokens, I inputs, O outputs.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.compression import linears, record, with_linears
from assignment.provided.models import Llama

from .quantization import QuantizedLinear, dequantize, quantize

GRID = 20  # values of α: 0, 1/20, … 19/20
SHRINKS = 10  # values of the clipping ratio: 1, 0.95, … 0.55


def channel_magnitude(x: Float[Tensor, "... I"]) -> Float[Tensor, "I"]:
    """Mean of |x| of each input channel over all tokens, in float32."""
    # BEGIN SOLUTION
    return x.float().abs().flatten(0, -2).mean(dim=0)
    # END SOLUTION


def scale_of(magnitude: Float[Tensor, "I"], alpha: float) -> Float[Tensor, "I"]:
    """s = magnitudeᵅ, divided by √(max s · min s); magnitudes below 1e-4 count as 1e-4.

    α = 0 is no scaling at all, α = 1 makes all channels equally large.
    """
    # BEGIN SOLUTION
    scale = magnitude.clamp(min=1e-4) ** alpha
    return scale / (scale.max() * scale.min()).sqrt()
    # END SOLUTION


def rounded(weight: Float[Tensor, "O I"], bits: int, group: int) -> Float[Tensor, "O I"]:
    """The weight on its grid, in float32: groups along a row, with zero points."""
    # BEGIN SOLUTION
    return dequantize(quantize(weight, bits, group, symmetric=False))
    # END SOLUTION


def output_error(
    weight: Float[Tensor, "O I"],
    x: Float[Tensor, "T I"],
    scale: Float[Tensor, "I"],
    bits: int,
    group: int,
) -> float:
    """‖Q(W·diag(s)) · diag(s)⁻¹ · xᵀ − W · xᵀ‖², the sum of squares, with Q as in `rounded`."""
    # BEGIN SOLUTION
    change = rounded(weight.float() * scale, bits, group) / scale - weight.float()
    return (x.float() @ change.T).square().sum().item()
    # END SOLUTION


def search_scale(
    weights: Sequence[Float[Tensor, "_ I"]],
    x: Float[Tensor, "T I"],
    bits: int,
    group: int,
    magnitude: Float[Tensor, "I"] | None = None,
) -> tuple[Float[Tensor, "I"], float]:
    """(scale, α) with the least `output_error`, summed over weights that all read x.

    α is the best of 0, 1/20, … 19/20, the smallest such; the scale is `scale_of` that α and the
    channels' magnitude.

    Args:
        magnitude: default `channel_magnitude(x)`.
    """
    # BEGIN SOLUTION
    magnitude = channel_magnitude(x) if magnitude is None else magnitude
    best = (float("inf"), torch.ones_like(magnitude), 0.0)
    for step in range(GRID):
        scale = scale_of(magnitude, step / GRID)
        error = sum(output_error(weight, x, scale, bits, group) for weight in weights)
        if error < best[0]:
            best = (error, scale, step / GRID)
    return best[1], best[2]
    # END SOLUTION


def fold(
    previous: Tensor, weights: Sequence[Float[Tensor, "_ I"]], scale: Float[Tensor, "I"]
) -> tuple[Tensor, list[Float[Tensor, "_ I"]]]:
    """(previous / s, [W · diag(s), …]): the same outputs, with nothing left to do at run time.

    Args:
        previous: of the operation that makes x: a norm's weight [I], or a linear layer's [I, J],
            whose rows are divided.
        weights: of the layers that read x.
    """
    # BEGIN SOLUTION
    divisor = scale if previous.dim() == 1 else scale.unsqueeze(1)
    return previous / divisor, [weight * scale for weight in weights]
    # END SOLUTION


def over_group(
    magnitude: Float[Tensor, "NH"], num_heads: int, num_kv_heads: int
) -> Float[Tensor, "KH"]:
    """The mean of the query heads that read the same KV head, for each of its channels.

    The input of o_proj has N heads, and what makes it, v_proj, only K: with grouped queries a
    channel of v_proj can have one scale only, for all the heads that read it.
    """
    # BEGIN SOLUTION
    return magnitude.view(num_kv_heads, num_heads // num_kv_heads, -1).mean(dim=1).flatten()
    # END SOLUTION


def clipped(
    weight: Float[Tensor, "O I"], x: Float[Tensor, "T I"], bits: int, group: int
) -> Float[Tensor, "O I"]:
    """The weight with each group clamped to ±r · (its largest |weight|), by the best r for it.

    r is the one of 1, 0.95, … 0.55 with the least Σₜ (Σᵢ (Q(clamped)ᵢ − wᵢ) xₜᵢ)² over the inputs i
    of the group, the largest such. A finer grid for the many can be worth the error of the few.
    """
    # BEGIN SOLUTION
    parts = []
    for w, inputs in zip(weight.float().split(group, 1), x.float().split(group, 1), strict=True):
        squares = inputs.T @ inputs  # Σₜ x xᵀ: the error of a row e is e · squares · e
        largest = w.abs().amax(dim=1, keepdim=True)
        best, least = w, w.new_full((len(w), 1), torch.inf)
        for step in range(SHRINKS):
            bound = largest * (1 - step / 20)
            clamped = w.clamp(-bound, bound)
            error = rounded(clamped, bits, group) - w
            cost = ((error @ squares) * error).sum(dim=1, keepdim=True)
            best, least = torch.where(cost < least, clamped, best), torch.minimum(cost, least)
        parts.append(best)
    return torch.cat(parts, dim=1)
    # END SOLUTION


@torch.no_grad()
def awq(model: Llama, tokens: Int[Tensor, "B T"], bits: int, group: int) -> Llama:
    """A copy of the model whose linear layers are `QuantizedLinear`, calibrated on `tokens`.

    From one forward pass of the model. For each layer: q, k, v read the attention's norm; o reads v
    (magnitudes by `over_group`); gate, up read the MLP's norm; down reads up. For each of the four,
    search the scale and fold it; then clip, all but q and k, whose error is not one of a sum; then
    quantise. The model itself is not changed.
    """
    # BEGIN SOLUTION
    inputs = {name: x.flatten(0, 1) for name, x in record(model, tokens).inputs.items()}
    copied = with_linears(model, {})
    for index in range(model.config.num_layers):
        _scale_layer(copied, f"layers.{index}.", inputs, bits, group)
    quantized = {}
    for name, layer in linears(copied).items():
        weight = layer.weight
        if not name.endswith(("q_proj", "k_proj")):
            weight = clipped(weight, inputs[name], bits, group)
        quantized[name] = QuantizedLinear(weight, bits, group)
    return with_linears(copied, quantized)
    # END SOLUTION


# BEGIN SOLUTION
def _scale_layer(
    model: Llama, layer: str, inputs: dict[str, Tensor], bits: int, group: int
) -> None:
    """Fold the best scales of one layer, and divide the recorded inputs by them."""
    config = model.config
    for before, names in (
        ("attention_norm", ["attention.q_proj", "attention.k_proj", "attention.v_proj"]),
        ("attention.v_proj", ["attention.o_proj"]),
        ("mlp_norm", ["mlp.gate_proj", "mlp.up_proj"]),
        ("mlp.up_proj", ["mlp.down_proj"]),
    ):
        previous = model.get_submodule(layer + before)
        readers = [model.get_submodule(layer + name) for name in names]
        x = inputs[layer + names[0]]
        magnitude, heads = channel_magnitude(x), before.endswith("v_proj")
        if heads:
            shared = over_group(magnitude, config.num_heads, config.num_kv_heads)
            magnitude = _for_queries(shared, config)
        weights = [reader.weight for reader in readers]
        scale, _ = search_scale(weights, x, bits, group, magnitude)
        divisor = _of_kv_heads(scale, config) if heads else scale
        previous.weight.copy_(fold(previous.weight, [], divisor)[0])
        for reader, weight in zip(readers, fold(scale, weights, scale)[1], strict=True):
            reader.weight.copy_(weight)
        for name in names:
            inputs[layer + name] = x / scale


def _for_queries(of_kv_heads: Tensor, config) -> Tensor:
    """[K·H] -> [N·H]: each KV head's, for every query head that reads it."""
    group = config.num_heads // config.num_kv_heads
    return of_kv_heads.view(-1, 1, config.head_dim).expand(-1, group, -1).flatten()


def _of_kv_heads(of_queries: Tensor, config) -> Tensor:
    """[N·H] -> [K·H], where all query heads of a group have the same."""
    group = config.num_heads // config.num_kv_heads
    return of_queries.view(-1, group, config.head_dim)[:, 0].flatten()


# END SOLUTION
