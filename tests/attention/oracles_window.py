"""Windows, rolling caches and shared layers, in their plainest form and in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from tests.attention import oracles
from tests.grading.closeness import assert_equal

HUGE = 1e30  # a weight that is not exactly 0 shows


def visible(
    query_positions: Tensor, key_positions: Tensor, window: int | None, num_sinks: int = 0
) -> Tensor:
    """Who sees whom, pair by pair: [B, T, S]. A window of None is as wide as it needs to be."""
    mask = torch.zeros(*query_positions.shape, key_positions.shape[1], dtype=torch.bool)
    for row, queries in enumerate(query_positions.tolist()):
        for t, query in enumerate(queries):
            first = 0 if window is None else query - window + 1
            seen = {*range(max(first, 0), query + 1), *range(min(num_sinks, query + 1))}
            mask[row, t] = torch.tensor([key in seen for key in key_positions[row].tolist()])
    return mask


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dtype=torch.float64) -> Tensor:
    """Textbook attention head by head under a mask [B, T, S]."""
    group = q.shape[1] // k.shape[1]
    out = torch.zeros(q.shape, dtype=dtype)
    for head in range(q.shape[1]):
        keys, values = (x[:, head // group].to(dtype) for x in (k, v))
        scores = q[:, head].to(dtype) @ keys.transpose(1, 2) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(~mask, -math.inf).softmax(dim=-1)
        out[:, head] = weights.nan_to_num(0.0) @ values
    return out


def heads_of(x: Tensor, weight: Tensor, head_dim: int) -> Tensor:
    """A projection [B, heads, T, H]."""
    return (x @ weight.T).unflatten(-1, (-1, head_dim)).transpose(1, 2)


def rotated(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Heads turned by their positions, in x's dtype; the angles are float32 at least."""
    wide = torch.promote_types(x.dtype, torch.float32)
    angles = oracles.rope_angles(positions, x.shape[-1], theta, wide)
    return oracles.rotate(x, angles).to(x.dtype)


def window_layer(
    x: Tensor,
    weights: dict[str, Tensor],
    head_dim: int,
    theta: float,
    window: int,
    num_sinks: int,
    dtype: torch.dtype,
) -> Tensor:
    """The whole sequence through a layer with a window; results are rounded to `dtype`."""
    x, weights = x.to(dtype), {name: weight.to(dtype) for name, weight in weights.items()}
    q, k, v = (heads_of(x, weights[f"{name}_proj.weight"], head_dim) for name in "qkv")
    positions = torch.arange(x.shape[1])[None].expand(len(x), -1)
    q, k = rotated(q, positions, theta), rotated(k, positions, theta)
    mask = visible(positions, positions, window, num_sinks)
    return _output(q, k, v, mask, weights["o_proj.weight"], dtype)


def shared_layer(
    x: Tensor,
    weights: dict[str, Tensor],
    k: Tensor,
    v: Tensor,
    head_dim: int,
    theta: float,
    window: int | None,
    dtype: torch.dtype,
) -> Tensor:
    """The whole sequence through a layer that reads its owner's k (rotated) and v."""
    x, k, v = x.to(dtype), k.to(dtype), v.to(dtype)
    weights = {name: weight.to(dtype) for name, weight in weights.items()}
    positions = torch.arange(x.shape[1])[None].expand(len(x), -1)
    q = rotated(heads_of(x, weights["q_proj.weight"], head_dim), positions, theta)
    mask = visible(positions, positions, window)
    return _output(q, k, v, mask, weights["o_proj.weight"], dtype)


def _output(q, k, v, mask: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    wide = torch.promote_types(dtype, torch.float32)
    out = attention(q, k, v, mask, dtype=wide).to(dtype)
    return out.transpose(1, 2).flatten(2) @ weight.T


def shuffled(given: oracles.CacheOracle) -> dict[str, Callable]:
    """How a cache reads that shows its tokens out of order, and huge rubbish between them."""

    def order() -> Tensor:
        num_slots = int(given.lengths.max()) + 2
        return torch.arange(num_slots) * 1009 % num_slots  # a prime: each slot has its turn

    def show(rows: list[Tensor]) -> Tensor:
        tokens = oracles.padded(rows)
        rubbish = torch.full((*tokens.shape[:2], 2, tokens.shape[3]), HUGE)
        for row, length in enumerate(given.lengths):
            tokens[row, :, length:] = HUGE
        return torch.cat([tokens, rubbish], dim=2)[:, :, order()]

    def key_positions() -> Tensor:
        slots = order()[None]
        return torch.where(slots < given.lengths[:, None], slots, -1)

    return {
        "keys_values": lambda: (show(given.keys), show(given.values)),
        "key_positions": key_positions,
    }


class Rolling:
    """A rolling cache under test and beside it all tokens that it was given; both get every call.

    After an append, `check` asks for every key that its tokens may see. What else the cache shows
    must be true as well, but it may show as much as it likes, in any order.
    """

    def __init__(
        self, cache, draw, shape: tuple[int, int, int], dtype, window, num_sinks=0, max_rollback=0
    ):
        self.cache, self.draw, self.shape, self.dtype = cache, draw, shape, dtype
        self.window, self.num_sinks, self.max_rollback = window, num_sinks, max_rollback
        batch_size, num_kv_heads, head_dim = shape
        self.given = oracles.CacheOracle(batch_size, num_kv_heads, head_dim, dtype)
        self.old_lengths = self.given.lengths  # before the last append
        self.most = self.given.lengths  # held since a row was last down to its sinks

    def new(self, num_columns: int) -> list[Tensor]:
        batch_size, num_kv_heads, head_dim = self.shape
        shape = (batch_size, num_kv_heads, num_columns, head_dim)
        return [self.draw.normal(*shape, dtype=self.dtype) for _ in "kv"]

    def append(self, num_columns: int, num_tokens: list[int] | None = None) -> None:
        k, v = self.new(num_columns)
        counts = None if num_tokens is None else torch.tensor(num_tokens)
        self.cache.append(k, v, counts)
        self.remember(k, v, counts)

    def remember(self, k: Tensor, v: Tensor, counts: Tensor | None = None) -> None:
        self.old_lengths = self.given.lengths
        self.given.append(k, v, counts)
        self.most = torch.maximum(self.most, self.given.lengths)

    def truncate(self, lengths: list[int]) -> None:
        self.cache.truncate(torch.tensor(lengths))
        self.given.truncate(torch.tensor(lengths))
        self.old_lengths = held = self.given.lengths
        self.most = torch.where(held <= self.num_sinks, held, self.most)

    def truncation(self, lengths: list[int]) -> str:
        """A call of `truncate` in words, for a failure."""
        sizes = (
            f"window {self.window}, num_sinks {self.num_sinks}, max_rollback {self.max_rollback}"
        )
        held, most = self.given.lengths.tolist(), self.most.tolist()
        once = "" if held == most else f" and held up to {most}"
        return f"truncate({lengths}) of rows that hold {held}{once}, {sizes}"

    def check(self) -> int:
        """The number of slots that the cache shows, if all is as it should be."""
        lengths = self.given.lengths
        assert_equal(self.cache.lengths, lengths, axes="row", what="lengths")
        keys, values = self.cache.keys_values()
        slots = self.cache.key_positions()
        assert slots.dtype == torch.int64, f"key_positions: expected int64, got {slots.dtype}"
        self._check_storage(keys, slots, "keys")
        self._check_storage(values, slots, "values")
        for row, (old, length) in enumerate(zip(self.old_lengths, lengths, strict=True)):
            shown = slots[row][slots[row] != -1]
            needed = _needed(int(old), int(length), self.window, self.num_sinks)
            _check_row(row, shown.tolist(), int(length), needed)
            tokens = slots[row] != -1
            for got, given, what in (
                (keys, self.given.keys, "keys"),
                (values, self.given.values, "values"),
            ):
                expected = given[row][:, shown]
                axes = "head token dim"
                what = f"row {row}, {what} of the tokens at {shown.tolist()}"
                assert_equal(got[row][:, tokens], expected, axes=axes, what=what)
        return slots.shape[1]

    def _check_storage(self, got: Tensor, slots: Tensor, what: str) -> None:
        batch_size, num_kv_heads, head_dim = self.shape
        shape = [batch_size, num_kv_heads, slots.shape[1], head_dim]
        assert list(got.shape) == shape, (
            f"{what}: expected shape {shape} for key_positions of shape {list(slots.shape)}, "
            f"got {list(got.shape)}"
        )
        assert got.dtype == self.dtype, f"{what}: expected {self.dtype}, got {got.dtype}"
        assert got.isfinite().all(), f"{what}: a slot holds a number that is not finite"


def _needed(old: int, length: int, window: int, num_sinks: int) -> set[int]:
    """The tokens of a row that those from `old` on may see."""
    if length == old:
        return set()
    return {*range(max(old - window + 1, 0), length), *range(min(num_sinks, length))}


def _check_row(row: int, shown: list[int], length: int, needed: set[int]) -> None:
    assert sorted(set(shown)) == sorted(shown), f"row {row}: a token is in two slots: {shown}"
    strange = [position for position in shown if not 0 <= position < length]
    assert not strange, (
        f"row {row}: key_positions shows tokens at {strange}; the row holds {length}: 0 to "
        f"{length - 1}"
    )
    missing = sorted(needed - set(shown))
    assert not missing, (
        f"row {row}: the tokens of the last append may see {sorted(needed)}; {missing} are missing"
    )
