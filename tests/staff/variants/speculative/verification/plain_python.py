"""Python numbers, one sequence after the other; closed forms for the rates."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.speculative import NO_TOKEN, Draft


def acceptance_rate(
    draft_probs: Float[Tensor, "... V"], target_probs: Float[Tensor, "... V"]
) -> Float[Tensor, "..."]:
    return 1 - (draft_probs - target_probs).abs().sum(-1) / 2


def expected_tokens_per_round(acceptance: float, num_draft: int) -> float:
    if acceptance < 0 or acceptance > 1 or num_draft < 0:
        raise ValueError("out of range")
    if acceptance == 1:
        return num_draft + 1.0
    return (1 - acceptance ** (num_draft + 1)) / (1 - acceptance)


def expected_speedup(acceptance: float, num_draft: int, draft_cost: float) -> float:
    if draft_cost < 0:
        raise ValueError("a negative cost")
    return expected_tokens_per_round(acceptance, num_draft) / (num_draft * draft_cost + 1)


def best_num_draft(acceptance: float, draft_cost: float, most: int) -> int:
    """Goes on as long as one more token makes it faster: there is one maximum."""
    if most < 0:
        raise ValueError("a negative number")
    best, speedup = 0, expected_speedup(acceptance, 0, draft_cost)
    while best < most:
        with_one_more = expected_speedup(acceptance, best + 1, draft_cost)
        if with_one_more <= speedup:
            break
        best, speedup = best + 1, with_one_more
    return best


def verify(
    draft: Draft, target_probs: Float[Tensor, "B G1 V"], uniforms: Float[Tensor, "B G1"]
) -> Int[Tensor, "B G1"]:
    batch, width = uniforms.shape
    result = torch.full((batch, width), NO_TOKEN)
    for b in range(batch):
        count = int(draft.num_draft[b])
        probs = None if draft.probs is None else draft.probs[b, :count].tolist()
        new = _one_round(
            draft.tokens[b, :count].tolist(),
            probs,
            target_probs[b, : count + 1].tolist(),
            uniforms[b].tolist(),
        )
        result[b, : len(new)] = torch.tensor(new)
    return result


def _one_round(
    tokens: list[int],
    draft_probs: list[list[float]] | None,
    target_probs: list[list[float]],
    uniforms: list[float],
) -> list[int]:
    for i, token in enumerate(tokens):
        q = _clean(target_probs[i])
        p = {token: 1.0} if draft_probs is None else _clean(draft_probs[i])
        if p.get(token, 0) > 0 and uniforms[i] < min(1, q.get(token, 0) / p[token]):
            continue
        residual = {x: max(q_x - p.get(x, 0), 0) for x, q_x in q.items()}
        if not any(residual.values()):
            residual = q
        return [*tokens[:i], _draw(residual, uniforms[-1])]
    return [*tokens, _draw(_clean(target_probs[len(tokens)]), uniforms[-1])]


def _clean(probs: list[float]) -> dict[int, float]:
    return {token: 0.0 if math.isnan(prob) else prob for token, prob in enumerate(probs)}


def _draw(weights: dict[int, float], uniform: float) -> int:
    left, drawn = uniform * math.fsum(weights.values()), 0
    for token, weight in weights.items():
        if weight > 0:
            drawn = token
            if left < weight:
                break
            left -= weight
    return drawn
