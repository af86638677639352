"""Sliding-window attention: each token sees the last W tokens only, and only those are kept.

A cache of all tokens grows with the sequence, and so do the bytes that a decode step reads. With a
window both stop growing at W tokens. Layers on top of each other pass information on, W − 1 tokens
further in each, so L layers reach back L · (W − 1); some models add a few that see everything.

Beltagy et al., "Longformer", 2020, arXiv:2004.05150, §3.1. Jiang et al., "Mistral 7B", 2023,
arXiv:2310.06825: W = 4096 in every layer, token i in slot i mod W. Sinks: Xiao et al., "Efficient
Streaming Language Models with Attention Sinks", 2023, arXiv:2309.17453: models lean on the first
few tokens, and break when these leave the window. (StreamingLLM numbers positions inside the cache;
here a key keeps the position that it had.)

Axes: B batch, N query heads, K KV heads, T new tokens (queries), S slots of keys, H head dim, D
model width, W window.
"""

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
    """Which keys each query may see, by where both stand in their sequence: True = visible.

        0 ≤ key ≤ query   and   (query − key < window   or   key < num_sinks)

    So a query sees `window` keys, its own included, and the sinks, the first `num_sinks` tokens of
    its row. Keys may stand in any order; position −1 marks a slot without a token.

    With window 3 and no sinks, the query at 4 sees 2, 3 and 4; with one sink 0 too. 3–5 lines.
    """
    # BEGIN SOLUTION
    query, key = query_positions[:, :, None], key_positions[:, None, :]
    is_near = (query - key < window) | (key < num_sinks)
    return (key >= 0) & (key <= query) & is_near
    # END SOLUTION


def sliding_window_attention(
    q: Float[Tensor, "B N T H"],
    k: Float[Tensor, "B K S H"],
    v: Float[Tensor, "B K S H"],
    query_positions: Int[Tensor, "B T"],
    key_positions: Int[Tensor, "B S"],
    window: int,
    num_sinks: int = 0,
) -> Float[Tensor, "B N T H"]:
    """softmax(q kᵀ / √H) v over what `window_mask` lets each query see.

    Query head n reads KV head n // (N / K); N is a multiple of K.

    Args:
        q, k, v: of one dtype; they are not changed. A slot that a query does not see may hold any
            finite number, however large.
        query_positions, key_positions, window, num_sinks: see `window_mask`.

    Returns:
        In the dtype of q. A query that sees no key gets zeros.

    Scores and softmax are float32 at least, and work for scores of any size. K and V are not copied
    once per query head. About 12 lines, as `grouped_query_attention` with another mask.
    """
    # BEGIN SOLUTION
    dtype = torch.promote_types(q.dtype, torch.float32)
    grouped = rearrange(q.to(dtype), "b (k g) t h -> b k g t h", k=k.shape[1])
    scores = einsum(grouped, k.to(dtype), "b k g t h, b k s h -> b k g t s")
    scores = scores / math.sqrt(q.shape[-1])

    visible = window_mask(query_positions, key_positions, window, num_sinks)
    visible = rearrange(visible, "b t s -> b 1 1 t s")
    weights = scores.masked_fill(~visible, -math.inf).softmax(dim=-1)
    weights = weights.masked_fill(~visible, 0)  # a query that sees nothing: softmax gave 0 / 0

    out = einsum(weights, v.to(dtype), "b k g t s, b k s h -> b k g t h")
    return rearrange(out, "b k g t h -> b (k g) t h").to(q.dtype)
    # END SOLUTION


class RollingCache:
    """The keys and values of the last `window` tokens of each row, in a ring that never fills up.

    Axes: B rows (sequences), K KV heads, T new tokens, S slots, H head dim. A row has num_sinks +
    window + max_rollback slots, allocated once; a new token takes the slot of the oldest one (say,
    position mod the size of the ring), but the first `num_sinks` tokens stay for good. Tokens stand
    in the slots in any order: `key_positions` says which is where. The rules of `KVCache` hold, but
    there is no capacity: a row may go on for ever. About 45 lines in all.
    """

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
        """An empty cache. Its memory starts as zeros, for attention reads empty slots too."""
        self.window, self.num_sinks, self.max_rollback = window, num_sinks, max_rollback
        # BEGIN SOLUTION
        num_slots = num_sinks + window + max_rollback
        self._lengths = torch.zeros(batch_size, dtype=torch.int64)
        self._keys = torch.zeros(batch_size, num_kv_heads, num_slots, head_dim, dtype=dtype)
        self._values = torch.zeros_like(self._keys)
        self._positions = torch.full((batch_size, num_slots), -1)
        self._shown = self._keys, self._values, self._positions
        # END SOLUTION

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        """Tokens that each row has been given, those that have left included: int64, a copy."""
        # BEGIN SOLUTION
        return self._lengths.clone()
        # END SOLUTION

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        """The positions that the next `num_new` tokens of each row will have, int64:
        positions[b, t] = lengths[b] + t."""
        # BEGIN SOLUTION
        return self._lengths[:, None] + torch.arange(num_new)
        # END SOLUTION

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        """Put new tokens behind what each row holds; the oldest make room.

        Args:
            k, v: of T columns a row, in the dtype of the cache; they are not changed.
            num_tokens: how many of row b's columns, from the left, are tokens (0 … T); the rest is
                padding, which may hold anything, even NaN, and is never kept. Default: all T.

        After this, `keys_values` and `key_positions` hold every key that a token of this append may
        see. Of several tokens the first still needs the window − 1 before it, though the ring now
        holds the last ones only, and T may be larger than the window: so what is shown is then the
        ring as it was before, and the new columns beside it, at most T more slots. After an append
        of one column it is the ring alone, and nothing is copied.

        Raises:
            ValueError: a num_tokens[b] is not in 0 … T. Nothing has changed then, in any row.
        """
        # BEGIN SOLUTION
        num_columns = k.shape[2]
        if num_tokens is None:
            num_tokens = torch.full_like(self._lengths, num_columns)
        for row, count in enumerate(num_tokens.tolist()):
            if not 0 <= count <= num_columns:
                raise ValueError(f"row {row}: num_tokens is {count}, expected 0 to {num_columns}")

        positions = self.positions(num_columns)
        is_token = torch.arange(num_columns) < num_tokens[:, None]
        self._show(k, v, positions, is_token)  # before the ring changes
        self._store(k, v, positions, is_token)
        self._lengths += num_tokens
        # END SOLUTION

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        """Keys and values as the last append left them; `key_positions` says whose they are.

        A slot without a token holds finite numbers. Any number of layers may read, until the next
        append or truncate, which may change what was returned.
        """
        # BEGIN SOLUTION
        keys, values, _ = self._shown
        return keys, values
        # END SOLUTION

    def key_positions(self) -> Int[Tensor, "B S"]:
        """For each slot of `keys_values()` the position of its token, −1 if there is none: int64.

        No token is in two slots, and one that was rolled back is in none.
        """
        # BEGIN SOLUTION
        return self._shown[2]
        # END SOLUTION

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """Keep the first lengths[b] tokens of each row and forget the rest. No key moves.

        Going back brings older tokens into the window again, which may be overwritten. With `most`
        the most tokens that row b has held since it last held num_sinks or fewer, it is refused if

            num_sinks < lengths[b] < most − max_rollback   and   most > the row's slots

        and only then, whatever your cache still holds: the layers of a model must refuse alike.

        Raises:
            ValueError: as above, a row holds fewer tokens than it should keep, or a length is
                negative. Nothing has changed then, in any row.
        """
        # BEGIN SOLUTION
        for row, kept in enumerate(lengths.tolist()):
            held = int(self._lengths[row])
            if not 0 <= kept <= held:
                raise ValueError(f"row {row}: asked to keep {kept} tokens, expected 0 to {held}")
            oldest = max(kept - self.window, self.num_sinks)  # the ring's tokens have no gaps
            if oldest < kept and oldest not in self._positions[row].tolist():
                raise ValueError(f"row {row}: {held} tokens to {kept}: {oldest} is overwritten")
        self._positions.masked_fill_(self._positions >= lengths[:, None], -1)
        self._lengths.copy_(lengths)
        self._shown = self._keys, self._values, self._positions
        # END SOLUTION

    # BEGIN SOLUTION
    def _show(self, k: Tensor, v: Tensor, positions: Tensor, is_token: Tensor) -> None:
        self._shown = self._keys, self._values, self._positions
        if k.shape[2] > 1:
            padding = ~is_token[:, None, :, None]
            keys = torch.cat([self._keys, k.masked_fill(padding, 0)], dim=2)
            values = torch.cat([self._values, v.masked_fill(padding, 0)], dim=2)
            positions = positions.masked_fill(~is_token, -1)
            self._shown = keys, values, torch.cat([self._positions, positions], dim=1)

    def _store(self, k: Tensor, v: Tensor, positions: Tensor, is_token: Tensor) -> None:
        ring = self.window + self.max_rollback
        end = positions[:, :1] + is_token.sum(dim=1, keepdim=True)
        stays = is_token & ((positions >= end - ring) | (positions < self.num_sinks))
        rows, columns = stays.nonzero(as_tuple=True)
        position = positions[rows, columns]
        in_ring = self.num_sinks + (position - self.num_sinks) % ring
        slots = torch.where(position < self.num_sinks, position, in_ring)
        self._keys[rows, :, slots] = k[rows, :, columns]
        self._values[rows, :, slots] = v[rows, :, columns]
        self._positions[rows, slots] = position

    # END SOLUTION


class SlidingWindowAttention(nn.Module):
    """An attention layer with a window: project, rotate, append to the cache, attend, project."""

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
        """Attend from each of the T new tokens to those that its window holds.

        A projection's output holds its heads one after the other, H numbers each. With a cache, a
        `RollingCache` or any other LayerCache, the tokens come behind what it holds; it gets their
        keys, rotated, and values. Its slots need not be in order: the given `key_positions(cache)`
        says what is where, `rotate_at` rotates by positions. Without one, x is the whole sequence,
        from position 0. Only the first num_tokens[b] tokens of row b are real (default: all); the
        output of the others may be anything finite.

        A sequence gives the same output in one pass, in chunks, or token by token. About 18 lines.
        """
        # BEGIN SOLUTION
        q, k, v = (
            rearrange(project(x), "b t (heads h) -> b heads t h", h=self.head_dim)
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        batch, num_new = x.shape[:2]
        if cache is None:
            queries_at = torch.arange(num_new).expand(batch, -1)
        else:
            queries_at = cache.positions(num_new)  # before the append moves them on
        q, k = (rotate_at(heads, queries_at, self.rope_theta) for heads in (q, k))

        keys_at = queries_at
        if cache is not None:
            cache.append(k, v, num_tokens)
            k, v = cache.keys_values()
            keys_at = key_positions(cache)
        out = sliding_window_attention(q, k, v, queries_at, keys_at, self.window, self.num_sinks)
        return self.o_proj(rearrange(out, "b heads t h -> b t (heads h)"))
        # END SOLUTION
