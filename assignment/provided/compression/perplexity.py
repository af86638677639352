"""How well a model knows a text."""

import torch
from torch import Tensor, nn

from ..models.training import next_token_loss


@torch.no_grad()
def nats(model: nn.Module, tokens: Tensor, real: Tensor | None = None) -> float:
    """Mean of −log p(token | all before it) over a batch of texts [B T], in nats a token.

    Perplexity is e to this power. In float32 at least: two models that differ little would have
    the same loss in bfloat16. `real` [B T] is False where a text is padded.

    Raises:
        ValueError: there is no token to predict.
    """
    logits = model(tokens)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return next_token_loss(wide, tokens, real).item()
