"""A chunk waits beside the ring and is stored when the next append comes; only that one counts."""

import math

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, key_positions, rotate_at


def window_mask(
    query_positions: Int[Tensor, "B T"],
    key_positions: Int[Tensor, "B S"],
    window: int,
    num_sinks: int = 0,
) -> Bool[Tensor, "B T S"]:
    age = rearrange(query_positions, "b t -> b t 1") - rearrange(key_positions, "b s -> b 1 s")
    is_token = rearrange(key_positions >= 0, "b s -> b 1 s")
    is_sink = rearrange(key_positions < num_sinks, "b s -> b 1 s")
    return is_token & (age >= 0) & (is_sink | (age < window))


def sliding_window_attention(
    q: Float[Tensor, "B N T H"],
    k: Float[Tensor, "B K S H"],
    v: Float[Tensor, "B K S H"],
    query_positions: Int[Tensor, "B T"],
    key_positions: Int[Tensor, "B S"],
    window: int,
    num_sinks: int = 0,
) -> Float[Tensor, "B N T H"]:
    wide = torch.promote_types(q.dtype, torch.float32)
    q_groups = rearrange(q, "b (k g) t h -> b k (g t) h", k=k.shape[1]).to(wide)
    scores = (q_groups @ k.to(wide).transpose(-1, -2)) / math.sqrt(q.shape[-1])
    group = q.shape[1] // k.shape[1]
    mask = window_mask(query_positions, key_positions, window, num_sinks)
    mask = mask[:, None].repeat(1, 1, group, 1)  # queries of a group lie one behind the other
    scores = scores.masked_fill(~mask, -math.inf)
    top = scores.amax(dim=-1, keepdim=True).nan_to_num(neginf=0.0)
    weights = (scores - top).exp()
    total = weights.sum(dim=-1, keepdim=True)
    out = einsum(weights, v.to(wide), "b k q s, b k s h -> b k q h") / total.clamp(min=1e-30)
    return rearrange(out, "b k (g t) h -> b (k g) t h", g=group).to(q.dtype)


class RollingCache:
    def __init__(
        self,
        batch_size: int,
        window: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
        num_sinks: int = 0,
        max_rollback: int = 0,
    ) -> None:
        self.window, self.sinks, self.ring = window, num_sinks, window + max_rollback
        shape = (batch_size, num_kv_heads, num_sinks + self.ring, head_dim)
        self.k, self.v = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        self.at = torch.full((batch_size, shape[2]), -1)
        self.seen = torch.zeros(batch_size, dtype=torch.int64)
        self.most = torch.zeros_like(self.seen)
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []  # at most one chunk

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.seen.clone()

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return self.seen.unsqueeze(1) + torch.arange(num_new).unsqueeze(0)

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        width = k.shape[2]
        if num_tokens is None:
            num_tokens = torch.full_like(self.seen, width)
        if ((num_tokens < 0) | (num_tokens > width)).any():
            raise ValueError(f"num_tokens {num_tokens.tolist()}, but there are {width} columns")
        self._store_what_waits()
        padding = torch.arange(width) >= num_tokens[:, None]
        at = self.positions(width).masked_fill(padding, -1)
        empty = padding[:, None, :, None]
        self.waiting = [(k.masked_fill(empty, 0), v.masked_fill(empty, 0), at)] if width else []
        self.seen = self.seen + num_tokens
        self.most = torch.maximum(self.most, self.seen)
        if width == 1:  # nothing that it overwrites is in its own window
            self._store_what_waits()

    def _store_what_waits(self) -> None:
        for k, v, at in self.waiting:
            newest = at.amax(dim=1, keepdim=True)
            row, column = torch.where((at >= 0) & ((at > newest - self.ring) | (at < self.sinks)))
            p = at[row, column]
            slot = torch.where(p < self.sinks, p, self.sinks + (p - self.sinks) % self.ring)
            self.k[row, :, slot] = k[row, :, column]
            self.v[row, :, slot] = v[row, :, column]
            self.at[row, slot] = p
        self.waiting = []

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        if not self.waiting:
            return self.k, self.v
        k, v, _ = self.waiting[0]
        return torch.cat([k, self.k], dim=2), torch.cat([v, self.v], dim=2)

    def key_positions(self) -> Int[Tensor, "B S"]:
        return torch.cat([*(at for _, _, at in self.waiting), self.at], dim=1)

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        if ((lengths < 0) | (lengths > self.seen)).any():
            raise ValueError(f"cannot keep {lengths.tolist()} of {self.seen.tolist()} tokens")
        # What waits has overwritten nothing yet, but the rule says what may be taken back.
        needs_ring, is_full = lengths > self.sinks, self.most > self.sinks + self.ring
        slack = self.ring - self.window
        if (needs_ring & is_full & (lengths < self.most - slack)).any():
            raise ValueError(f"cannot go back from {self.most.tolist()} to {lengths.tolist()}")
        self._store_what_waits()
        self.at[self.at >= lengths[:, None]] = -1
        self.seen = lengths.clone()
        self.most = torch.where(needs_ring, self.most, lengths)


class SlidingWindowAttention(nn.Module):
    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        window: int,
        rope_theta: float = 10_000.0,
        num_sinks: int = 0,
    ) -> None:
        super().__init__()
        self.head_dim, self.rope_theta = head_dim, rope_theta
        self.view = {"window": window, "num_sinks": num_sinks}
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
            at = keys_at = torch.arange(x.shape[1]).repeat(x.shape[0], 1)
            k = rotate_at(k, at, self.rope_theta)
        else:
            at = cache.lengths[:, None] + torch.arange(x.shape[1])
            cache.append(rotate_at(k, at, self.rope_theta), v, num_tokens)
            k, v = cache.keys_values()
            keys_at = key_positions(cache)
        q = rotate_at(q, at, self.rope_theta)
        out = sliding_window_attention(q, k, v, at, keys_at, **self.view)
        return self.o_proj(rearrange(out, "b n t h -> b t (n h)"))
