"""Query heads of a group stacked as further queries of their KV head: two plain batched matmuls."""

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, rotate


def rope_angles(
    positions: Int[Tensor, "B T"], head_dim: int, theta: float = 10_000.0
) -> Float[Tensor, "B T half"]:
    steps = torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim
    return (positions.double().unsqueeze(-1) / theta**steps).float()


def causal_mask(
    num_queries: int,
    num_keys: int,
    kv_lengths: Int[Tensor, "B"] | None = None,
    num_tokens: Int[Tensor, "B"] | None = None,
) -> Bool[Tensor, "B T S"]:
    held = num_keys if kv_lengths is None else kv_lengths.view(-1, 1, 1)
    new = num_queries if num_tokens is None else num_tokens.view(-1, 1, 1)
    query = torch.arange(num_queries).view(1, -1, 1) + held - new
    key = torch.arange(num_keys).view(1, 1, -1)
    return torch.logical_and(query >= key, key < held)


def grouped_query_attention(
    q: Float[Tensor, "B N T H"],
    k: Float[Tensor, "B K S H"],
    v: Float[Tensor, "B K S H"],
    kv_lengths: Int[Tensor, "B"] | None = None,
    num_tokens: Int[Tensor, "B"] | None = None,
) -> Float[Tensor, "B N T H"]:
    n, t, kv = q.size(1), q.size(2), k.size(1)
    group, rest = divmod(n, kv)
    if rest:
        raise ValueError(f"{n} query heads on {kv} KV heads: {rest} are left over")
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    stacked = rearrange(q, "b (k g) t h -> b k (g t) h", g=group).to(wide)
    scores = stacked @ k.to(wide).mT / q.size(-1) ** 0.5

    hidden = ~causal_mask(t, k.size(2), kv_lengths, num_tokens)
    hidden = hidden.repeat(1, group, 1)[:, None]
    scores.masked_fill_(hidden, float("-inf"))
    # A row of −inf only: its maximum would make NaN of it.
    top = scores.amax(dim=-1, keepdim=True)
    weights = torch.exp(scores - top.masked_fill(top.isinf(), 0))
    total = weights.sum(dim=-1, keepdim=True)
    out = (weights @ v.to(wide)) / total.masked_fill(total == 0, 1)
    return rearrange(out.to(q.dtype), "b k (g t) h -> b (k g) t h", g=group)


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
        batch, new, _ = x.shape
        split = "b t (n h) -> b n t h"
        q = rearrange(self.q_proj(x), split, h=self.head_dim)
        k = rearrange(self.k_proj(x), split, h=self.head_dim)
        v = rearrange(self.v_proj(x), split, h=self.head_dim)

        start = torch.zeros(batch, dtype=torch.int64) if cache is None else cache.lengths
        positions = (start.unsqueeze(1) + torch.arange(new)).expand(batch, new)
        angles = rope_angles(positions, self.head_dim, self.rope_theta)
        q = rotate(q, angles)
        k = rotate(k, angles)

        if cache is None:
            out = grouped_query_attention(q, k, v)
        else:
            counts = torch.full((batch,), new) if num_tokens is None else num_tokens
            cache.append(k, v, counts)
            k, v = cache.keys_values()
            out = grouped_query_attention(q, k, v, kv_lengths=cache.lengths, num_tokens=counts)
        return self.o_proj(rearrange(out, "b n t h -> b t (n h)"))


def pool_kv_heads(
    weight: Float[Tensor, "KH D"], num_kv_heads: int, new_num_kv_heads: int
) -> Float[Tensor, "GH D"]:
    head_dim, rest = divmod(weight.size(0), num_kv_heads)
    merged, left = divmod(num_kv_heads, new_num_kv_heads)
    if rest or left:
        raise ValueError(
            f"cannot pool {weight.size(0)} rows of {num_kv_heads} heads into {new_num_kv_heads}"
        )
    heads = weight.split(head_dim)
    pooled = [sum(heads[i : i + merged]) / merged for i in range(0, num_kv_heads, merged)]
    return torch.cat(pooled)
