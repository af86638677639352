"""EAGLE's drafter and loss from their formulas: no cache, no batch, in float64."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assignment.provided.models import LlamaConfig
from tests.attention.oracles import attention_layer

CONFIG = LlamaConfig(11, num_layers=2, d_model=20, num_heads=6, num_kv_heads=2, head_dim=4, d_ff=28)
"""Of the targets in these tests. No two widths are equal."""


def draw_weights(draw, config: LlamaConfig = CONFIG) -> dict[str, Tensor]:
    """The drafter's, by name: matrices from N(0, 1 / inputs), norms near 1."""
    width, heads = config.d_model, config.num_heads * config.head_dim
    kv_heads = config.num_kv_heads * config.head_dim
    shapes = {
        "join": (width, 2 * width),
        "layer.attention.q_proj": (heads, width),
        "layer.attention.k_proj": (kv_heads, width),
        "layer.attention.v_proj": (kv_heads, width),
        "layer.attention.o_proj": (width, heads),
        "layer.mlp.gate_proj": (config.d_ff, width),
        "layer.mlp.up_proj": (config.d_ff, width),
        "layer.mlp.down_proj": (width, config.d_ff),
    }
    weights = {
        f"{name}.weight": draw.normal(*shape, scale=shape[1] ** -0.5)
        for name, shape in shapes.items()
    }
    for name in ("attention_norm", "mlp_norm"):
        weights[f"layer.{name}.weight"] = 1 + draw.normal(width, scale=0.2)
    return weights


class DrafterOracle:
    """The drafter as a function of all pairs of a sequence, which it reads anew each time."""

    def __init__(self, weights: dict[str, Tensor], embedding: Tensor, config=CONFIG):
        self.config, self.embedding = config, embedding.double()
        self._weights = {name: weight.double() for name, weight in weights.items()}

    def __call__(self, features: Tensor, next_tokens: Sequence[int] | Tensor) -> Tensor:
        """features [P, D], next_tokens [P] -> predicted [P, D]."""
        tokens = torch.as_tensor(next_tokens)
        pairs = torch.cat([features.double(), self.embedding[tokens]], dim=1)
        x = pairs @ self._weights["join.weight"].T
        prefix = "layer.attention."
        attention = {
            name.removeprefix(prefix): weight
            for name, weight in self._weights.items()
            if name.startswith(prefix)
        }
        normed = self._norm(x, "attention_norm")[None]
        head_dim, theta = self.config.head_dim, self.config.rope_theta
        x = x + attention_layer(normed, attention, head_dim, theta, torch.float64)[0]
        gate, up, down = (
            self._weights[f"layer.mlp.{name}_proj.weight"] for name in ("gate", "up", "down")
        )
        inside = self._norm(x, "mlp_norm")
        gated = inside @ gate.T
        return x + (gated / (1 + (-gated).exp()) * (inside @ up.T)) @ down.T

    def drafting(self, features: Tensor, sequence: list[int], drafted: Sequence[int]) -> Tensor:
        """Predicted features [len(drafted) + 1, D]: of the newest token, then of each drafted one.

        features: the true ones [len(sequence) − 1, D].
        """
        read, tokens, found = features.double(), sequence[1:], []
        for token in (*drafted, None):
            found.append(self(read, tokens)[-1])
            read, tokens = torch.cat([read, found[-1][None]]), [*tokens, token]
        return torch.stack(found)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        size = (x.square().mean(dim=1, keepdim=True) + self.config.norm_eps).sqrt()
        return x / size * self._weights[f"layer.{name}.weight"]


def loss(
    predicted: Tensor, predicted_logits: Tensor, features: Tensor, logits: Tensor, is_real: Tensor
) -> Tensor:
    """EAGLE's loss, pair by pair, in the dtype of what it is given."""
    regression, cross_entropy, pairs = 0.0, 0.0, 0
    for row in range(len(features)):
        for i in range(features.shape[1] - 1):
            if not is_real[row, i + 1]:
                continue
            pairs += 1
            d = (predicted[row, i] - features[row, i + 1]).abs()
            regression = regression + torch.where(d < 1, d * d / 2, d - 0.5).mean()
            q = logits[row, i + 1].exp() / logits[row, i + 1].exp().sum()
            p = predicted_logits[row, i].exp() / predicted_logits[row, i].exp().sum()
            cross_entropy = cross_entropy - (q * p.log()).sum()
    return regression / pairs + 0.1 * cross_entropy / pairs
