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
    raise NotImplementedError


def int8_matmul(x: Int8[Tensor, "T I"], weight: Int8[Tensor, "O I"]) -> Int32[Tensor, "T O"]:
    """x · weightᵀ, exact: sums in 32 bits.

    127² · I passes what float16 can hold at I = 5, and the integers that float32 can at I = 1041.

    Hint: which dtypes hold every integer up to 127² · I, and which of them are multiplied fast?
    """
    raise NotImplementedError


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
    raise NotImplementedError


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
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "... I"]) -> Float[Tensor, "... O"]:
        """In the dtype of x. Nothing of one call is kept for the next."""
        raise NotImplementedError


def int8_share(x: Float[Tensor, "... I"], threshold: float = THRESHOLD) -> float:
    """The share of the multiplications with x that is done in 8 bits: 1 − E / I."""
    raise NotImplementedError


def relative_error(got: Float[Tensor, "..."], exact: Float[Tensor, "..."]) -> float:
    """‖got − exact‖ / ‖exact‖, of all elements together (Frobenius), summed in float64.

    Raises:
        ValueError: the shapes differ, or exact is zero.
    """
    raise NotImplementedError
