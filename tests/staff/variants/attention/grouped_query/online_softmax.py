"""Keys in chunks with a running maximum and sum, as FlashAttention goes over them; here two."""

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, rotate


def rope_angles(
    positions: Int[Tensor, "B T"], head_dim: int, theta: float = 10_000.0
) -> Float[Tensor, "B T half"]:
    frequencies = torch.tensor([theta ** (-2 * i / head_dim) for i in range(head_dim // 2)])
    return positions.to(torch.float32)[..., None] * frequencies[None, None]


def causal_mask(
    num_queries: int,
    num_keys: int,
    kv_lengths: Int[Tensor, "B"] | None = None,
    num_tokens: Int[Tensor, "B"] | None = None,
) -> Bool[Tensor, "B T S"]:
    rows = max([1, *(len(x) for x in (kv_lengths, num_tokens) if x is not None)])
    kv_lengths = torch.full((rows,), num_keys) if kv_lengths is None else kv_lengths
    num_tokens = torch.full((rows,), num_queries) if num_tokens is None else num_tokens
    key = torch.arange(num_keys).expand(rows, num_queries, num_keys)
    # How many keys each query sees; a padding query never more than there are.
    seen = (kv_lengths - num_tokens)[:, None] + torch.arange(1, num_queries + 1)
    seen = torch.minimum(seen, kv_lengths[:, None])
    return key < seen[:, :, None]


def grouped_query_attention(
    q: Float[Tensor, "B N T H"],
    k: Float[Tensor, "B K S H"],
    v: Float[Tensor, "B K S H"],
    kv_lengths: Int[Tensor, "B"] | None = None,
    num_tokens: Int[Tensor, "B"] | None = None,
) -> Float[Tensor, "B N T H"]:
    if q.shape[1] % k.shape[1] > 0:
        raise ValueError(f"N = {q.shape[1]} is not a multiple of K = {k.shape[1]}")
    wide = torch.promote_types(q.dtype, torch.float32)
    mask = causal_mask(q.shape[2], k.shape[2], kv_lengths, num_tokens)
    q_groups = rearrange(q.to(wide), "b (k g) t h -> b k g t h", k=k.shape[1]) * q.shape[-1] ** -0.5

    out = torch.zeros_like(q_groups)
    total = torch.zeros_like(q_groups[..., :1])
    top = torch.full_like(total, -torch.inf)
    chunk = max(1, (k.shape[2] + 1) // 2)
    for start in range(0, k.shape[2], chunk):
        part = slice(start, start + chunk)
        scores = einsum(q_groups, k[:, :, part].to(wide), "b k g t h, b k s h -> b k g t s")
        scores = scores.masked_fill(~mask[:, None, None, :, part], -torch.inf)
        new_top = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
        shift = torch.where(new_top.isinf(), 0, new_top)  # nothing seen yet: exp(−inf − 0) = 0
        weights, faded = (scores - shift).exp(), (top - shift).exp()
        read = einsum(weights, v[:, :, part].to(wide), "b k g t s, b k s h -> b k g t h")
        out = out * faded + read
        total = total * faded + weights.sum(dim=-1, keepdim=True)
        top = new_top
    out = torch.where(total > 0, out / total, 0)
    return rearrange(out, "b k g t h -> b (k g) t h").to(q.dtype)


class GroupedQueryAttention(nn.Module):
    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        rope_theta: float = 10_000.0,
    ) -> None:
        super().__init__()
        self.head_dim, self.rope_theta = head_dim, rope_theta
        self.q_proj = nn.Linear(d_model, num_heads * head_dim, bias=False)
        self.k_proj = nn.Linear(d_model, num_kv_heads * head_dim, bias=False)
        self.v_proj = nn.Linear(d_model, num_kv_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * head_dim, d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: LayerCache | None = None,
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        q, k, v = (
            rearrange(layer(x), "b t (n h) -> b n t h", h=self.head_dim)
            for layer in [self.q_proj, self.k_proj, self.v_proj]
        )
        if cache is None:
            positions = torch.arange(x.shape[1])[None]  # one row of angles serves all
            lengths = num_tokens = None
        else:
            positions = cache.positions(x.shape[1])
            lengths = cache.lengths + (x.shape[1] if num_tokens is None else num_tokens)
        angles = rope_angles(positions, self.head_dim, self.rope_theta)
        q, k = (rotate(heads, angles) for heads in (q, k))
        if cache is not None:
            cache.append(k, v, num_tokens)
            k, v = cache.keys_values()
        out = grouped_query_attention(q, k, v, lengths, num_tokens)
        merged = rearrange(out, "b n t h -> b t (n h)")
        return self.o_proj(merged)


def pool_kv_heads(
    weight: Float[Tensor, "KH D"], num_kv_heads: int, new_num_kv_heads: int
) -> Float[Tensor, "GH D"]:
    if weight.shape[0] % num_kv_heads != 0:
        raise ValueError(f"weight has {weight.shape[0]} rows, no multiple of {num_kv_heads}")
    if num_kv_heads % new_num_kv_heads != 0:
        raise ValueError(f"{new_num_kv_heads} does not divide {num_kv_heads}")
    heads = rearrange(weight, "(k h) d -> k (h d)", k=num_kv_heads)
    # As a matrix: row g has K / G entries of G / K.
    average = torch.eye(new_num_kv_heads).repeat_interleave(num_kv_heads // new_num_kv_heads, 1)
    average = average * new_num_kv_heads / num_kv_heads
    pooled = average.to(weight.dtype) @ heads
    return rearrange(pooled, "g (h d) -> (g h) d", d=weight.shape[1])
