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

# BEGIN SOLUTION
SMALLEST_TILE, LARGEST_TILE = 1024, 4096
SHARE = 64  # a tile is about 1/64 of the vocabulary: so much is read twice


@triton.jit
def _round_kernel(
    tokens, num_draft, draft_probs, target_probs, uniforms, out, width,
    VOCAB: tl.constexpr, DRAFT_VOCAB: tl.constexpr, SURE: tl.constexpr, NO_TOKEN: tl.constexpr,
    PLACES: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """One sequence's round. SURE: there are no draft_probs, and p is 1 on what was drafted."""
    row = tl.program_id(0).to(tl.int64)  # row · G1 · V passes 2³¹
    place, first = tl.arange(0, PLACES), row * (width + 1)
    count = tl.load(num_draft + row)
    drafted = place < count
    x = tl.load(tokens + row * width + place, mask=drafted, other=-1)
    chance = tl.load(uniforms + first + place, mask=drafted, other=0.0)
    known = (x >= 0) & (x < VOCAB)
    q_x = tl.load(target_probs + (first + place) * VOCAB + x, mask=known, other=0.0)
    if SURE:
        p_x = tl.where(known, 1.0, 0.0)
    else:
        p = draft_probs + (row * width + place) * DRAFT_VOCAB
        p_x = tl.load(p + x, mask=known & (x < DRAFT_VOCAB), other=0.0)
    accepted = (p_x > 0) & (chance * p_x < q_x)  # NaN is neither above nor below
    end = tl.min(tl.where(drafted & ~accepted, place, count), 0)

    q = target_probs + (first + end) * VOCAB
    p = draft_probs + (row * width + end) * DRAFT_VOCAB
    guess = tl.sum(tl.where(place == end, x, 0), 0)  # −1 where a bonus token is drawn
    reach = tl.where(end < count, min(VOCAB, DRAFT_VOCAB), 0)  # tokens of p that are taken off q
    sums = _sums(q, p, guess, reach, VOCAB, SURE, TILE, TILES)
    if tl.sum(sums, 0) == 0:
        guess, reach = guess * 0 - 1, reach * 0
        sums = _sums(q, p, guess, reach, VOCAB, SURE, TILE, TILES)
    target = tl.load(uniforms + first + width) * tl.sum(sums, 0)
    tile = _first_above(sums, target, TILES)
    target -= tl.sum(tl.where(tl.arange(0, TILES) < tile, sums, 0.0), 0)
    weights = _weights(q, p, guess, reach, tile, VOCAB, SURE, TILE)
    token = tile * TILE + _first_above(weights, target, TILE)

    result = tl.where(place < end, x, tl.where(place == end, token, NO_TOKEN))
    tl.store(out + first + place, result, mask=place <= width)


@triton.jit
def _sums(
    q, p, guess, reach,
    VOCAB: tl.constexpr, SURE: tl.constexpr, TILE: tl.constexpr, TILES: tl.constexpr,
):  # fmt: skip
    """[TILES]: of each tile the sum of its weights."""
    sums = tl.zeros((TILES,), tl.float32)
    for tile in range(0, tl.cdiv(VOCAB, TILE)):
        weights = _weights(q, p, guess, reach, tile, VOCAB, SURE, TILE)
        sums = tl.where(tl.arange(0, TILES) == tile, tl.sum(weights, 0), sums)
    return sums


@triton.jit
def _weights(
    q, p, guess, reach, tile, VOCAB: tl.constexpr, SURE: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """[TILE]: max(q − p, 0) of the tokens of a tile; 0 for what is no token, or NaN.

    p is 1 on the guess where the draft was SURE of it, else of `reach` tokens what stands there.
    """
    token = tile * TILE + tl.arange(0, TILE)
    q_x = tl.load(q + token, mask=token < VOCAB, other=0.0)
    if SURE:
        p_x = tl.where(token == guess, 1.0, 0.0)
    else:
        p_x = tl.load(p + token, mask=token < reach, other=0.0)
        p_x = tl.where(p_x > 0, p_x, 0.0)
    left = q_x - p_x
    return tl.where(left > 0, left, 0.0)


@triton.jit
def _first_above(weights, target, SIZE: tl.constexpr):
    """The first index whose running sum is above the target; of those that weigh something.

    By rounding none may be: then the last of those that weigh something. If nothing does, 0.
    """
    index, weighs = tl.arange(0, SIZE), weights > 0
    first = tl.min(tl.where(weighs & (tl.cumsum(weights, 0) > target), index, SIZE), 0)
    return tl.minimum(first, tl.max(tl.where(weighs, index, 0), 0))


# END SOLUTION


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
    # BEGIN SOLUTION
    (batch, width), vocab = tokens.shape, target_probs.shape[-1]
    sure = draft_probs is None
    share = triton.next_power_of_2(vocab) // SHARE
    tile = min(max(share, SMALLEST_TILE), LARGEST_TILE)
    out = torch.empty(batch, width + 1, dtype=torch.int64, device=tokens.device)
    if batch:
        _round_kernel[(batch,)](
            tokens, num_draft, target_probs if sure else draft_probs, target_probs, uniforms, out,
            width, VOCAB=vocab, DRAFT_VOCAB=vocab if sure else draft_probs.shape[-1], SURE=sure,
            NO_TOKEN=NO_TOKEN, PLACES=triton.next_power_of_2(width + 1), TILE=tile,
            TILES=triton.next_power_of_2(triton.cdiv(vocab, tile)),
        )  # fmt: skip
    return out
    # END SOLUTION
