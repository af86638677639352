"""A decoder-only Transformer of the Llama kind, with one seam for attention and its cache.

The model computes everything of a step except attention over the past. What happens between "here
are this layer's queries, keys and values for the new tokens" and "here is what each query read" is
the argument `attend` of `forward`. Without it the model attends causally over just the tokens it is
given, which is all that a forward pass over whole sequences needs.
"""

import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Self

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from .blocks import Embedding, Layer, Linear, LlamaConfig, RMSNorm
from .rotary import cos_sin_at

# attend(layer, q [B N T H], k [B K T H], v [B K T H]) -> [B N T H], q and k already rotated.
Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def attend_causally(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention over exactly the tokens of this call, each seeing itself and those before it."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


class Llama(nn.Module):
    """tokens → embedding → `num_layers` blocks → norm → logits.

    Args:
        config: the sizes.
        seed: the weights are drawn from it alone (no global random state is read or changed): each
            matrix from N(0, 1/inputs), so that attention, MLP and residual have like sizes and a
            mistake in any of them moves the logits. None leaves the weights without values, for
            `load`.
    """

    def __init__(self, config: LlamaConfig, seed: int | None = 0):
        super().__init__()
        if any(layer.kind != "full" for layer in config.attention):
            raise ValueError("config.attention: a Llama is full in every layer; see LayeredLlama")
        self.config = config
        self.embedding = Embedding(config.vocab_size, config.d_model)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.d_model, config.norm_eps)
        if not config.tie_embeddings:
            self.head = Linear(config.d_model, config.vocab_size)
        if seed is not None:
            draw_weights(self, seed)

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "B T"] | None = None,
        attend: Attend | None = None,
    ) -> Float[Tensor, "B T V"]:
        """Logits of the token after each of `tokens`.

        Args:
            tokens: token ids.
            positions: where each token stands in its sequence, default 0 … T−1 in every row. They
                set the rotation only; who sees whom is up to `attend`. Batch 1 stands for all rows.
            attend: attend(layer, q [B,N,T,H], k [B,K,T,H], v [B,K,T,H]) -> [B,N,T,H] is called
                once a layer, layer 0 first, with q and k rotated. Default: causal over `tokens`.

        Raises:
            ValueError: if `attend` returns a tensor of another shape than q.
        """
        return self.logits(self.hidden(tokens, positions, attend))

    def hidden(
        self,
        tokens: Int[Tensor, "B T"],
        positions: Int[Tensor, "B T"] | None = None,
        attend: Attend | None = None,
    ) -> Float[Tensor, "B T D"]:
        """What the last block returns, before the final norm: `forward` without `logits`."""
        positions = _default_positions(tokens) if positions is None else positions
        cos_sin = cos_sin_at(positions, self.config.head_dim, self.config.rope_theta)
        x = self.embedding(tokens)
        for index, layer in enumerate(self.layers):
            x = layer(x, cos_sin, partial(attend or attend_causally, index))
        return x

    def logits(self, hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "B T V"]:
        """The final norm and the head. Apply it to the last position only if you need no other."""
        head = self.embedding if self.config.tie_embeddings else self.head
        return F.linear(self.norm(hidden), head.weight)

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights, and so of keys and values."""
        return self.embedding.weight.dtype

    def save(self, path: str | Path) -> None:
        """Write weights and config to one safetensors file."""
        tensors = {name: value.contiguous() for name, value in self.state_dict().items()}
        save_file(tensors, path, metadata={"config": json.dumps(asdict(self.config))})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read what `save` wrote, in the dtype it was saved in. The file is memory-mapped: a
        weight is read from disk when it is first used.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file has no config in its metadata.
        """
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        if "config" not in metadata:
            raise ValueError(f"path: {path} has no Llama config in its metadata; not from save()?")
        model = cls(LlamaConfig(**json.loads(metadata["config"])), seed=None)
        model.load_state_dict(load_file(path), assign=True)
        return model


@torch.no_grad()
def draw_weights(model: nn.Module, seed: int) -> None:
    """Matrices from N(0, 1/inputs), norms 1; no global random state is read or changed."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # the norms' weights
            parameter.fill_(1.0)
        else:
            inputs = parameter.shape[1]  # a matrix is [outputs, inputs]
            parameter.normal_(0.0, inputs**-0.5, generator=generator)


def _default_positions(tokens: Int[Tensor, "B T"]) -> Int[Tensor, "1 T"]:
    return torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0)
