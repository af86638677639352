"""A loop over the rows of the batch, each with plain matrices; a row cuts its keys to the last one
that any of its queries sees. Storage is a list of matrices, one a row."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.models import rotate_at


def _rows(latent: Tensor, k_rope: Tensor, num_new: int, query_positions: Tensor | None):
    """(row, its last positions, the keys that it may see) for every row."""
    held = latent.shape[1]
    for row in range(len(latent)):
        if query_positions is None:
            last = torch.arange(held - num_new, held)
        else:
            last = query_positions[row]
        end = min(held, max(0, int(last.max()) + 1))
        hidden = torch.arange(end)[None] > last[:, None]
        yield row, hidden, latent[row, :end], k_rope[row, :end]


def _softmax(scores: Tensor, hidden: Tensor) -> Tensor:
    weights = torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1)
    return weights.masked_fill(hidden, 0.0)


def materialised_attention(
    q_nope: Float[Tensor, "B N T P"],
    q_rope: Float[Tensor, "B N T R"],
    latent: Float[Tensor, "B S C"],
    k_rope: Float[Tensor, "B S R"],
    k_up: Float[Tensor, "N P C"],
    v_up: Float[Tensor, "N E C"],
    query_positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B N T E"]:
    wide = torch.promote_types(q_nope.dtype, torch.float32)
    norm = math.sqrt(q_nope.size(-1) + q_rope.size(-1))
    outputs = []
    for row, hidden, c, r in _rows(latent, k_rope, q_nope.shape[2], query_positions):
        for head in range(len(k_up)):
            k, v = (c.to(wide) @ up[head].to(wide).T for up in (k_up, v_up))
            scores = q_nope[row, head].to(wide) @ k.T + q_rope[row, head].to(wide) @ r.to(wide).T
            outputs.append(_softmax(scores / norm, hidden) @ v)
    return torch.stack(outputs).unflatten(0, q_nope.shape[:2]).to(q_nope.dtype)


def absorbed_attention(
    q_nope: Float[Tensor, "B N T P"],
    q_rope: Float[Tensor, "B N T R"],
    latent: Float[Tensor, "B S C"],
    k_rope: Float[Tensor, "B S R"],
    k_up: Float[Tensor, "N P C"],
    v_up: Float[Tensor, "N E C"],
    query_positions: Int[Tensor, "B T"] | None = None,
) -> Float[Tensor, "B N T E"]:
    wide = torch.promote_types(q_nope.dtype, torch.float32)
    norm = math.sqrt(q_nope.size(-1) + q_rope.size(-1))
    absorbed = torch.einsum("bntp,npc->bntc", q_nope.to(wide), k_up.to(wide))
    mixed = []
    for row, hidden, c, r in _rows(latent, k_rope, q_nope.shape[2], query_positions):
        c, r = c.to(wide), r.to(wide)
        scores = torch.einsum("ntc,sc->nts", absorbed[row], c)
        scores = (scores + torch.einsum("ntr,sr->nts", q_rope[row].to(wide), r)) / norm
        mixed.append(torch.einsum("nts,sc->ntc", _softmax(scores, hidden), c))
    return torch.einsum("bntc,nec->bnte", torch.stack(mixed), v_up.to(wide)).to(q_nope.dtype)


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
        self._kept = [
            torch.zeros(batch_size, capacity, n, dtype=dtype) for n in (latent_dim, rope_dim)
        ]
        self._next = torch.zeros(batch_size, dtype=torch.int64)

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self._next + 0

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return torch.stack([torch.arange(n, n + num_new) for n in self._next.tolist()])

    def append(
        self,
        latent: Float[Tensor, "B T C"],
        k_rope: Float[Tensor, "B T R"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        plan = []
        for row, held in enumerate(self._next.tolist()):
            new = latent.shape[1] if num_tokens is None else int(num_tokens[row])
            if new < 0 or new > latent.shape[1] or held + new > self.capacity:
                raise ValueError(f"row {row} holds {held} of {self.capacity}, and {new} came")
            plan.append((row, held, new))
        for row, held, new in plan:
            for kept, part in zip(self._kept, (latent, k_rope), strict=True):
                kept[row].narrow(0, held, new).copy_(part[row, :new])
            self._next[row] += new

    def latents(self) -> tuple[Float[Tensor, "B S C"], Float[Tensor, "B S R"]]:
        end = max(self._next.tolist())
        latent, k_rope = (kept.narrow(1, 0, end) for kept in self._kept)
        return latent, k_rope

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        for kept, held in zip(lengths.tolist(), self._next.tolist(), strict=True):
            if kept < 0 or kept > held:
                raise ValueError(f"{kept} of {held}")
        self._next = lengths + 0


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
        batch, new, _ = x.shape
        q = self.q_proj(x).reshape(batch, new, self.num_heads, self.nope_dim + self.rope_dim)
        q = q.permute(0, 2, 1, 3)
        latent, k_rope = self.kv_down(x), self.k_rope_proj(x)
        # A single token is absorbed; a chunk or a whole sequence is not.
        attend = absorbed_attention if new == 1 else materialised_attention
        up = [
            self.k_up.weight.reshape(self.num_heads, self.nope_dim, -1),
            self.v_up.weight.reshape(self.num_heads, self.v_dim, -1),
        ]
        start = torch.zeros(batch, dtype=torch.int64) if cache is None else cache.lengths
        positions = start.reshape(-1, 1) + torch.arange(new)
        q_rope = rotate_at(q[..., self.nope_dim :], positions, self.rope_theta)
        k_rope = rotate_at(k_rope.reshape(batch, 1, new, -1), positions, self.rope_theta)
        k_rope = k_rope.reshape(batch, new, -1)
        if cache is not None:
            cache.append(latent, k_rope, num_tokens)
            latent, k_rope = cache.latents()
        out = attend(q[..., : self.nope_dim], q_rope, latent, k_rope, *up, positions)
        return self.o_proj(out.permute(0, 2, 1, 3).reshape(batch, new, -1))
