"""torch's own kernel with enable_gqa; a fresh GrowingCache stands in where none is given."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import GrowingCache, LayerCache, rotate


def rope_angles(
    positions: Int[Tensor, "B T"], head_dim: int, theta: float = 10_000.0
) -> Float[Tensor, "B T half"]:
    pairs = torch.arange(head_dim // 2)
    inverse = 1.0 / (theta ** (2 * pairs.float() / head_dim))
    return torch.einsum("bt,i->bti", positions.float(), inverse)


def causal_mask(
    num_queries: int,
    num_keys: int,
    kv_lengths: Int[Tensor, "B"] | None = None,
    num_tokens: Int[Tensor, "B"] | None = None,
) -> Bool[Tensor, "B T S"]:
    if kv_lengths is None and num_tokens is None:
        square = torch.ones(1, num_queries, num_keys, dtype=torch.bool)
        return square.tril(diagonal=num_keys - num_queries)
    if kv_lengths is None:
        kv_lengths = torch.full_like(num_tokens, num_keys)
    if num_tokens is None:
        num_tokens = torch.full_like(kv_lengths, num_queries)
    masks = []
    for held, new in zip(kv_lengths.tolist(), num_tokens.tolist(), strict=True):
        mask = torch.ones(num_queries, num_keys, dtype=torch.bool).tril(diagonal=held - new)
        mask[:, held:] = False
        masks.append(mask)
    return torch.stack(masks)


def grouped_query_attention(
    q: Float[Tensor, "B N T H"],
    k: Float[Tensor, "B K S H"],
    v: Float[Tensor, "B K S H"],
    kv_lengths: Int[Tensor, "B"] | None = None,
    num_tokens: Int[Tensor, "B"] | None = None,
) -> Float[Tensor, "B N T H"]:
    if q.shape[1] % k.shape[1] != 0:
        raise ValueError(f"num_heads {q.shape[1]} is no multiple of num_kv_heads {k.shape[1]}")
    mask = causal_mask(q.shape[2], k.shape[2], kv_lengths, num_tokens)[:, None]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return out.masked_fill(~mask.any(dim=-1, keepdim=True), 0)


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
        if cache is None:
            cache, num_tokens = GrowingCache(x.shape[0]), None
        q, k, v = self._heads(self.q_proj(x)), self._heads(self.k_proj(x)), self.v_proj(x)
        angles = rope_angles(cache.positions(x.shape[1]), self.head_dim, self.rope_theta)
        cache.append(rotate(k, angles), self._heads(v), num_tokens)
        k, v = cache.keys_values()
        out = grouped_query_attention(rotate(q, angles), k, v, cache.lengths, num_tokens)
        return self.o_proj(out.transpose(1, 2).flatten(start_dim=2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


def pool_kv_heads(
    weight: Float[Tensor, "KH D"], num_kv_heads: int, new_num_kv_heads: int
) -> Float[Tensor, "GH D"]:
    if num_kv_heads % new_num_kv_heads or weight.shape[0] % num_kv_heads:
        raise ValueError(f"{weight.shape[0]} rows, {num_kv_heads} heads into {new_num_kv_heads}")
    merged = num_kv_heads // new_num_kv_heads
    heads = weight.unflatten(0, (new_num_kv_heads, merged, -1))
    return heads.mean(dim=1).flatten(0, 1)
