"""Draws a last token at every place, then picks one; in logarithms, pieces from the right."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.speculative import NO_TOKEN, Draft


def acceptance_rate(
    draft_probs: Float[Tensor, "... V"], target_probs: Float[Tensor, "... V"]
) -> Float[Tensor, "..."]:
    surplus = (target_probs - draft_probs).clamp(min=0).sum(-1)
    return target_probs.sum(-1) - surplus


def expected_tokens_per_round(acceptance: float, num_draft: int) -> float:
    if not (0 <= acceptance <= 1) or num_draft < 0:
        raise ValueError(f"acceptance {acceptance}, num_draft {num_draft}")
    powers = torch.tensor(acceptance, dtype=torch.float64) ** torch.arange(num_draft + 1)
    return powers.sum().item()


def expected_speedup(acceptance: float, num_draft: int, draft_cost: float) -> float:
    tokens = expected_tokens_per_round(acceptance, num_draft)
    if draft_cost < 0:
        raise ValueError(f"draft_cost {draft_cost}")
    return tokens / (1 + draft_cost * num_draft)


def best_num_draft(acceptance: float, draft_cost: float, most: int) -> int:
    if most < 0:
        raise ValueError(f"most {most}")
    values = [expected_speedup(acceptance, n, draft_cost) for n in range(most + 1)]
    return min(n for n, value in enumerate(values) if value == max(values))


def verify(
    draft: Draft, target_probs: Float[Tensor, "B G1 V"], uniforms: Float[Tensor, "B G1"]
) -> Int[Tensor, "B G1"]:
    batch, width, vocab = target_probs.shape
    q = torch.where(target_probs.isnan(), 0.0, target_probs.double())
    p = torch.zeros(batch, width, vocab, dtype=torch.float64)
    known = (draft.tokens >= 0) & (draft.tokens < vocab)
    known &= torch.arange(width - 1) < draft.num_draft.unsqueeze(1)
    tokens = draft.tokens.masked_fill(~known, 0)
    if draft.probs is None:
        p[:, :-1] = torch.nn.functional.one_hot(tokens, vocab) * known.unsqueeze(2)
    else:
        common = min(vocab, draft.probs.shape[2])
        drafted = torch.arange(width - 1) < draft.num_draft.unsqueeze(1)
        usable = drafted.unsqueeze(2) & ~draft.probs[:, :, :common].isnan()
        p[:, :-1, :common] = torch.where(usable, draft.probs[:, :, :common].double(), 0.0)

    log_p, log_q = (x[:, :-1].gather(2, tokens.unsqueeze(2)).squeeze(2).log() for x in (p, q))
    stays = known & (log_p > -torch.inf)
    stays &= uniforms[:, :-1].double().log() < log_q - log_p
    first_out = torch.cat([~stays, torch.ones(batch, 1, dtype=torch.bool)], dim=1)
    length = first_out.int().argmax(dim=1, keepdim=True)

    residual = torch.relu(q - p)
    residual = torch.where(residual.sum(2, keepdim=True) > 0, residual, q)
    endings = _draw_from_the_right(residual, uniforms[:, -1:].double().expand(-1, width))

    place = torch.arange(width).expand(batch, -1)
    drafted = torch.cat([draft.tokens, draft.tokens.new_zeros(batch, 1)], dim=1)
    empty = torch.full_like(drafted, NO_TOKEN)
    given = torch.where(place < length, drafted, empty)
    return torch.where(place == length, endings, given)


def _draw_from_the_right(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Token V − 1 owns the first piece."""
    ends = weights.flip(-1).cumsum(-1)
    place = uniforms.unsqueeze(-1) * ends[..., -1:]
    return weights.shape[-1] - 1 - (ends > place).byte().argmax(dim=-1)
