"""No position is stored: two numbers a row say what each slot holds. Attention is torch's own."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, key_positions, rotate_at


def window_mask(
    query_positions: Int[Tensor, "B T"],
    key_positions: Int[Tensor, "B S"],
    window: int,
    num_sinks: int = 0,
) -> Bool[Tensor, "B T S"]:
    q, k = query_positions.unsqueeze(2), key_positions.unsqueeze(1)
    hidden = (k < 0) | (k > q) | ((k <= q - window) & (k >= num_sinks))
    return ~hidden


def sliding_window_attention(
    q: Float[Tensor, "B N T H"],
    k: Float[Tensor, "B K S H"],
    v: Float[Tensor, "B K S H"],
    query_positions: Int[Tensor, "B T"],
    key_positions: Int[Tensor, "B S"],
    window: int,
    num_sinks: int = 0,
) -> Float[Tensor, "B N T H"]:
    mask = window_mask(query_positions, key_positions, window, num_sinks)[:, None]
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return out.masked_fill(~mask.any(dim=-1, keepdim=True), 0)


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
        self._sinks, self._ring, self._slack = num_sinks, window + max_rollback, max_rollback
        self._slots = num_sinks + self._ring
        self._kv = torch.zeros(2, batch_size, num_kv_heads, self._slots, head_dim, dtype=dtype)
        self._now = torch.zeros(batch_size, dtype=torch.int64)
        self._most = torch.zeros(batch_size, dtype=torch.int64)
        self._chunk = None

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self._now.detach().clone()

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return torch.arange(num_new).repeat(len(self._now), 1) + self._now[:, None]

    def _held(self) -> Int[Tensor, "B S"]:
        """A slot's token is the newest of those that belong there, as far as the row has been."""
        slot = torch.arange(self._slots)[None]
        most = self._most[:, None]
        turns = (most - 1 - slot) // self._ring  # below 0 in a slot that was never used
        position = torch.where(slot < self._sinks, slot, slot + turns * self._ring)
        return torch.where((turns >= 0) & (position < self._now[:, None]), position, -1)

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        width = k.size(2)
        if num_tokens is None:
            num_tokens = torch.full((k.size(0),), width)
        if int(num_tokens.min()) < 0 or int(num_tokens.max()) > width:
            raise ValueError(f"num_tokens must lie in 0..{width}, got {num_tokens.tolist()}")
        kv, at = torch.stack([k, v]), self.positions(width)
        is_new = torch.arange(width) < num_tokens[:, None]
        if width > 1:
            clean = torch.where(is_new[None, :, None, :, None], kv, torch.zeros((), dtype=kv.dtype))
            self._chunk = (
                torch.cat([self._kv, clean], dim=3),
                torch.cat([self._held(), torch.where(is_new, at, -1)], dim=1),
            )
        else:
            self._chunk = None
        after = self._now + num_tokens
        keep = is_new & ((at >= (after - self._ring)[:, None]) | (at < self._sinks))
        row, column = torch.where(keep)
        p = at[row, column]
        slot = torch.where(p < self._sinks, p, (p - self._sinks) % self._ring + self._sinks)
        self._kv[:, row, :, slot] = kv[:, row, :, column]
        self._now, self._most = after, torch.maximum(self._most, after)

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        kv = self._kv if self._chunk is None else self._chunk[0]
        return kv[0], kv[1]

    def key_positions(self) -> Int[Tensor, "B S"]:
        return self._held() if self._chunk is None else self._chunk[1]

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        is_full, needs_ring = self._most > self._slots, lengths > self._sinks
        too_far = is_full & needs_ring & (lengths < self._most - self._slack)
        if bool(((lengths < 0) | (lengths > self._now) | too_far).any()):
            raise ValueError(
                f"cannot keep {lengths.tolist()} of {self._now.tolist()} tokens; at most "
                f"{self._slack} below {self._most.tolist()}"
            )
        self._now = lengths.clone()
        self._most = torch.where(needs_ring, self._most, lengths)
        self._chunk = None


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
        heads, kv_heads = (p.out_features // self.head_dim for p in (self.q_proj, self.k_proj))
        if cache is None:  # a fresh one of its own
            sizes = (kv_heads, self.head_dim, x.dtype, self.num_sinks)
            cache = RollingCache(x.shape[0], self.window, *sizes)
        at = cache.positions(x.shape[1])
        q, k, v = (
            project(x).unflatten(-1, (n, self.head_dim)).transpose(1, 2)
            for project, n in zip(
                (self.q_proj, self.k_proj, self.v_proj), (heads, kv_heads, kv_heads), strict=True
            )
        )
        cache.append(rotate_at(k, at, self.rope_theta), v, num_tokens)
        out = sliding_window_attention(
            rotate_at(q, at, self.rope_theta),
            *cache.keys_values(),
            at,
            key_positions(cache),
            self.window,
            self.num_sinks,
        )
        return self.o_proj(out.transpose(1, 2).flatten(start_dim=2))
