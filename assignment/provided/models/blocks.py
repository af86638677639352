"""The parts of a Llama: its sizes, and one block of norm, attention, norm and MLP."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .rotary import turn


@dataclass(frozen=True)
class AttentionLayer:
    """What one layer's attention keeps of the past. By default: all keys and values ("full").

    window: it sees and keeps the last `window` tokens only, its own included ("local").
    latent_dim, rope_dim: instead of keys and values it keeps latent_dim + rope_dim numbers a token,
        for all heads together ("latent": multi-head latent attention).
    reads: it keeps nothing, and reads what this earlier layer keeps, through the same window
        ("shared": cross-layer attention).

    Raises:
        ValueError: if these do not go together, or a size is below 1.
    """

    window: int | None = None
    latent_dim: int | None = None
    rope_dim: int | None = None
    reads: int | None = None

    def __post_init__(self) -> None:
        for name in ("window", "latent_dim", "rope_dim"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: expected at least 1, got {value}")
        latent = (self.latent_dim, self.rope_dim)
        if (latent[0] is None) != (latent[1] is None):
            raise ValueError(f"latent_dim, rope_dim: expected both or neither, got {latent}")
        if self.rope_dim is not None and self.rope_dim % 2:
            raise ValueError(f"rope_dim must be even for the rotation, got {self.rope_dim}")
        chosen = [self.window is not None, latent[0] is not None, self.reads is not None]
        if sum(chosen) > 1:
            raise ValueError(f"expected a window, or latents, or a layer to read, got {self}")

    @property
    def kind(self) -> str:
        """ "full", "local", "latent" or "shared"."""
        if self.reads is not None:
            return "shared"
        if self.latent_dim is not None:
            return "latent"
        return "full" if self.window is None else "local"


@dataclass(frozen=True)
class LlamaConfig:
    """The sizes of a Llama. In the letters of the course: V, L, D, N, K, H, F.

    attention: one `AttentionLayer` per layer; none at all means that every layer is full.
    """

    vocab_size: int
    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    d_ff: int
    rope_theta: float = 10_000.0
    norm_eps: float = 1e-5
    tie_embeddings: bool = True
    attention: tuple[AttentionLayer, ...] = ()

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads ({self.num_heads}) must be a multiple of "
                f"num_kv_heads ({self.num_kv_heads})"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for the rotation, got {self.head_dim}")
        # A list of dicts is what a file has in this place.
        layers = tuple(
            x if isinstance(x, AttentionLayer) else AttentionLayer(**x) for x in self.attention
        )
        object.__setattr__(self, "attention", layers)
        if layers and len(layers) != self.num_layers:
            raise ValueError(
                f"attention: expected one for each of {self.num_layers} layers, got {len(layers)}"
            )
        for index, layer in enumerate(layers):
            if layer.reads is None:
                continue
            if not 0 <= layer.reads < index or layers[layer.reads].kind not in ("full", "local"):
                raise ValueError(
                    f"attention[{index}]: it must read an earlier layer that keeps keys and "
                    f"values, got reads = {layer.reads}"
                )

    @property
    def attention_layers(self) -> tuple[AttentionLayer, ...]:
        """`attention`, written out where every layer is full."""
        return self.attention or (AttentionLayer(),) * self.num_layers


class Linear(nn.Linear):
    """No bias, and no initial values: those come from a seed or a file."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs, bias=False)

    def reset_parameters(self) -> None:
        """Leave the memory as it is; nothing touches it before the weights arrive."""


class Embedding(nn.Embedding):
    """A table of vectors without initial values, as `Linear`."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class RMSNorm(nn.Module):
    """x / √(mean(x²) + ε) · weight, with the mean taken in float32 whatever the dtype of x."""

    def __init__(self, dim: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Float[Tensor, "... D"]) -> Float[Tensor, "... D"]:
        wide = x if x.dtype == torch.float64 else x.float()
        return F.rms_norm(wide, self.weight.shape, eps=self.eps).to(x.dtype) * self.weight


class Attention(nn.Module):
    """Projections and rotation; `attend` does the reading."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        width, query_width = config.d_model, config.num_heads * config.head_dim
        kv_width = config.num_kv_heads * config.head_dim
        self.head_dim = config.head_dim
        self.q_proj = Linear(width, query_width)
        self.k_proj = Linear(width, kv_width)
        self.v_proj = Linear(width, kv_width)
        self.o_proj = Linear(query_width, width)

    def forward(
        self, x: Float[Tensor, "B T D"], cos_sin: tuple[Tensor, Tensor], attend: Callable
    ) -> Float[Tensor, "B T D"]:
        q, k = self._heads(self.q_proj(x)), self._heads(self.k_proj(x))
        heads = [q.shape[1], k.shape[1]]
        q, k = turn(torch.cat([q, k], dim=1), *cos_sin).split(heads, dim=1)
        out = attend(q, k, self._heads(self.v_proj(x)))
        if out.shape != q.shape:
            raise ValueError(
                f"attend: expected a result of the queries' shape {list(q.shape)} "
                f"[batch, heads, seq, head_dim], got {list(out.shape)}"
            )
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def _heads(self, x: Float[Tensor, "B T width"]) -> Float[Tensor, "B heads T H"]:
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) ⊙ up(x)). Source: Shazeer, https://arxiv.org/abs/2002.05202."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.gate_proj = Linear(config.d_model, config.d_ff)
        self.up_proj = Linear(config.d_model, config.d_ff)
        self.down_proj = Linear(config.d_ff, config.d_model)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One block: x + attention(norm(x)), then x + mlp(norm(x))."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.attention_norm = RMSNorm(config.d_model, config.norm_eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.d_model, config.norm_eps)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cos_sin: tuple[Tensor, Tensor], attend: Callable) -> Tensor:
        x = x + self.attention(self.attention_norm(x), cos_sin, attend)
        return x + self.mlp(self.mlp_norm(x))
