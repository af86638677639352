"""AWQ: weights of 4 or 3 bits, scaled first so that those which meet large activations lose least.

Rounding moves a weight by up to half a step, whatever it is multiplied by later. Multiply a column
of the weight by s > 1 and its input by 1/s: the product is the same, and the column's rounding now
counts 1/s as much, as long as its groups' steps hardly grow. So the columns of large activations
get a large s. No weight stays in high precision, and 1/s goes into the operation before.

Source: Lin et al., 2023, https://arxiv.org/abs/2306.00978.
Axes: T tokens; I inputs and O outputs of a linear layer, whose weight is [O, I]; N query heads and
K KV heads of H channels, side by side: NH = N · H.

`quantize`, `dequantize` and `QuantizedLinear` are yours of `compression.quantization`.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.compression import linears, record, with_linears
from assignment.provided.models import Llama, LlamaConfig

from .quantization import QuantizedLinear, dequantize, quantize

ALPHAS = tuple(step / 20 for step in range(20))  # 0, 0.05, … 0.95
RATIOS = tuple(1 - step / 20 for step in range(10))  # 1, 0.95, … 0.55


def channel_magnitude(x: Float[Tensor, "... I"]) -> Float[Tensor, "I"]:
    """Mean of |x| of each channel, over all tokens of all leading axes, in float32."""
    raise NotImplementedError


def scale_of(magnitude: Float[Tensor, "I"], alpha: float) -> Float[Tensor, "I"]:
    """s = magnitudeᵅ, divided by √(max s · min s); magnitudes below 1e-4 count as 1e-4.

    α = 0 is no scaling at all; with α = 1 all channels of x / s are equally large.
    """
    raise NotImplementedError


def rounded(weight: Float[Tensor, "O I"], bits: int, group: int) -> Float[Tensor, "O I"]:
    """Each weight to the nearest step of its group's grid, in float32. The grids have zero points;
    groups are of `group` neighbours in a row, the last of a row may be shorter."""
    raise NotImplementedError


def output_error(
    weight: Float[Tensor, "O I"],
    x: Float[Tensor, "T I"],
    scale: Float[Tensor, "I"],
    bits: int,
    group: int,
) -> float:
    """‖Q(W · diag(s)) · diag(s)⁻¹ · xᵀ − W · xᵀ‖², the sum of squares, with Q as in `rounded`."""
    raise NotImplementedError


def search_scale(
    weights: Sequence[Float[Tensor, "_ I"]],
    x: Float[Tensor, "T I"],
    bits: int,
    group: int,
    magnitude: Float[Tensor, "I"] | None = None,
) -> tuple[Float[Tensor, "I"], float]:
    """(scale, α): the α of ALPHAS with the least `output_error`, and `scale_of` it.

    The weights all read x, so they share the scale, and their errors are summed. Of equally good α
    the smallest.

    Args:
        weights: at least one. Neither they nor x are changed.
        magnitude: of each channel, what its scale is a power of; default `channel_magnitude(x)`.
    """
    raise NotImplementedError


def fold(
    previous: Tensor, weights: Sequence[Float[Tensor, "_ I"]], scale: Float[Tensor, "I"]
) -> tuple[Tensor, list[Float[Tensor, "_ I"]]]:
    """(previous / s, [W · diag(s), …]): the same outputs, with nothing left to do at run time.

    Args:
        previous: the weight of the operation that makes x: a norm's [I], or a linear layer's
            [I, J], whose rows are divided. It is not changed, nor are `weights`.
        weights: of all layers that read x; none, where only `previous` is wanted.
    """
    raise NotImplementedError


def over_group(
    magnitude: Float[Tensor, "NH"], num_heads: int, num_kv_heads: int
) -> Float[Tensor, "KH"]:
    """The mean over the query heads that read the same KV head, for each of its channels.

    The input of o_proj has N heads, and what makes it, v_proj, only K: a channel of v_proj can have
    one scale only, for all query heads that read it.
    """
    raise NotImplementedError


def clipped(
    weight: Float[Tensor, "O I"], x: Float[Tensor, "T I"], bits: int, group: int
) -> Float[Tensor, "O I"]:
    """The weight with each group clamped to r · (its smallest … its largest weight), by its best r.

    A finer grid for the many can be worth the error of the few. The best r of a group is the one of
    RATIOS with the least Σₜ (Σᵢ (Q(clamped)ᵢ − wᵢ) · xₜᵢ)² over the group's inputs i; of equally
    good ones the largest. The result is in float32, before rounding.

    Hint: with e = Q(clamped) − w and M = Σₜ xₜ xₜᵀ, which is the same for all r, this is e · M · e.
    """
    raise NotImplementedError


@torch.no_grad()
def awq(model: Llama, tokens: Int[Tensor, "B T"], bits: int, group: int) -> Llama:
    """A copy of the model whose linear layers are `QuantizedLinear`, calibrated on `tokens`.

    From one forward pass of the model (`record`), for each of its layers:

    1. Search the scale of each of the four inputs, on weights and inputs as the model has them:

           input of                  made by             magnitude
           q_proj, k_proj, v_proj    attention_norm      channel_magnitude
           o_proj                    v_proj              over_group of it, for each query head
           gate_proj, up_proj        mlp_norm            channel_magnitude
           down_proj                 up_proj             channel_magnitude

       (Rows of v_proj and up_proj that were divided already would not count for what they do.)
    2. Fold all four. v_proj and up_proj get two: as readers, and as what makes the next input.
    3. Clip all but q_proj and k_proj, for the inputs that they now get. The error of a score q · k
       is not a sum over inputs, so these two stay.
    4. Quantise.

    Nothing else changes, and the model itself not at all.

    Hint: `with_linears(model, {})` is a copy to fold in. About 45 lines with helpers.
    """
    raise NotImplementedError
