"""torch's own kernel for both forms: absorbed, the latents are its keys and its values, and the
rotary scores are the mask that it adds."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import rotate


def _visible(shape: tuple[int, int, int], query_positions: Tensor | None) -> Bool[Tensor, "B T S"]:
    rows, new, held = shape
    if query_positions is None:
        mask = torch.ones(new, held, dtype=torch.bool).tril(diagonal=held - new)
        return mask.expand(rows, new, held)
    return torch.arange(held).expand(rows, new, held) < query_positions[:, :, None] + 1


def materialised_attention(
    q_nope: Float[Tensor, "B N T P"],
    q_rope: Float[Tensor, "B N T R"],
    latent: Float[Tensor, "B S C"],
    k_rope: Float[Tensor, "B S R"],
    k_up: Float[Tensor, "N P C"],
    v_up: Float[Tensor, "N E C"],
    query_positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B N T E"]:
    rows, heads, new, _ = q_nope.shape
    held = latent.shape[1]
    mask = _visible((rows, new, held), query_positions)[:, None]
    wide = [x.float() for x in (q_nope, q_rope, latent, k_rope, k_up, v_up)]
    q_nope32, q_rope32, latent, k_rope, k_up, v_up = wide
    k = torch.einsum("bsc,npc->bnsp", latent, k_up)
    v = torch.einsum("bsc,nec->bnse", latent, v_up)
    k = torch.cat([k, k_rope[:, None].expand(-1, heads, -1, -1)], dim=-1)
    q = torch.cat([q_nope32, q_rope32], dim=-1)
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    blind = ~mask.any(dim=-1, keepdim=True)
    return out.masked_fill(blind, 0).to(q_nope.dtype)


def absorbed_attention(
    q_nope: Float[Tensor, "B N T P"],
    q_rope: Float[Tensor, "B N T R"],
    latent: Float[Tensor, "B S C"],
    k_rope: Float[Tensor, "B S R"],
    k_up: Float[Tensor, "N P C"],
    v_up: Float[Tensor, "N E C"],
    query_positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B N T E"]:
    rows, heads, new, nope = q_nope.shape
    held, rope = k_rope.shape[1:]
    dtype = q_nope.dtype
    q_nope, q_rope, latent, k_rope, k_up, v_up = (
        x.float() for x in (q_nope, q_rope, latent, k_rope, k_up, v_up)
    )
    mask = _visible((rows, new, held), query_positions)[:, None]
    absorbed = torch.einsum("bntp,npc->bntc", q_nope, k_up).reshape(rows, heads * new, -1)
    rotary = torch.bmm(q_rope.reshape(rows, heads * new, rope), k_rope.mT)
    scale = 1 / (nope + rope) ** 0.5
    hidden = ~mask.expand(rows, heads, new, held).reshape(rows, 1, heads * new, held)
    bias = (rotary * scale)[:, None].masked_fill(hidden, -torch.inf)
    keys = latent[:, None]  # and values: the kernel goes over them once
    mixed = F.scaled_dot_product_attention(
        absorbed[:, None], keys, keys, attn_mask=bias, scale=scale
    )
    mixed = mixed.masked_fill(hidden.all(dim=-1, keepdim=True), 0).reshape(rows, heads, new, -1)
    return torch.einsum("bntc,nec->bnte", mixed, v_up).to(dtype)


class LatentCache:
    """All rows behind each other in one matrix: slot s of row b is line b · capacity + s."""

    def __init__(
        self,
        batch_size: int,
        capacity: int,
        latent_dim: int,
        rope_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.capacity = capacity
        self.latent = torch.zeros(batch_size * capacity, latent_dim, dtype=dtype)
        self.k_rope = torch.zeros(batch_size * capacity, rope_dim, dtype=dtype)
        self.start = torch.arange(batch_size) * capacity
        self.end = self.start.clone()

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.end - self.start

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return self.lengths[:, None] + torch.arange(num_new)[None]

    def append(
        self,
        latent: Float[Tensor, "B T C"],
        k_rope: Float[Tensor, "B T R"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        width = latent.shape[1]
        if num_tokens is None:
            num_tokens = torch.full((len(self.end),), width)
        wrong = (num_tokens < 0) | (num_tokens > width)
        wrong |= self.lengths + num_tokens > self.capacity
        for row in wrong.nonzero().flatten().tolist():
            raise ValueError(
                f"row {row}: {num_tokens[row]} of {width} columns on {self.lengths[row]} of "
                f"{self.capacity}"
            )
        column = torch.arange(width).expand(len(self.end), width)
        chosen = column < num_tokens[:, None]
        lines = (self.end[:, None] + column)[chosen]
        self.latent.index_copy_(0, lines, latent[chosen])
        self.k_rope.index_copy_(0, lines, k_rope[chosen])
        self.end = self.end + num_tokens

    def latents(self) -> tuple[Float[Tensor, "B S C"], Float[Tensor, "B S R"]]:
        longest = int(self.lengths.max())
        rows = len(self.end)
        latent = self.latent.view(rows, self.capacity, -1)[:, :longest]
        return latent, self.k_rope.view(rows, self.capacity, -1)[:, :longest]

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        if not bool(((lengths >= 0) & (lengths <= self.lengths)).all()):
            raise ValueError(f"lengths {lengths.tolist()}, held {self.lengths.tolist()}")
        self.end = self.start + lengths


class LatentAttention(nn.Module):
    def __init__(
        self,
        d_model: int,
        num_heads: int,
        latent_dim: int,
        nope_dim: int,
        rope_dim: int,
        v_dim: int,
        rope_theta: float = 10_000.0,
    ) -> None:
        super().__init__()
        self.sizes = (nope_dim, rope_dim)
        self.num_heads, self.rope_theta, self.latent_dim = num_heads, rope_theta, latent_dim
        self.q_proj = nn.Linear(d_model, num_heads * (nope_dim + rope_dim), bias=False)
        self.kv_down = nn.Linear(d_model, latent_dim, bias=False)
        self.k_rope_proj = nn.Linear(d_model, rope_dim, bias=False)
        self.k_up = nn.Linear(latent_dim, num_heads * nope_dim, bias=False)
        self.v_up = nn.Linear(latent_dim, num_heads * v_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * v_dim, d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: LatentCache | None = None,
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        rows, new, _ = x.shape
        whole = cache is None
        if cache is None:
            cache = LatentCache(rows, new, self.latent_dim, self.sizes[1], x.dtype)
        positions = cache.positions(new)
        pair = torch.arange(self.sizes[1] // 2, dtype=torch.float32)
        angles = positions[:, :, None].float() * self.rope_theta ** (-2 * pair / self.sizes[1])
        q = self.q_proj(x).unflatten(2, (self.num_heads, sum(self.sizes))).transpose(1, 2)
        q_nope, q_rope = q.split(self.sizes, dim=3)
        k_rope = rotate(self.k_rope_proj(x)[:, None], angles)[:, 0]
        cache.append(self.kv_down(x), k_rope, num_tokens)
        latent, k_rope = cache.latents()
        up = [w.weight.unflatten(0, (self.num_heads, -1)) for w in (self.k_up, self.v_up)]
        attend = materialised_attention if whole else absorbed_attention
        out = attend(q_nope, rotate(q_rope, angles), latent, k_rope, *up, positions)
        return self.o_proj(out.transpose(1, 2).flatten(2))
