"""A loop over the KV heads; each serves its neighbouring query heads. torch.einsum, no einops."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, rotate


def rope_angles(
    positions: Int[Tensor, "B T"], head_dim: int, theta: float = 10_000.0
) -> Float[Tensor, "B T half"]:
    i = torch.arange(head_dim // 2, dtype=torch.float32)
    frequency = torch.exp(-2 * i / head_dim * math.log(theta))
    return positions.float().unsqueeze(2) * frequency


def causal_mask(
    num_queries: int,
    num_keys: int,
    kv_lengths: Int[Tensor, "B"] | None = None,
    num_tokens: Int[Tensor, "B"] | None = None,
) -> Bool[Tensor, "B T S"]:
    if kv_lengths is None:
        kv_lengths = torch.tensor([num_keys])
    if num_tokens is None:
        num_tokens = torch.tensor([num_queries])
    last = kv_lengths[:, None] - num_tokens[:, None] + torch.arange(num_queries)[None]
    is_real = torch.arange(num_queries) < num_tokens[:, None]  # padding sees nothing here
    is_held = torch.arange(num_keys) < kv_lengths[:, None]
    not_later = torch.arange(num_keys) <= last[:, :, None]
    return not_later & is_held[:, None, :] & is_real[:, :, None]


def grouped_query_attention(
    q: Float[Tensor, "B N T H"],
    k: Float[Tensor, "B K S H"],
    v: Float[Tensor, "B K S H"],
    kv_lengths: Int[Tensor, "B"] | None = None,
    num_tokens: Int[Tensor, "B"] | None = None,
) -> Float[Tensor, "B N T H"]:
    num_heads, num_kv_heads = q.shape[1], k.shape[1]
    if num_heads % num_kv_heads != 0:
        raise ValueError(f"{num_heads} heads, {num_kv_heads} KV heads: not a multiple")
    per_kv = num_heads // num_kv_heads
    dtype = q.dtype if q.dtype == torch.float64 else torch.float32
    mask = causal_mask(q.shape[2], k.shape[2], kv_lengths, num_tokens).unsqueeze(1)
    outputs = []
    for head in range(num_kv_heads):
        queries = q[:, head * per_kv : (head + 1) * per_kv].to(dtype)
        keys, values = k[:, head].to(dtype), v[:, head].to(dtype)
        scores = torch.einsum("bgth,bsh->bgts", queries, keys) / math.sqrt(q.shape[-1])
        scores = torch.where(mask, scores, -math.inf)
        weights = torch.nan_to_num(torch.softmax(scores, dim=-1))
        outputs.append(torch.einsum("bgts,bsh->bgth", weights, values))
    return torch.cat(outputs, dim=1).to(q.dtype)


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
        batch, seq, _ = x.shape
        q = self.q_proj(x).reshape(batch, seq, -1, self.head_dim).permute(0, 2, 1, 3)
        k = self.k_proj(x).reshape(batch, seq, -1, self.head_dim).permute(0, 2, 1, 3)
        v = self.v_proj(x).reshape(batch, seq, -1, self.head_dim).permute(0, 2, 1, 3)
        if cache is not None:
            angles = rope_angles(cache.positions(seq), self.head_dim, self.rope_theta)
            cache.append(rotate(k, angles), v, num_tokens)
            k, v = cache.keys_values()
            out = grouped_query_attention(rotate(q, angles), k, v, cache.lengths, num_tokens)
        else:
            positions = torch.arange(seq).repeat(batch, 1)
            angles = rope_angles(positions, self.head_dim, self.rope_theta)
            out = grouped_query_attention(rotate(q, angles), rotate(k, angles), v)
        return self.o_proj(out.permute(0, 2, 1, 3).reshape(batch, seq, -1))


def pool_kv_heads(
    weight: Float[Tensor, "KH D"], num_kv_heads: int, new_num_kv_heads: int
) -> Float[Tensor, "GH D"]:
    rows, width = weight.shape
    if rows % num_kv_heads != 0 or num_kv_heads % new_num_kv_heads != 0:
        raise ValueError(f"{rows} rows, {num_kv_heads} heads, {new_num_kv_heads} wanted")
    heads = weight.reshape(num_kv_heads, rows // num_kv_heads, width)
    groups = heads.chunk(new_num_kv_heads)
    return torch.cat([group.mean(dim=0) for group in groups])
