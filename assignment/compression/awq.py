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
    raise NotImplementedError


def scale_of(magnitude: Float[Tensor, "I"], alpha: float) -> Float[Tensor, "I"]:
    """s = magnitudeᵅ, divided by √(max s · min s); magnitudes below 1e-4 count as 1e-4.

    α = 0 is no scaling at all, α = 1 makes all channels equally large.
    """
    raise NotImplementedError


def rounded(weight: Float[Tensor, "O I"], bits: int, group: int) -> Float[Tensor, "O I"]:
    """The weight on its grid, in float32: groups along a row, with zero points."""
    raise NotImplementedError


def output_error(
    weight: Float[Tensor, "O I"],
    x: Float[Tensor, "T I"],
    scale: Float[Tensor, "I"],
    bits: int,
    group: int,
) -> float:
    """‖Q(W·diag(s)) · diag(s)⁻¹ · xᵀ − W · xᵀ‖², the sum of squares, with Q as in `rounded`."""
    raise NotImplementedError


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
    raise NotImplementedError


def fold(
    previous: Tensor, weights: Sequence[Float[Tensor, "_ I"]], scale: Float[Tensor, "I"]
) -> tuple[Tensor, list[Float[Tensor, "_ I"]]]:
    """(previous / s, [W · diag(s), …]): the same outputs, with nothing left to do at run time.

    Args:
        previous: of the operation that makes x: a norm's weight [I], or a linear layer's [I, J],
            whose rows are divided.
        weights: of the layers that read x.
    """
    raise NotImplementedError


def over_group(
    magnitude: Float[Tensor, "NH"], num_heads: int, num_kv_heads: int
) -> Float[Tensor, "KH"]:
    """The mean of the query heads that read the same KV head, for each of its channels.

    The input of o_proj has N heads, and what makes it, v_proj, only K: with grouped queries a
    channel of v_proj can have one scale only, for all the heads that read it.
    """
    raise NotImplementedError


def clipped(
    weight: Float[Tensor, "O I"], x: Float[Tensor, "T I"], bits: int, group: int
) -> Float[Tensor, "O I"]:
    """The weight with each group clamped to ±r · (its largest |weight|), by the best r for it.

    r is the one of 1, 0.95, … 0.55 with the least Σₜ (Σᵢ (Q(clamped)ᵢ − wᵢ) xₜᵢ)² over the inputs i
    of the group, the largest such. A finer grid for the many can be worth the error of the few.
    """
    raise NotImplementedError


@torch.no_grad()
def awq(model: Llama, tokens: Int[Tensor, "B T"], bits: int, group: int) -> Llama:
    """A copy of the model whose linear layers are `QuantizedLinear`, calibrated on `tokens`.

    From one forward pass of the model. For each layer: q, k, v read the attention's norm; o reads v
    (magnitudes by `over_group`); gate, up read the MLP's norm; down reads up. For each of the four,
    search the scale and fold it; then clip, all but q and k, whose error is not one of a sum; then
    quantise. The model itself is not changed.
    """
    raise NotImplementedError
