"""Shows what a chunk may see and no more: W − 1 tokens before it, in order. Attention in tiles."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, key_positions, rotate_at

TILE = 256


def window_mask(
    query_positions: Int[Tensor, "B T"],
    key_positions: Int[Tensor, "B S"],
    window: int,
    num_sinks: int = 0,
) -> Bool[Tensor, "B T S"]:
    query = query_positions[..., None].expand(-1, -1, key_positions.shape[1])
    key = key_positions[:, None].expand_as(query)
    first = (query - (window - 1)).clamp(min=0)
    return torch.where(key < num_sinks, key >= 0, key >= first) & (key <= query)


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
    batch, _, num_new, head_dim = q.shape
    q_groups = q.to(wide).reshape(batch, k.shape[1], -1, num_new, head_dim) * head_dim**-0.5
    out = torch.zeros_like(q_groups)
    total = torch.zeros_like(q_groups[..., :1])
    top = torch.full_like(total, -torch.inf)
    for start in range(0, k.shape[2], TILE):
        part = slice(start, start + TILE)
        mask = window_mask(query_positions, key_positions[:, part], window, num_sinks)
        scores = torch.einsum("bkgth,bksh->bkgts", q_groups, k[:, :, part].to(wide))
        scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
        new_top = torch.maximum(top, scores.amax(dim=-1, keepdim=True))
        shift = torch.where(new_top.isinf(), 0, new_top)  # a tile outside every window
        weights, faded = (scores - shift).exp(), (top - shift).exp()
        read = torch.einsum("bkgts,bksh->bkgth", weights, v[:, :, part].to(wide))
        out, total, top = out * faded + read, total * faded + weights.sum(-1, True), new_top
    return torch.where(total > 0, out / total, 0).reshape(q.shape).to(q.dtype)


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
        self._batch_size, self._window, self._sinks = batch_size, window, num_sinks
        self._ring = window + max_rollback
        self._slots = num_sinks + self._ring
        # Flat: slot s of row b is line b · slots + s.
        self._flat_at = torch.full((batch_size * self._slots,), -1)
        self._flat = tuple(
            torch.zeros(batch_size * self._slots, num_kv_heads, head_dim, dtype=dtype) for _ in "kv"
        )
        self._length = torch.zeros(batch_size, dtype=torch.int64)
        self._view = None

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self._length + 0

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return self._length.view(-1, 1) + torch.arange(0, num_new)

    def _line(self, row: Tensor, position: Tensor) -> Tensor:
        turned = (position - self._sinks).remainder(self._ring) + self._sinks
        return row * self._slots + torch.where(position < self._sinks, position, turned)

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        columns = k.shape[2]
        counts = [columns] * len(k) if num_tokens is None else num_tokens.tolist()
        for row, count in enumerate(counts):
            if count not in range(columns + 1):
                raise ValueError(f"row {row}: {count} tokens in {columns} columns")
        self._view = None if columns == 1 else self._before_and_chunk(k, v, counts)
        kept = [
            (row, column, position)
            for row, count in enumerate(counts)
            for column in range(count)
            for position in [int(self._length[row]) + column]
            if column >= count - self._ring or position < self._sinks
        ]
        row, column, position = torch.tensor(kept, dtype=torch.int64).reshape(-1, 3).T
        line = self._line(row, position)
        for flat, new in zip(self._flat, (k, v), strict=True):
            flat.index_copy_(0, line, new.transpose(1, 2)[row, column])
        self._flat_at[line] = position
        self._length = self._length + torch.tensor(counts)

    def _before_and_chunk(self, k: Tensor, v: Tensor, counts: list[int]) -> tuple:
        """Sinks, the W − 1 tokens before each row's new ones, and those."""
        sinks = torch.arange(self._sinks).expand(self._batch_size, -1)
        near = self._length[:, None] - (self._window - 1) + torch.arange(self._window - 1)
        sinks = torch.where(sinks < self._length[:, None], sinks, -1)
        near = torch.where(near >= self._sinks, near, -1)
        before = torch.cat([sinks, near], dim=1)
        line = self._line(torch.arange(self._batch_size)[:, None], before.clamp(min=0))
        new = self.positions(k.shape[2])
        is_new = torch.arange(k.shape[2]) < torch.tensor(counts)[:, None]
        at = torch.cat([before, new.where(is_new, -1)], dim=1)
        sides = []
        for flat, fresh in zip(self._flat, (k, v), strict=True):
            fresh = fresh.where(is_new[:, None, :, None], torch.zeros((), dtype=fresh.dtype))
            sides.append(torch.cat([flat[line].transpose(1, 2), fresh], dim=2))
        return *sides, at

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        if self._view is not None:
            return self._view[0], self._view[1]
        k, v = (x.view(self._batch_size, -1, *x.shape[1:]).transpose(1, 2) for x in self._flat)
        return k, v

    def key_positions(self) -> Int[Tensor, "B S"]:
        if self._view is not None:
            return self._view[2]
        return self._flat_at.view(self._batch_size, -1)

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        at = self._flat_at.view(self._batch_size, -1)
        for row, (new, old) in enumerate(zip(lengths.tolist(), self._length.tolist(), strict=True)):
            if new > old or new < 0:
                raise ValueError(f"row {row}: {new} is not between 0 and {old}")
            needed = set(range(max(self._sinks, new - self._window), new))
            if not needed <= set(at[row].tolist()):
                raise ValueError(f"row {row}: what {new} tokens need is gone")
        at[at >= lengths[:, None]] = -1
        self._length, self._view = torch.tensor(lengths.tolist()), None


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
        self.window, self.num_sinks = window, num_sinks
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
        q, k, v = self._heads(self.q_proj(x)), self._heads(self.k_proj(x)), self.v_proj(x)
        start = torch.zeros(len(x), dtype=torch.int64) if cache is None else cache.lengths
        at = start[:, None] + torch.arange(x.shape[1])
        q, k, v = (
            rotate_at(q, at, self.rope_theta),
            rotate_at(k, at, self.rope_theta),
            self._heads(v),
        )
        keys_at = at
        if cache is not None:
            cache.append(k, v, num_tokens)
            (k, v), keys_at = cache.keys_values(), key_positions(cache)
        limits = {"window": self.window, "num_sinks": self.num_sinks}
        out = sliding_window_attention(q, k, v, at, keys_at, **limits)
        return self.o_proj(out.transpose(1, 2).flatten(start_dim=2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)
