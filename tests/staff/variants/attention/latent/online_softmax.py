"""Keys in two chunks with a running maximum and sum, as FlashAttention goes over them; both forms
share that loop, with keys and values of any width, per head or one for all heads."""

from collections.abc import Callable

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.models import rotate_at


def _attend(score: Callable, read: Callable, width: int, shape: tuple, positions: Tensor) -> Tensor:
    """score(part) -> [B N T s] of those keys; read(weights, part) -> [B N T width]."""
    rows, heads, new, held = shape
    top = torch.full((rows, heads, new, 1), -torch.inf)
    out, total = torch.zeros(rows, heads, new, width), torch.zeros(rows, heads, new, 1)
    chunk = max(1, -(-held // 2))
    for start in range(0, held, chunk):
        part = slice(start, min(start + chunk, held))
        seen = torch.arange(part.start, part.stop) <= positions[:, None, :, None]
        scores = score(part).masked_fill(~seen, -torch.inf)
        new_top = torch.maximum(top, scores.detach().amax(dim=-1, keepdim=True))
        shift = torch.where(new_top.isinf(), 0, new_top)
        weights, faded = (scores - shift).exp(), (top - shift).exp()
        out = out * faded + read(weights, part)
        total = total * faded + weights.sum(dim=-1, keepdim=True)
        top = new_top
    return out / torch.where(total > 0, total, 1)


def _last(held: int, new: int, positions: Tensor | None) -> Tensor:
    return torch.arange(held - new, held).unsqueeze(0) if positions is None else positions


def materialised_attention(
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
    q = torch.cat([q_nope, q_rope], dim=3).float() * (nope + rope) ** -0.5
    k = einsum(latent.float(), k_up.float(), "b s c, n p c -> b n s p")
    rope_key = k_rope.float().unsqueeze(1).expand(rows, heads, held, rope)
    k = torch.cat([k, rope_key], dim=3)
    v = einsum(latent.float(), v_up.float(), "b s c, n e c -> b n s e")
    out = _attend(
        lambda part: q @ k[:, :, part].mT,
        lambda weights, part: weights @ v[:, :, part],
        v.shape[3],
        (rows, heads, new, held),
        _last(held, new, query_positions),
    )
    return out.to(q_nope.dtype)


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
    scale = (nope + rope) ** -0.5
    q = einsum(q_nope.float() * scale, k_up.float(), "b n t p, n p c -> b n t c")
    q_rope = q_rope.float() * scale
    latent, k_rope = latent.float(), k_rope.float()

    def score(part: slice) -> Tensor:
        by_latent = einsum(q, latent[:, part], "b n t c, b s c -> b n t s")
        return by_latent + einsum(q_rope, k_rope[:, part], "b n t r, b s r -> b n t s")

    mixed = _attend(
        score,
        lambda weights, part: einsum(weights, latent[:, part], "b n t s, b s c -> b n t c"),
        latent.shape[2],
        (rows, heads, new, held),
        _last(held, new, query_positions),
    )
    return einsum(mixed, v_up.float(), "b n t c, n e c -> b n t e").to(q_nope.dtype)


class LatentCache:
    """Slots before rows: [capacity, B, dim]."""

    def __init__(
        self,
        batch_size: int,
        capacity: int,
        latent_dim: int,
        rope_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.capacity = capacity
        self.c = torch.zeros(capacity, batch_size, latent_dim, dtype=dtype)
        self.r = torch.zeros(capacity, batch_size, rope_dim, dtype=dtype)
        self.used = torch.zeros(batch_size, dtype=torch.long)

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.used.detach().clone()

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return torch.arange(num_new).repeat(len(self.used), 1) + self.used[:, None]

    def append(
        self,
        latent: Float[Tensor, "B T C"],
        k_rope: Float[Tensor, "B T R"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        rows, width, _ = latent.shape
        new = torch.tensor([width] * rows) if num_tokens is None else num_tokens
        if new.min() < 0 or new.max() > width:
            raise ValueError(f"num_tokens {new.tolist()}, columns {width}")
        if (self.used + new).max() > self.capacity:
            raise ValueError(f"{new.tolist()} on {self.used.tolist()}, capacity {self.capacity}")
        row, column = torch.where(torch.arange(width) < new[:, None])
        slot = self.used[row] + column
        self.c.index_put_((slot, row), latent[row, column])
        self.r.index_put_((slot, row), k_rope[row, column])
        self.used = self.used + new

    def latents(self) -> tuple[Float[Tensor, "B S C"], Float[Tensor, "B S R"]]:
        end = int(self.used.max())
        return self.c[:end].transpose(0, 1), self.r[:end].transpose(0, 1)

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        if bool(((lengths < 0) | (lengths > self.used)).any()):
            raise ValueError(f"cannot keep {lengths.tolist()} of {self.used.tolist()}")
        self.used = lengths.clone()


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
        self.num_heads, self.rope_theta = num_heads, rope_theta
        self.nope_dim, self.rope_dim, self.v_dim = nope_dim, rope_dim, v_dim
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
        weight = rearrange(self.q_proj.weight, "(n w) d -> n w d", n=self.num_heads)
        q_nope = einsum(x, weight[:, : self.nope_dim], "b t d, n p d -> b n t p")
        q_rope = einsum(x, weight[:, self.nope_dim :], "b t d, n r d -> b n t r")
        new = x.shape[1]
        positions = torch.arange(new)[None] if cache is None else cache.positions(new)
        positions = positions.expand(x.shape[0], new)
        q_rope = rotate_at(q_rope, positions, self.rope_theta)
        latent = self.kv_down(x)
        k_rope = rotate_at(self.k_rope_proj(x).unsqueeze(1), positions, self.rope_theta).squeeze(1)
        if cache is not None:
            cache.append(latent, k_rope, num_tokens)
            latent, k_rope = cache.latents()
        attend = absorbed_attention if new < latent.shape[1] // 2 else materialised_attention
        k_up = self.k_up.weight.unflatten(0, (self.num_heads, self.nope_dim))
        v_up = self.v_up.weight.unflatten(0, (self.num_heads, self.v_dim))
        out = attend(q_nope, q_rope, latent, k_rope, k_up, v_up, positions)
        return self.o_proj(rearrange(out, "b n t e -> b t (n e)"))
