"""How well a model knows a text."""

import torch
from torch import Tensor, nn

from ..models.training import next_token_loss


@torch.no_grad()
def nats(model: nn.Module, tokens: Tensor, real: Tensor | None = None) -> float:
    """Mean of −log p(token | all before it) over a batch of texts [B T], in nats a token.

    Perplexity is e to this power. `real` [B T] is False where a text is padded.
    """
    return next_token_loss(model(tokens), tokens, real).item()
