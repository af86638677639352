"""A small Llama in the grader's process: it counts what an engine asks of it, and knows the truth.

The truth is the whole sequence through the model at once, without any cache, in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.serving import ModelParts

CONFIG = LlamaConfig(
    vocab_size=41,
    num_layers=2,
    d_model=24,
    num_heads=6,
    num_kv_heads=2,
    head_dim=4,
    d_ff=32,
    rope_theta=100.0,  # positions matter more, and with their own head tokens repeat less
    tie_embeddings=False,
)


class CountedLlama:
    """What an engine gets is `parts`.

    rows: tokens of each call of `hidden`; head_rows: rows of each call of `logits`.
    """

    def __init__(self, draw, config: LlamaConfig = CONFIG):
        self.config = config
        self.llama = Llama(config, seed=draw.seed()).double()
        self.rows: list[int] = []
        self.head_rows: list[int] = []

    @property
    def parts(self) -> ModelParts:
        return ModelParts(self.config, torch.float64, self._hidden, self._logits)

    @torch.no_grad()
    def logits_after(self, prompt: list[int], new: list[int]) -> Tensor:
        """Those that each of the new tokens is drawn from: [len(new), V]."""
        whole = torch.tensor([[*prompt, *new[:-1]]])
        return self.llama(whole)[0, len(prompt) - 1 :]

    @torch.no_grad()
    def greedy(self, prompt: list[int], count: int) -> list[int]:
        """The most probable token, again and again."""
        new: list[int] = []
        for _ in range(count):
            new.append(int(self.llama(torch.tensor([prompt + new]))[0, -1].argmax()))
        return new

    @torch.no_grad()
    def _hidden(self, tokens: Tensor, positions: Tensor, attend) -> Tensor:
        self.rows.append(tokens.numel())
        return self.llama.hidden(tokens, positions, attend)

    @torch.no_grad()
    def _logits(self, hidden: Tensor) -> Tensor:
        self.head_rows.append(hidden.shape[:-1].numel())
        return self.llama.logits(hidden)
