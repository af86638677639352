"""Heads folded into the queries; plain matmul. One tensor holds latent and rotary key together."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.models import rotate_at


def _weights(scores: Tensor, query_positions: Tensor | None) -> Tensor:
    new, held = scores.shape[2:]
    if query_positions is None:
        query_positions = torch.arange(new).unsqueeze(0) + held - new
    seen = torch.arange(held) <= query_positions[:, None, :, None]
    filled = torch.where(seen, scores, float("-inf"))
    return torch.nan_to_num(torch.softmax(filled, dim=-1))


def materialised_attention(
    q_nope: Float[Tensor, "B N T P"],
    q_rope: Float[Tensor, "B N T R"],
    latent: Float[Tensor, "B S C"],
    k_rope: Float[Tensor, "B S R"],
    k_up: Float[Tensor, "N P C"],
    v_up: Float[Tensor, "N E C"],
    query_positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B N T E"]:
    dtype = q_nope.dtype
    if dtype != torch.float64:
        q_nope, q_rope, latent, k_rope = (x.float() for x in (q_nope, q_rope, latent, k_rope))
        k_up, v_up = k_up.float(), v_up.float()
    keys = latent[:, None] @ k_up.transpose(1, 2)
    keys = torch.cat([keys, k_rope[:, None].expand(-1, keys.shape[1], -1, -1)], dim=-1)
    q = torch.cat([q_nope, q_rope], dim=-1) * (q_nope.shape[-1] + q_rope.shape[-1]) ** -0.5
    weights = _weights(q @ keys.transpose(2, 3), query_positions)
    return (weights @ (latent[:, None] @ v_up.transpose(1, 2))).to(dtype)


def absorbed_attention(
    q_nope: Float[Tensor, "B N T P"],
    q_rope: Float[Tensor, "B N T R"],
    latent: Float[Tensor, "B S C"],
    k_rope: Float[Tensor, "B S R"],
    k_up: Float[Tensor, "N P C"],
    v_up: Float[Tensor, "N E C"],
    query_positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B N T E"]:
    dtype = q_nope.dtype
    if dtype != torch.float64:
        q_nope, q_rope, latent, k_rope = (x.float() for x in (q_nope, q_rope, latent, k_rope))
        k_up, v_up = k_up.float(), v_up.float()
    heads = q_nope.shape[1:3]
    scale = (q_nope.shape[-1] + q_rope.shape[-1]) ** 0.5
    by_head = (q_nope / scale).transpose(0, 1).flatten(1, 2)  # [N, B·T, P]: one product a head
    absorbed = (by_head @ k_up).unflatten(1, (len(q_nope), -1)).transpose(0, 1)
    scores = absorbed.flatten(1, 2) @ latent.mT + (q_rope / scale).flatten(1, 2) @ k_rope.mT
    weights = _weights(scores.unflatten(1, heads), query_positions)
    mixed = (weights.flatten(1, 2) @ latent).unflatten(1, heads)
    out = mixed.transpose(0, 1).flatten(1, 2) @ v_up.mT
    return out.unflatten(1, (len(q_nope), -1)).transpose(0, 1).to(dtype)


class LatentCache:
    def __init__(
        self,
        batch_size: int,
        capacity: int,
        latent_dim: int,
        rope_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.capacity, self.latent_dim = capacity, latent_dim
        self.memory = torch.zeros(batch_size, capacity, latent_dim + rope_dim, dtype=dtype)
        self.held = [0] * batch_size

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return torch.tensor(self.held)

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return self.lengths.unsqueeze(1) + torch.arange(num_new).unsqueeze(0)

    def append(
        self,
        latent: Float[Tensor, "B T C"],
        k_rope: Float[Tensor, "B T R"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        width = latent.size(1)
        new = [width] * len(self.held) if num_tokens is None else num_tokens.tolist()
        after = [held + n for held, n in zip(self.held, new, strict=True)]
        for row, n in enumerate(new):
            if not 0 <= n <= width or after[row] > self.capacity:
                raise ValueError(f"row {row}: {n} of {width} on {self.held[row]}, {self.capacity}")
        for row, (start, end) in enumerate(zip(self.held, after, strict=True)):
            self.memory[row, start:end, : self.latent_dim] = latent[row, : end - start]
            self.memory[row, start:end, self.latent_dim :] = k_rope[row, : end - start]
        self.held = after

    def latents(self) -> tuple[Float[Tensor, "B S C"], Float[Tensor, "B S R"]]:
        used = self.memory[:, : max(self.held)]
        return used[..., : self.latent_dim], used[..., self.latent_dim :]

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        kept = lengths.tolist()
        if any(not 0 <= n <= held for n, held in zip(kept, self.held, strict=True)):
            raise ValueError(f"cannot keep {kept} of {self.held}")
        self.held = kept


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
        self.num_heads, self.nope_dim, self.rope_dim = num_heads, nope_dim, rope_dim
        self.rope_theta = rope_theta
        self.o_proj = nn.Linear(num_heads * v_dim, d_model, bias=False)
        self.q_proj = nn.Linear(d_model, num_heads * (nope_dim + rope_dim), bias=False)
        self.k_rope_proj = nn.Linear(d_model, rope_dim, bias=False)
        self.kv_down = nn.Linear(d_model, latent_dim, bias=False)
        self.v_up = nn.Linear(latent_dim, num_heads * v_dim, bias=False)
        self.k_up = nn.Linear(latent_dim, num_heads * nope_dim, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: LatentCache | None = None,
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        rows, new, _ = x.shape
        held = torch.zeros(rows, dtype=torch.int64) if cache is None else cache.lengths
        positions = held[:, None] + torch.arange(new)
        q = self.q_proj(x).view(rows, new, self.num_heads, -1).transpose(1, 2)
        q_nope, q_rope = q[..., : self.nope_dim], q[..., self.nope_dim :]
        # One head more: queries and the key turn together.
        turned = torch.cat([q_rope, self.k_rope_proj(x)[:, None]], dim=1)
        turned = rotate_at(turned, positions, self.rope_theta)
        latent, k_rope = self.kv_down(x), turned[:, -1]
        attend = materialised_attention
        if cache is not None:
            cache.append(latent, k_rope, num_tokens)
            latent, k_rope = cache.latents()
            attend = absorbed_attention
        k_up, v_up = (w.weight.view(self.num_heads, -1, w.in_features) for w in self.ups())
        out = attend(q_nope, turned[:, :-1], latent, k_rope, k_up, v_up, positions)
        return self.o_proj(out.transpose(1, 2).flatten(2))

    def ups(self) -> tuple[nn.Linear, nn.Linear]:
        return self.k_up, self.v_up
