"""What `attention.latent` is checked against: one head and one token at a time, in float64."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from assignment.provided.models import LayeredLlama, LlamaConfig
from tests.attention.oracles import rope_angles, rotate


def attention(
    q_nope: Tensor,
    q_rope: Tensor,
    latent: Tensor,
    k_rope: Tensor,
    k_up: Tensor,
    v_up: Tensor,
    query_positions: Tensor | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tensor:
    """Each query against the whole keys, [nope | rope], of the tokens that it sees, in `dtype`."""
    parts = (q_nope, q_rope, latent, k_rope, k_up, v_up)
    q_nope, q_rope, latent, k_rope, k_up, v_up = (x.to(dtype) for x in parts)
    rows, heads, num_queries, _ = q_nope.shape
    num_keys = latent.shape[1]
    outputs = []
    for row, head, query in itertools.product(range(rows), range(heads), range(num_queries)):
        if query_positions is None:
            last = num_keys - num_queries + query
        else:
            last = int(query_positions[row, query])
        seen = latent[row, : max(0, last + 1)]
        keys = torch.cat([seen @ k_up[head].T, k_rope[row, : len(seen)]], dim=1)
        q = torch.cat([q_nope[row, head, query], q_rope[row, head, query]])
        weights = torch.softmax(keys @ q / math.sqrt(len(q)), dim=0)
        outputs.append(weights @ (seen @ v_up[head].T))  # of nothing seen: zeros
    return torch.stack(outputs).reshape(rows, heads, num_queries, -1)


def layer(x: Tensor, weights: dict[str, Tensor], sizes, theta: float, dtype: torch.dtype) -> Tensor:
    """Whole sequences through a latent layer; every step's result rounded to `dtype`.

    `weights` is the layer's state_dict; `sizes` has heads and nope.
    """
    x, weights = x.to(dtype), {name: weight.to(dtype) for name, weight in weights.items()}
    q = (x @ weights["q_proj.weight"].T).unflatten(2, (sizes.heads, -1)).transpose(1, 2)
    q_rope = _rotated(q[..., sizes.nope :], theta)
    k_up, v_up = (weights[f"{name}_up.weight"].unflatten(0, (sizes.heads, -1)) for name in "kv")
    parts = (q[..., : sizes.nope], q_rope, *cached(x, weights, theta, dtype), k_up, v_up)
    out = attention(*parts, dtype=torch.promote_types(dtype, torch.float32)).to(dtype)
    return out.transpose(1, 2).flatten(2) @ weights["o_proj.weight"].T


def cached(
    x: Tensor, weights: dict[str, Tensor], theta: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The latents and the rotated rotary keys of whole sequences."""
    latent, k_rope = (
        x.to(dtype) @ weights[f"{name}.weight"].to(dtype).T for name in ("kv_down", "k_rope_proj")
    )
    return latent, _rotated(k_rope[:, None], theta)[:, 0]


def _rotated(x: Tensor, theta: float) -> Tensor:
    """[B, heads, T, R], from position 0 on."""
    positions = torch.arange(x.shape[2])[None].expand(len(x), -1)
    wide = torch.promote_types(x.dtype, torch.float32)
    return rotate(x, rope_angles(positions, x.shape[3], theta, wide)).to(x.dtype)


def layer_gradient(
    x: Tensor, weights: dict[str, Tensor], sizes, theta: float, cotangent: Tensor, dtype
) -> Tensor:
    """∂ Σ layer(x) · cotangent / ∂ x."""
    leaf = x.to(dtype).requires_grad_()
    value = layer(leaf, weights, sizes, theta, dtype)
    return torch.autograd.grad(value, leaf, cotangent.to(dtype))[0]


def model(config: LlamaConfig, seed: int) -> LayeredLlama:
    """A model of such layers; it knows no cache."""
    return LayeredLlama(config, {"latent": Layer}, seed)


class Layer(nn.Module):
    """`layer` as a module."""

    def __init__(self, d_model, num_heads, latent_dim, nope_dim, rope_dim, v_dim, rope_theta):
        super().__init__()
        self.heads, self.nope, self.theta = num_heads, nope_dim, rope_theta
        self.q_proj = nn.Linear(d_model, num_heads * (nope_dim + rope_dim), bias=False)
        self.kv_down = nn.Linear(d_model, latent_dim, bias=False)
        self.k_rope_proj = nn.Linear(d_model, rope_dim, bias=False)
        self.k_up = nn.Linear(latent_dim, num_heads * nope_dim, bias=False)
        self.v_up = nn.Linear(latent_dim, num_heads * v_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * v_dim, d_model, bias=False)

    def forward(self, x: Tensor, cache: None, num_tokens: None) -> Tensor:
        return layer(x, self.state_dict(), self, self.theta, x.dtype)


class Cache:
    """For each row, the latents and the rotary keys of its tokens."""

    def __init__(self, batch_size: int, latent_dim: int, rope_dim: int, dtype: torch.dtype):
        self.latent = [torch.zeros(0, latent_dim, dtype=dtype)] * batch_size
        self.k_rope = [torch.zeros(0, rope_dim, dtype=dtype)] * batch_size

    @property
    def lengths(self) -> Tensor:
        return torch.tensor([len(row) for row in self.latent])

    def append(self, latent: Tensor, k_rope: Tensor, num_tokens: Tensor | None = None) -> None:
        counts = [latent.shape[1]] * len(latent) if num_tokens is None else num_tokens.tolist()
        for row, new in enumerate(counts):
            self.latent[row] = torch.cat([self.latent[row], latent[row, :new]])
            self.k_rope[row] = torch.cat([self.k_rope[row], k_rope[row, :new]])

    def truncate(self, lengths: Tensor) -> None:
        self.latent = [row[:n] for row, n in zip(self.latent, lengths.tolist(), strict=True)]
        self.k_rope = [row[:n] for row, n in zip(self.k_rope, lengths.tolist(), strict=True)]
