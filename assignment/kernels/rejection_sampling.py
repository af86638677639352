"""One round of rejection sampling for a ragged batch, in one launch.

The law is that of `speculative.verification`. Written in torch it passes over all rows of p and q
several times, though a round needs two numbers for each drafted token, and one whole row: the one
that its last token is drawn from. That row is read once, by tiles, of which only the sums are kept;
then once more the one tile in which the drawn number falls.

Axes: B sequences, G the most drafted tokens of a sequence (γ), V vocabulary of the target, P of the
draft. Sources: Leviathan, Kalman, Matias, 2022, arXiv:2211.17192; Chen et al., 2023,
arXiv:2302.01318.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.speculative import NO_TOKEN


def rejection_sampling(
    tokens: Int[Tensor, "B G"],
    num_draft: Int[Tensor, "B"],
    draft_probs: Float[Tensor, "B G P"] | None,
    target_probs: Float[Tensor, "B G1 V"],
    uniforms: Float[Tensor, "B G1"],
) -> Int[Tensor, "B G1"]:
    """The tokens that each sequence gets in a round, then NO_TOKEN (−1); int64, G1 = G + 1.

    Look at the drafted tokens x₀, x₁, … of sequence b in order. xᵢ was drawn from pᵢ; qᵢ is the
    target's distribution in its place.

        accepted    xᵢ stays if uniforms[b, i] < min(1, qᵢ(xᵢ) / pᵢ(xᵢ)).
        recovered   If it does not, a token drawn from max(qᵢ − pᵢ, 0), normalised, takes its place
                    and ends the round.
        bonus       If all stay, a token drawn from the target's next distribution ends the round.

    The draw that ends the round uses uniforms[b, G], however short the draft: lay the tokens end to
    end on [0, 1), in any order, each as long as it is probable, and take the one on whose piece the
    number lies.

    Args:
        tokens: int64; contiguous, as all tensors here. None of them is changed. Row b has
            num_draft[b] drafted tokens; behind them may stand anything: −1, ids that nobody has.
        num_draft: int64 or int32, 0 … G for each sequence; G may be 0.
        draft_probs: float32, row i of sequence b is pᵢ; its rows behind num_draft[b] may hold
            anything, infinity and NaN too. None for a deterministic draft, where pᵢ(xᵢ) = 1.
        target_probs: float32, row i of sequence b is qᵢ, the distribution after i of its drafted
            tokens; its rows behind num_draft[b] + 1 may hold anything.
        uniforms: float32 in [0, 1).

    Models are padded, and break:
        - P may be more or less than V. A token that one of them does not have has probability 0
          there. Every token that is returned is in 0 … V − 1.
        - NaN counts as 0. A drafted token with p = 0 is rejected.
        - Where max(q − p, 0) is 0 everywhere, q is drawn from; where that is 0 everywhere too, any
          token will do.
        - No other token of probability 0 is ever drawn, at either end of [0, 1), whatever rounding
          does to a sum.

    All of it is computed by one launch, and the launcher asks the GPU for nothing. Sums may be
    float32.

    Hint: which row the last token is drawn from is known after two numbers for each drafted token.
    It need not fit a tile, and of 64,000 tokens it does not fit the registers: a sum for each tile
    tells in which one the number lies, and only that is read again. About 80 lines.
    """
    raise NotImplementedError
