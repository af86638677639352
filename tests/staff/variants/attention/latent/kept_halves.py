"""One tensor a cache; its halves are kept as `split` gives them. Absorbed row by row."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.models import rotate_at


def _wide(*tensors: Tensor) -> list[Tensor]:
    return [x if x.dtype == torch.float64 else x.float() for x in tensors]


def _weights(scores: Tensor, last: Tensor) -> Tensor:
    """Of scores [N, T, S], where query t sees the keys up to last[t]."""
    hidden = torch.arange(scores.shape[2]) > last[:, None]
    scores = scores.masked_fill(hidden, -torch.inf)
    blind = hidden.all(dim=1, keepdim=True)
    return scores.masked_fill(blind, 0).softmax(dim=-1).masked_fill(blind, 0)


def _last_keys(q: Tensor, held: int, query_positions: Tensor | None) -> Tensor:
    rows, _, new, _ = q.shape
    if query_positions is None:
        return (torch.arange(new) + held - new).repeat(rows, 1)
    return query_positions


def materialised_attention(
    q_nope: Float[Tensor, "B N T P"],
    q_rope: Float[Tensor, "B N T R"],
    latent: Float[Tensor, "B S C"],
    k_rope: Float[Tensor, "B S R"],
    k_up: Float[Tensor, "N P C"],
    v_up: Float[Tensor, "N E C"],
    query_positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B N T E"]:
    last = _last_keys(q_nope, latent.shape[1], query_positions)
    scale = (q_nope.shape[3] + q_rope.shape[3]) ** 0.5
    dtype, outputs = q_nope.dtype, []
    q_nope, q_rope, latent, k_rope, k_up, v_up = _wide(q_nope, q_rope, latent, k_rope, k_up, v_up)
    for row, c in enumerate(latent):
        keys, values = c @ k_up.mT, c @ v_up.mT  # [N, S, P] and [N, S, E]
        scores = (q_nope[row] @ keys.mT + q_rope[row] @ k_rope[row].T) / scale
        outputs.append(_weights(scores, last[row]) @ values)
    return torch.stack(outputs).to(dtype)


def absorbed_attention(
    q_nope: Float[Tensor, "B N T P"],
    q_rope: Float[Tensor, "B N T R"],
    latent: Float[Tensor, "B S C"],
    k_rope: Float[Tensor, "B S R"],
    k_up: Float[Tensor, "N P C"],
    v_up: Float[Tensor, "N E C"],
    query_positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B N T E"]:
    last = _last_keys(q_nope, latent.shape[1], query_positions)
    scale = (q_nope.shape[3] + q_rope.shape[3]) ** 0.5
    dtype, heads = q_nope.dtype, q_nope.shape[1:3]
    q_nope, q_rope, latent, k_rope, k_up, v_up = _wide(q_nope, q_rope, latent, k_rope, k_up, v_up)
    absorbed, sums = torch.einsum("bntp,npc->bntc", q_nope, k_up).flatten(1, 2), []
    for row, c in enumerate(latent):  # all heads in one product, which copies no latent
        scores = (absorbed[row] @ c.T + q_rope[row].flatten(0, 1) @ k_rope[row].T) / scale
        weights = _weights(scores.unflatten(0, heads), last[row])
        sums.append((weights.flatten(0, 1) @ c).unflatten(0, heads))
    by_head = torch.stack(sums, dim=1).flatten(1, 2)  # [N, B·T, C]
    return (by_head @ v_up.mT).unflatten(1, (len(latent), -1)).transpose(0, 1).to(dtype)


class LatentCache:
    def __init__(
        self,
        batch_size: int,
        capacity: int,
        latent_dim: int,
        rope_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.capacity = capacity
        both = torch.zeros(batch_size, capacity, latent_dim + rope_dim, dtype=dtype)
        self.halves = both.split([latent_dim, rope_dim], dim=-1)
        self.count = torch.zeros(batch_size, dtype=torch.int64)

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.count.clone()

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return torch.stack([self.count + t for t in range(num_new)], dim=1)

    def append(
        self,
        latent: Float[Tensor, "B T C"],
        k_rope: Float[Tensor, "B T R"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        batch, width = latent.shape[:2]
        new = torch.full((batch,), width) if num_tokens is None else num_tokens
        if bool(((new < 0) | (new > width) | (self.count + new > self.capacity)).any()):
            held = f"{self.count.tolist()} of {self.capacity} held"
            raise ValueError(f"{new.tolist()} tokens in {width} columns, {held}")
        row, column = torch.where(torch.arange(width) < new[:, None])
        slot = self.count[row] + column
        for half, given in zip(self.halves, (latent, k_rope), strict=True):
            half[row, slot] = given[row, column]
        self.count = self.count + new

    def latents(self) -> tuple[Float[Tensor, "B S C"], Float[Tensor, "B S R"]]:
        latent, k_rope = (half.narrow(1, 0, int(self.count.max())) for half in self.halves)
        return latent, k_rope

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        if bool(((lengths < 0) | (lengths > self.count)).any()):
            raise ValueError(f"cannot keep {lengths.tolist()} of {self.count.tolist()}")
        self.count = lengths.clone()


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
        self.split = (nope_dim, rope_dim)
        self.num_heads, self.rope_theta = num_heads, rope_theta
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
        new = x.shape[1]
        at = torch.arange(new).repeat(len(x), 1) if cache is None else cache.positions(new)
        q = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        q_nope, q_rope = q.split(self.split, dim=-1)
        q_rope = rotate_at(q_rope, at, self.rope_theta)
        k_rope = rotate_at(self.k_rope_proj(x).unsqueeze(1), at, self.rope_theta).squeeze(1)
        latent = self.kv_down(x)
        if cache is not None:
            cache.append(latent, k_rope, num_tokens)
            latent, k_rope = cache.latents()
        ups = (
            linear.weight.unflatten(0, (self.num_heads, -1)) for linear in (self.k_up, self.v_up)
        )
        is_step = 4 * new < latent.shape[1]
        attend = absorbed_attention if is_step else materialised_attention
        out = attend(q_nope, q_rope, latent, k_rope, *ups, at)
        return self.o_proj(out.transpose(1, 2).flatten(2))
