"""Plain loops over rows and tokens; attention over the visible keys of one KV head at a time."""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, key_positions, rotate_at


def window_mask(
    query_positions: Int[Tensor, "B T"],
    key_positions: Int[Tensor, "B S"],
    window: int,
    num_sinks: int = 0,
) -> Bool[Tensor, "B T S"]:
    masks = []
    for queries, keys in zip(query_positions, key_positions, strict=True):
        age = queries[:, None] - keys[None, :]
        recent = torch.logical_and(age >= 0, age < window)
        sink = torch.logical_and(age >= 0, (keys < num_sinks)[None, :])
        masks.append(torch.logical_or(recent, sink) & (keys >= 0)[None, :])
    return torch.stack(masks)


def sliding_window_attention(
    q: Float[Tensor, "B N T H"],
    k: Float[Tensor, "B K S H"],
    v: Float[Tensor, "B K S H"],
    query_positions: Int[Tensor, "B T"],
    key_positions: Int[Tensor, "B S"],
    window: int,
    num_sinks: int = 0,
) -> Float[Tensor, "B N T H"]:
    per_kv = q.shape[1] // k.shape[1]
    dtype = q.dtype if q.dtype == torch.float64 else torch.float32
    mask = window_mask(query_positions, key_positions, window, num_sinks)
    out = torch.zeros_like(q)
    for row in range(q.shape[0]):
        for head in range(k.shape[1]):
            mine = slice(head * per_kv, (head + 1) * per_kv)
            keys, values = k[row, head].to(dtype), v[row, head].to(dtype)
            scores = q[row, mine].to(dtype) @ keys.T / math.sqrt(q.shape[-1])
            scores = torch.where(mask[row], scores, -math.inf)
            weights = torch.nan_to_num(torch.softmax(scores, dim=-1))
            out[row, mine] = (weights @ values).to(q.dtype)
    return out


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
        self.slack, self.num_slots = max_rollback, num_sinks + window + max_rollback
        self.held = [0] * batch_size
        self.most = [0] * batch_size  # what each row has held at most since it had only sinks
        self.where = [[-1] * self.num_slots for _ in range(batch_size)]
        shape = (batch_size, num_kv_heads, self.num_slots, head_dim)
        self.keys, self.values = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        self.extra = None  # a copy of the old ring and the chunk, after more than one column

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return torch.tensor(self.held)

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return torch.stack([torch.arange(start, start + num_new) for start in self.held])

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        width = k.shape[2]
        counts = [width] * len(self.held) if num_tokens is None else num_tokens.tolist()
        if any(count < 0 or count > width for count in counts):
            raise ValueError(f"num_tokens {counts}: expected 0 to {width} each")
        self.extra = self._beside_the_chunk(k, v, counts) if width > 1 else None
        for row, count in enumerate(counts):
            for column in range(count):
                position = self.held[row] + column
                slot = position
                if position >= self.sinks:
                    slot = self.sinks + (position - self.sinks) % self.ring
                self.keys[row, :, slot] = k[row, :, column]
                self.values[row, :, slot] = v[row, :, column]
                self.where[row][slot] = position
            self.held[row] += count
            self.most[row] = max(self.most[row], self.held[row])

    def _beside_the_chunk(self, k, v, counts):
        shape = (*k.shape[:2], self.num_slots + k.shape[2], k.shape[3])
        keys, values = (torch.zeros(shape, dtype=self.keys.dtype) for _ in "kv")
        keys[:, :, : self.num_slots], values[:, :, : self.num_slots] = self.keys, self.values
        where = [list(row) + [-1] * k.shape[2] for row in self.where]
        for row, count in enumerate(counts):
            new = slice(self.num_slots, self.num_slots + count)
            keys[row, :, new], values[row, :, new] = k[row, :, :count], v[row, :, :count]
            where[row][new] = range(self.held[row], self.held[row] + count)
        return keys, values, where

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        return (self.keys, self.values) if self.extra is None else self.extra[:2]

    def key_positions(self) -> Int[Tensor, "B S"]:
        return torch.tensor(self.where if self.extra is None else self.extra[2])

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        wanted = lengths.tolist()
        for row, (want, held) in enumerate(zip(wanted, self.held, strict=True)):
            if want < 0 or want > held:
                raise ValueError(f"row {row} holds {held} tokens, cannot keep {want}")
            lost = self.most[row] > self.num_slots
            if want > self.sinks and lost and want < self.most[row] - self.slack:
                raise ValueError(f"row {row} was at {self.most[row]}, cannot go back to {want}")
        for row, want in enumerate(wanted):
            self.where[row] = [p if p < want else -1 for p in self.where[row]]
            if want <= self.sinks:
                self.most[row] = want
        self.held, self.extra = wanted, None


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
        self.head_dim, self.theta, self.window, self.sinks = head_dim, rope_theta, window, num_sinks
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
        if cache is None:
            at = torch.arange(seq).repeat(batch, 1)
            k, keys_at = rotate_at(k, at, self.theta), at
        else:
            at = cache.positions(seq)
            cache.append(rotate_at(k, at, self.theta), v, num_tokens)
            (k, v), keys_at = cache.keys_values(), key_positions(cache)
        q = rotate_at(q, at, self.theta)
        out = sliding_window_attention(q, k, v, at, keys_at, self.window, self.sinks)
        return self.o_proj(out.permute(0, 2, 1, 3).reshape(batch, seq, -1))
