"""LLM.int8(): 8-bit products of weights and activations, with a few columns left out.

Large language models have feature columns with values some hundred times the others'. A row of the
activation that holds such a value has a scale so coarse that all its other values round to nothing.
They stand in the same few columns in all rows, so those columns are multiplied in 16 bits, and the
rest, more than 99%, in 8.

Dettmers, Lewis, Belkada, Zettlemoyer, 2022, arXiv:2208.07339.
Axes: T tokens, I inputs, O outputs, E outlier columns. No argument is changed.
"""

import torch
from jaxtyping import Float, Int, Int8, Int32
from torch import Tensor, nn

THRESHOLD = 6.0


def outlier_columns(x: Float[Tensor, "... I"], threshold: float = THRESHOLD) -> Int[Tensor, "E"]:
    """Indices, ascending, of the columns of x that hold a value with |value| ≥ threshold.

    The threshold is for the activation, and looks at this batch alone.
    """
    # BEGIN SOLUTION
    return (x.detach().abs() >= threshold).reshape(-1, x.shape[-1]).any(dim=0).nonzero().flatten()
    # END SOLUTION


def int8_matmul(x: Int8[Tensor, "T I"], weight: Int8[Tensor, "O I"]) -> Int32[Tensor, "T O"]:
    """x · weightᵀ, exact: sums in 32 bits.

    127² · I passes what float16 can hold at I = 5, and the integers that float32 can at I = 1041.

    Hint: which dtypes hold every integer up to 127² · I, and which of them are multiplied fast?
    """
    # BEGIN SOLUTION
    return (x.double() @ weight.double().T).to(torch.int32)
    # END SOLUTION


def llm_int8_matmul(
    x: Float[Tensor, "T I"], weight: Float[Tensor, "O I"], threshold: float = THRESHOLD
) -> Float[Tensor, "T O"]:
    """x · weightᵀ as in the paper: the naive form, which has the whole weight at hand.

    1. The outlier columns of x meet theirs of the weight in the dtype of x.
    2. What is left of x is quantised by rows, what is left of the weight by its rows (one for each
       output), both to int8 by absmax: code = round(127 · value / absmax).
    3. Their product is exact in int32, and goes back by the outer product of the scales.
    4. The two parts are added, in the dtype of x.

    A row of zeros stays zeros; one whose values are all near 1e-6 is scaled like any other. The
    weight may have another dtype than x.

    Hint: one helper, from rows to codes and scales, serves x and weight. About 15 lines with it.
    """
    # BEGIN SOLUTION
    outliers = outlier_columns(x, threshold)
    large = x[:, outliers] @ weight[:, outliers].to(x.dtype).T
    left = torch.ones(x.shape[1], dtype=torch.bool)
    left[outliers] = False
    x_codes, x_scale = _rows_to_int8(x[:, left])
    weight_codes, weight_scale = _rows_to_int8(weight[:, left])
    small = int8_matmul(x_codes, weight_codes) * x_scale * weight_scale.T
    return large + small.to(x.dtype)
    # END SOLUTION


# BEGIN SOLUTION
def _rows_to_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    """Codes, and the scale of each row [rows 1] in float32."""
    wide = x.float()
    largest = wide.abs().amax(dim=1, keepdim=True) if x.shape[1] else wide.new_zeros(len(x), 1)
    scale = (largest / 127).clamp(min=torch.finfo(torch.float32).tiny)
    return (wide / scale).round().to(torch.int8), scale


# END SOLUTION


class Int8Linear(nn.Module):
    """The layer: it keeps int8 codes and a float32 scale for each output, no more of its weight.

    As `llm_int8_matmul`, except that the weight was quantised once, whole, before any x was seen:
    its scales are of whole rows, and the outlier columns meet dequantised weights. What is kept are
    buffers, so that the state dict is the layer.

    Args:
        weight: [O I], any floating dtype, may be a Parameter. Nothing of it is kept alive: not on
            an attribute, nor by autograd (`detach`).
        threshold: of the activation's outliers.
    """

    def __init__(self, weight: Float[Tensor, "O I"], threshold: float = THRESHOLD):
        super().__init__()
        # BEGIN SOLUTION
        self.threshold = threshold
        codes, scale = _rows_to_int8(weight.detach())
        self.register_buffer("codes", codes)
        self.register_buffer("scale", scale)
        # END SOLUTION

    def forward(self, x: Float[Tensor, "... I"]) -> Float[Tensor, "... O"]:
        """In the dtype of x. Nothing of one call is kept for the next."""
        # BEGIN SOLUTION
        rows = x.reshape(-1, x.shape[-1])
        outliers = outlier_columns(rows, self.threshold)
        columns = self.codes[:, outliers].float() * self.scale
        large = rows[:, outliers] @ columns.to(x.dtype).T
        x_codes, x_scale = _rows_to_int8(rows.index_fill(1, outliers, 0))
        small = int8_matmul(x_codes, self.codes) * x_scale * self.scale.T
        return (large + small.to(x.dtype)).view(*x.shape[:-1], len(self.codes))
        # END SOLUTION


def int8_share(x: Float[Tensor, "... I"], threshold: float = THRESHOLD) -> float:
    """The share of the multiplications with x that is done in 8 bits: 1 − E / I."""
    # BEGIN SOLUTION
    return 1 - len(outlier_columns(x, threshold)) / x.shape[-1]
    # END SOLUTION


def relative_error(got: Float[Tensor, "..."], exact: Float[Tensor, "..."]) -> float:
    """‖got − exact‖ / ‖exact‖, of all elements together (Frobenius), summed in float64.

    Raises:
        ValueError: the shapes differ, or exact is zero.
    """
    # BEGIN SOLUTION
    if got.shape != exact.shape:
        raise ValueError(f"got: expected shape {list(exact.shape)}, got {list(got.shape)}")
    size = exact.double().norm().item()
    if size == 0:
        raise ValueError("exact: expected a tensor that is not zero")
    return (got.double() - exact.double()).norm().item() / size
    # END SOLUTION
