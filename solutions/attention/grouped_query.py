"""Attention with fewer KV heads than query heads: a smaller cache, and fewer bytes read per token.

A decode step reads every key and value once, for one query each: it waits for memory. Let N / K
query heads share a KV head, and a byte read serves N / K times as many FLOPs, from a cache that is
K / N of the size. N = K is multi-head attention, K = 1 multi-query attention: one function for all.

Ainslie et al., "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head
Checkpoints", 2023, arXiv:2305.13245. Rotary positions: Su et al., "RoFormer: Enhanced Transformer
with Rotary Position Embedding", 2021, arXiv:2104.09864.

Axes: B batch, N query heads, K KV heads, T new tokens (queries), S tokens to attend to, H head dim,
D model width.
"""

import math

import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, rotate


def rope_angles(
    positions: Int[Tensor, "B T"], head_dim: int, theta: float = 10_000.0
) -> Float[Tensor, "B T half"]:
    """Rotary angles in radians: angles[b, t, i] = positions[b, t] · theta^(−2i / head_dim).

    i = 0 … head_dim / 2 − 1: dimensions i and i + head_dim / 2 of a head turn together by angle i
    (`assignment.provided.models.rotate` turns them). Always float32, whatever the model's dtype:
    bfloat16 has 8 significant bits, so positions 256 and 257 would coincide. 2–3 lines.
    """
    # BEGIN SOLUTION
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    return positions[:, :, None].float() * theta**-exponents
    # END SOLUTION


def causal_mask(
    num_queries: int,
    num_keys: int,
    kv_lengths: Int[Tensor, "B"] | None = None,
    num_tokens: Int[Tensor, "B"] | None = None,
) -> Bool[Tensor, "B T S"]:
    """Which keys each query may see: True = visible. Aligned bottom-right, for every row by itself.

    Row b has kv_lengths[b] keys, and its num_tokens[b] queries are the last of those tokens. So
    query t is token number kv_lengths[b] − num_tokens[b] + t of its row, and key j is visible to it
    if j is not later and exists:

        j ≤ kv_lengths[b] − num_tokens[b] + t   and   j < kv_lengths[b]

    Args:
        num_queries, num_keys: T and S, the size of the mask.
        kv_lengths: tokens of each row among the S slots, the new ones included. Default: S.
        num_tokens: tokens of each row among the T queries; a query behind them is padding, and its
            part of the mask may be anything. Default: T.

    Returns:
        One mask a row, or a single one (B = 1) when neither lengths nor numbers are given.

    One query on five keys sees 11111; two see 11110 and 11111; of five queries on two keys the
    first three see nothing. Hint: compare `arange`s by broadcasting. About 6 lines.
    """
    # BEGIN SOLUTION
    kv_lengths = torch.tensor([num_keys]) if kv_lengths is None else kv_lengths
    num_tokens = torch.tensor([num_queries]) if num_tokens is None else num_tokens
    key = torch.arange(num_keys)
    query = torch.arange(num_queries)[:, None]
    own_place = (kv_lengths - num_tokens)[:, None, None] + query
    return (key <= own_place) & (key < kv_lengths[:, None, None])
    # END SOLUTION


def grouped_query_attention(
    q: Float[Tensor, "B N T H"],
    k: Float[Tensor, "B K S H"],
    v: Float[Tensor, "B K S H"],
    kv_lengths: Int[Tensor, "B"] | None = None,
    num_tokens: Int[Tensor, "B"] | None = None,
) -> Float[Tensor, "B N T H"]:
    """Causal attention, softmax(q kᵀ / √H) v, in which query head n reads KV head n // (N / K).

    Args:
        q, k, v: of one dtype; they are not changed.
        kv_lengths, num_tokens: see `causal_mask`, which says who sees what.

    Returns:
        In the dtype of q. A query that sees no key gets zeros; a padding query, anything finite.

    Scores and softmax are float32 at least: near 256 the neighbours in bfloat16 are 2 apart, and a
    score that is off by 1 is a weight that is off by a factor e. Any scores of that range must
    work, also if all visible ones are far below 0.

    K and V are not copied once per query head, not even by a broadcast `@` (which copies, too): a
    decode step should read them once. Slots at or past kv_lengths[b] hold finite numbers.

    Raises:
        ValueError: N is not a multiple of K.

    Hint: give q an axis for the group and let `einsum` keep it apart. About 14 lines.
    """
    # BEGIN SOLUTION
    num_heads, num_kv_heads = q.shape[1], k.shape[1]
    if num_heads % num_kv_heads:
        raise ValueError(
            f"{num_heads} query heads cannot share {num_kv_heads} KV heads evenly: "
            "expected a multiple"
        )
    dtype = torch.promote_types(q.dtype, torch.float32)
    scale = 1 / math.sqrt(q.shape[-1])

    # Query heads that read the same KV head are neighbours: n = k · (N / K) + g.
    grouped = rearrange(q.to(dtype) * scale, "b (k g) t h -> b k g t h", k=num_kv_heads)
    scores = einsum(grouped, k.to(dtype), "b k g t h, b k s h -> b k g t s")

    visible = causal_mask(q.shape[2], k.shape[2], kv_lengths, num_tokens)
    visible = rearrange(visible, "b t s -> b 1 1 t s")
    weights = scores.masked_fill(~visible, -math.inf).softmax(dim=-1)
    weights = weights.masked_fill(~visible, 0)  # a query that sees nothing: softmax gave 0 / 0

    out = einsum(weights, v.to(dtype), "b k g t s, b k s h -> b k g t h")
    return rearrange(out, "b k g t h -> b (k g) t h").to(q.dtype)
    # END SOLUTION


class GroupedQueryAttention(nn.Module):
    """The attention layer of a Llama: project, rotate, append to the cache, attend, project."""

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
        """Attend from each of the T new tokens to itself and all tokens before it.

        A projection's output holds its heads one after the other, H numbers each. With a cache, the
        T tokens of row b come behind the cache.lengths[b] tokens it holds, at `cache.positions(T)`;
        their keys, rotated, and values are appended, and the queries see all that is held. Without
        one, x is the whole sequence, from position 0. Only the first num_tokens[b] tokens of row b
        are real (default: all); the output of the others may be anything finite.

        A sequence gives the same output in one pass, in chunks, or token by token. About 18 lines.
        """
        # BEGIN SOLUTION
        q, k, v = (
            rearrange(project(x), "b t (heads h) -> b heads t h", h=self.head_dim)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )

        batch, num_new = x.shape[:2]
        if cache is None:
            positions = torch.arange(num_new).expand(batch, -1)
        else:
            positions = cache.positions(num_new)
        angles = rope_angles(positions, self.head_dim, self.rope_theta)
        q, k = rotate(q, angles), rotate(k, angles)

        if cache is None:  # padding stands behind the real tokens, which only look back
            out = grouped_query_attention(q, k, v)
        else:
            cache.append(k, v, num_tokens)
            out = grouped_query_attention(q, *cache.keys_values(), cache.lengths, num_tokens)
        return self.o_proj(rearrange(out, "b heads t h -> b t (heads h)"))
        # END SOLUTION


def pool_kv_heads(
    weight: Float[Tensor, "KH D"], num_kv_heads: int, new_num_kv_heads: int
) -> Float[Tensor, "GH D"]:
    """Merge the KV heads of a key or value projection into fewer, by the mean of neighbours.

    `weight` is that of `k_proj` or `v_proj`: num_kv_heads blocks of head_dim rows. New head g is
    the mean of the num_kv_heads / new_num_kv_heads old heads that its query heads read before. That
    starts nearer to the old model than one head picked from each group does; a little training
    follows (GQA paper, §2.1).

    Raises:
        ValueError: num_kv_heads does not divide the rows of `weight`, or new_num_kv_heads does not
            divide num_kv_heads.

    Hint: one `einops.reduce`.
    """
    # BEGIN SOLUTION
    if weight.shape[0] % num_kv_heads:
        raise ValueError(f"{weight.shape[0]} rows of weight are not {num_kv_heads} equal heads")
    if num_kv_heads % new_num_kv_heads:
        raise ValueError(f"{num_kv_heads} KV heads do not pool evenly into {new_num_kv_heads}")
    merged = num_kv_heads // new_num_kv_heads
    return reduce(weight, "(g m h) d -> (g h) d", "mean", g=new_num_kv_heads, m=merged)
    # END SOLUTION
