"""Speculative decoding: a cheap draft guesses the next tokens, one call of the target checks them.

A decode step of the target reads all its weights for one token. Checking several tokens reads them
once too, so every guess that is accepted saves a step. What comes out has exactly the law of the
target, whatever the draft: a guess is kept with a probability that makes up for how often the draft
makes it, and the first rejected one is replaced by a draw from what the draft has missed. This is
modified rejection sampling.

Leviathan, Kalman, Matias, 2022, arXiv:2211.17192. Chen et al., 2023, arXiv:2302.01318. As in Chen,
p is the draft's distribution and q the target's (Leviathan has them the other way round).

Axes: B sequences, G the most drafted tokens of a sequence (γ), V vocabulary.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.speculative import NO_TOKEN, Draft


def acceptance_rate(
    draft_probs: Float[Tensor, "... V"], target_probs: Float[Tensor, "... V"]
) -> Float[Tensor, "..."]:
    """Probability that a token drawn from p is accepted: α = Σₓ min(p(x), q(x)).

    This is 1 − TV(p, q), one minus the total variation distance (Leviathan et al., theorem 3.5).
    """
    raise NotImplementedError


def expected_tokens_per_round(acceptance: float, num_draft: int) -> float:
    """Mean number of tokens that one round gives, recovered or bonus token included.

    Σ_{i=0}^{γ} αⁱ = (1 − α^{γ+1}) / (1 − α), and γ + 1 when α = 1   (Leviathan et al., equation 1).

    Args:
        acceptance: α, the probability that a drafted token is accepted when those before it are,
            in [0, 1]; the same for each.
        num_draft: γ ≥ 0, drafted tokens a round.

    Raises:
        ValueError: an argument is out of its range.
    """
    raise NotImplementedError


def expected_speedup(acceptance: float, num_draft: int, draft_cost: float) -> float:
    """How many times as fast as decoding without a draft: tokens a round over its cost.

    A call of the target costs 1, for one token or for γ + 1; each of the γ calls of the draft costs
    `draft_cost` ≥ 0. (Leviathan et al., theorem 3.8.)

    Raises:
        ValueError: as `expected_tokens_per_round`, or draft_cost is negative.
    """
    raise NotImplementedError


def best_num_draft(acceptance: float, draft_cost: float, most: int) -> int:
    """The num_draft in 0 … most with the largest `expected_speedup`; the smallest such.

    Raises:
        ValueError: as `expected_speedup`, or most is negative.
    """
    raise NotImplementedError


def verify(
    draft: Draft, target_probs: Float[Tensor, "B G1 V"], uniforms: Float[Tensor, "B G1"]
) -> Int[Tensor, "B G1"]:
    """One round: the tokens that each sequence gets, then NO_TOKEN; int64, G1 = G + 1.

    Look at the drafted tokens x₀, x₁, … of sequence b in order. xᵢ was drawn from pᵢ; qᵢ is the
    target's distribution in its place.

        accepted    xᵢ stays if uniforms[b, i] < min(1, qᵢ(xᵢ) / pᵢ(xᵢ)).
        recovered   If it does not, a token drawn from max(qᵢ − pᵢ, 0), normalised, takes its place
                    and ends the round.
        bonus       If all stay, a token drawn from the target's next distribution ends the round.

    So a sequence gets 1 … num_draft[b] + 1 tokens. The draw that ends its round uses
    uniforms[b, G], however short its draft: lay the tokens end to end on [0, 1), in any order, each
    as long as it is probable, and take the one on whose piece the number lies.

    Args:
        draft: see `Draft`. Where it has no probabilities, pᵢ(xᵢ) = 1. Behind a sequence's
            num_draft[b] tokens may stand anything: NO_TOKEN, which is −1, ids that nobody has,
            rows of NaN.
        target_probs: row i of sequence b is qᵢ, the distribution after i of its drafted tokens. The
            first num_draft[b] + 1 rows are read. The others may hold anything, infinity and NaN
            too.
        uniforms: float32 in [0, 1), independent of each other and of the draft.

    Models are padded, and break:
        - p may be wider or narrower than V. A token that one of them does not have is improbable
          (probability 0) there. Every token that is returned is in 0 … V − 1.
        - NaN is no probability and counts as 0. A drafted token with p = 0 is rejected.
        - Where the residual max(q − p, 0) is 0 everywhere, by rounding, q is drawn from instead.
          Where that is 0 everywhere too, any token will do.
        - No other token of probability 0 is ever drawn, at either end of [0, 1).

    No argument is changed. A sequence's tokens do not depend on the others'. Hint: if p is 0 where
    nothing was drafted, a bonus token is a recovered one. No loop is needed. About 25 lines.
    """
    raise NotImplementedError
