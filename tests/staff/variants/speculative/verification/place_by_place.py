"""A loop over places, for all rows that still go on; pieces from the most to the least probable."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.speculative import NO_TOKEN, Draft


def acceptance_rate(
    draft_probs: Float[Tensor, "... V"], target_probs: Float[Tensor, "... V"]
) -> Float[Tensor, "..."]:
    return torch.where(draft_probs < target_probs, draft_probs, target_probs).sum(-1)


def expected_tokens_per_round(acceptance: float, num_draft: int) -> float:
    _check(acceptance, num_draft)
    mean = 1.0
    for _ in range(num_draft):
        mean = 1 + acceptance * mean
    return mean


def expected_speedup(acceptance: float, num_draft: int, draft_cost: float) -> float:
    _check(acceptance, num_draft, draft_cost)
    return expected_tokens_per_round(acceptance, num_draft) / (1 + draft_cost * num_draft)


def best_num_draft(acceptance: float, draft_cost: float, most: int) -> int:
    _check(acceptance, most, draft_cost)
    return max(range(most, -1, -1), key=lambda n: (expected_speedup(acceptance, n, draft_cost), -n))


def _check(acceptance: float, number: int, draft_cost: float = 0.0) -> None:
    if not (0 <= acceptance <= 1 and number >= 0 and draft_cost >= 0):
        raise ValueError(f"out of range: {acceptance}, {number}, {draft_cost}")


def verify(
    draft: Draft, target_probs: Float[Tensor, "B G1 V"], uniforms: Float[Tensor, "B G1"]
) -> Int[Tensor, "B G1"]:
    rows, places, vocab = target_probs.shape
    result = torch.full((rows, places), NO_TOKEN)
    going_on = torch.arange(rows)
    for place in range(places):
        last = uniforms[going_on, -1]
        q = _clean(target_probs[going_on, place])
        if place == places - 1:
            result[going_on, place] = _draw(q, last)
            break
        token = draft.tokens[going_on, place]
        drafted = place < draft.num_draft[going_on]
        p = _draft_probs(draft, going_on, place, vocab) * drafted[:, None]
        inside = (token >= 0) & (token < vocab) & drafted
        index = torch.where(inside, token, 0)[:, None]
        ratio = q.gather(1, index) / p.gather(1, index)  # q/0 and 0/0 are no acceptance
        accepted = inside & ratio[:, 0].isfinite() & (uniforms[going_on, place] < ratio[:, 0])
        residual = torch.relu(q - p)
        residual = torch.where((residual == 0).all(1, keepdim=True), q, residual)
        result[going_on, place] = torch.where(accepted, token, _draw(residual, last))
        going_on = going_on[accepted]
    return result


def _draft_probs(draft: Draft, rows: Tensor, place: int, vocab: int) -> Tensor:
    p = torch.zeros(len(rows), vocab, dtype=torch.float64)
    if draft.probs is None:
        p[draft.tokens[rows, place, None] == torch.arange(vocab)] = 1
    else:
        common = min(vocab, draft.probs.shape[-1])
        p[:, :common] = draft.probs[rows, place, :common].double()
    return _clean(p)


def _clean(probs: Tensor) -> Tensor:
    return torch.where(probs.isfinite(), probs, 0).double()


def _draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    pieces, order = weights.sort(dim=-1, descending=True)
    ends = pieces.cumsum(-1)
    inside = (ends > uniforms.double()[:, None] * ends[:, -1:]) & (pieces > 0)
    return order.gather(-1, inside.int().argmax(-1, keepdim=True))[:, 0]
