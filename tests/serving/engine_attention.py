"""Paged attention by the textbook, and a backend for an engine that checks what it is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assignment.provided.models import LlamaConfig
from assignment.provided.serving import ModelParts
from tests.attention import oracles
from tests.grading.closeness import assert_close, assert_equal

__tracebackhide__ = True

AXES = "query head head_dim"


@dataclass(frozen=True)
class Paged:
    """Arguments of `gather_attention`, and each request's keys and values in a row, [K, S, H]."""

    arguments: list[Tensor]
    keys: list[Tensor]
    values: list[Tensor]

    def attention(self, dtype: torch.dtype) -> Tensor:
        q, *_, query_lengths, _ = self.arguments
        parts = [
            oracles.attention(own.transpose(0, 1)[None], k[None], v[None], dtype=dtype)
            for own, k, v in zip(
                q.split(query_lengths.tolist()), self.keys, self.values, strict=True
            )
        ]
        return torch.cat([part[0].transpose(0, 1) for part in parts])


def draw_paged(
    draw,
    heads: int,
    kv_heads: int,
    query_lengths: Sequence[int],
    kv_lengths: Sequence[int],
    *,
    block_size: int = 4,
    dtype: torch.dtype = torch.float32,
    level: float = 0.0,
    head_dim: int = 10,
    blocks: Sequence[int] | None = None,
) -> Paged:
    """Requests scattered over blocks in random order, or in these; whatever is no token's is NaN.

    The first request has a block more than it needs; the last two blocks are nobody's. Scores are
    near `level`.
    """
    size = (abs(level) / head_dim**0.5) ** 0.5
    narrow = 0.2 if level else 1.0
    q = draw.normal(sum(query_lengths), heads, head_dim) * narrow + size
    used = [-(-length // block_size) for length in kv_lengths]
    used[0] += 1
    order = draw.permutation(sum(used) + 2) if blocks is None else torch.tensor(blocks)
    shape = (len(order), block_size, kv_heads, head_dim)
    k_cache, v_cache = (torch.full(shape, torch.nan, dtype=dtype) for _ in range(2))
    tables = torch.full((len(used), max(used)), -1)
    keys, values = [], []
    for row, (length, own) in enumerate(zip(kv_lengths, order.split([*used, 2]), strict=False)):
        tables[row, : len(own)] = own
        keys.append((draw.normal(kv_heads, length, head_dim) * narrow + size).to(dtype))
        values.append(draw.normal(kv_heads, length, head_dim, dtype=dtype))
        for i in range(length):
            block, offset = own[i // block_size], i % block_size
            k_cache[block, offset], v_cache[block, offset] = keys[-1][:, i], values[-1][:, i]
    lengths = [torch.tensor(query_lengths), torch.tensor(kv_lengths)]
    return Paged([q.to(dtype), k_cache, v_cache, tables, *lengths], keys, values)


def assert_attention(got: Tensor, paged: Paged) -> None:
    q = paged.arguments[0]
    expected, naive = paged.attention(torch.float64), paged.attention(torch.float32).to(q.dtype)
    assert got.dtype == q.dtype, f"expected the dtype of q, {q.dtype}, got {got.dtype}"
    assert_close(got, expected, naive=naive, axes=AXES)


def slots_of(tables: Tensor, kv_lengths: Tensor, block_size: int) -> list[Tensor]:
    """The slots of each request's tokens, in order."""
    places = [torch.arange(length) for length in kv_lengths.tolist()]
    return [
        table[place // block_size] * block_size + place % block_size
        for table, place in zip(tables, places, strict=True)
    ]


def new_slots(
    tables: Tensor, query_lengths: Tensor, kv_lengths: Tensor, block_size: int
) -> list[int]:
    """Those of the tokens of a step: each request's last ones."""
    slots = slots_of(tables, kv_lengths, block_size)
    lasts = zip(slots, query_lengths.tolist(), strict=True)
    return [slot for own, new in lasts for slot in own[len(own) - new :].tolist()]


class Backend:
    """`store` and `attention` for an engine, on keys and values of their own.

    Every argument is checked; requests must not share blocks. What lies in the engine's caches is
    not used: an engine that reads those, and not what `attention` returns, gets other tokens.
    """

    def __init__(self, config: LlamaConfig, num_blocks: int, block_size: int, dtype: torch.dtype):
        self._layers, self._dtype = config.num_layers, dtype
        self._shape = [num_blocks, block_size, config.num_kv_heads, config.head_dim]
        pools = torch.full([2, config.num_layers, *self._shape], torch.nan, dtype=dtype)
        self._keys, self._values = pools.flatten(2, 3)  # [L, slots, K, H]
        self._slots: list[int] = []
        self.stored = self.attended = 0  # calls

    def store(self, k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
        assert_equal(self.attended, self.stored, what="calls of attention before one of store")
        layer = self.stored % self._layers
        self._check_caches(k_cache, v_cache)
        for new, pool in ((k, self._keys), (v, self._values)):
            assert_equal(list(new.shape), [len(slots), *self._shape[2:]], what="shape of k or v")
            pool[layer, slots] = new
        self._slots = slots.tolist()
        self.stored += 1

    def attention(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, tables: Tensor, new: Tensor, held: Tensor
    ) -> Tensor:
        assert_equal(self.stored, self.attended + 1, what="calls of store before one of attention")
        layer = self.attended % self._layers
        self._check_caches(k_cache, v_cache)
        blocks = [block for block in tables.flatten().tolist() if block != -1]
        assert_equal(sorted(blocks), sorted(set(blocks)), what="blocks in all tables, without −1")
        slots = slots_of(tables, held, self._shape[1])
        expected = new_slots(tables, new, held, self._shape[1])
        assert_equal(self._slots, expected, what="slots that store got, by the block tables")
        self.attended += 1
        keys, values = (
            [pool[layer, own].transpose(0, 1) for own in slots]
            for pool in (self._keys, self._values)
        )
        arguments = [q, k_cache, v_cache, tables, new, held]
        return Paged(arguments, keys, values).attention(torch.float64)

    def _check_caches(self, *caches: Tensor) -> None:
        for cache in caches:
            assert_equal(list(cache.shape), self._shape, what="shape of a layer's cache")
            assert_equal(cache.dtype, self._dtype, what="dtype of a layer's cache")


class Probe:
    """A model of one layer with random queries, keys and values, and the `attention` it meets.

    What the one sends has to arrive at the other, and back.
    """

    def __init__(self, draw, block_size: int, dtype: torch.dtype):
        self._draw, self._block_size, self._dtype = draw, block_size, dtype
        self._config = LlamaConfig(
            11, num_layers=1, d_model=8, num_heads=6, num_kv_heads=2, head_dim=4, d_ff=8
        )
        self._before: list[Tensor] | None = None
        self.calls = 0

    @property
    def parts(self) -> ModelParts:
        return ModelParts(self._config, self._dtype, self._hidden, self._logits)

    def _hidden(self, tokens: Tensor, positions: Tensor, attend) -> Tensor:
        count = tokens.numel()
        self._sent = [self._normal(1, heads, count, 4) for heads in (6, 2, 2)]
        self._answer = self._normal(count, 6, 4)
        out = attend(0, *self._sent)
        assert_equal(out, self._answer.transpose(0, 1)[None], what="what attend returns")
        return torch.zeros(*tokens.shape, 8, dtype=self._dtype)

    def _logits(self, hidden: Tensor) -> Tensor:
        return self._normal(*hidden.shape[:-1], self._config.vocab_size)

    def attention(
        self, q: Tensor, k_cache: Tensor, v_cache: Tensor, tables: Tensor, new: Tensor, held: Tensor
    ) -> Tensor:
        sent_q, *sent = [each[0].transpose(0, 1) for each in self._sent]
        assert_equal(q, sent_q, axes=AXES, what="queries")
        slots = new_slots(tables, new, held, self._block_size)
        now = [cache.flatten(0, 1) for cache in (k_cache, v_cache)]
        for name, cache, rows in zip(("keys", "values"), now, sent, strict=True):
            assert_equal(cache.dtype, self._dtype, what=f"dtype of the cache of {name}")
            assert_equal(cache[slots], rows, axes=AXES, what=f"{name} in the slots of new tokens")
        for cache, before in zip(now, self._before or [], strict=False):
            others = torch.ones(len(cache), dtype=torch.bool)
            others[slots] = False
            same = torch.equal(cache[others].nan_to_num(), before[others].nan_to_num())
            assert same, "a slot changed that is no new token's"
        self._before = [cache.clone() for cache in now]
        self.calls += 1
        return self._answer

    def _normal(self, *shape: int) -> Tensor:
        return self._draw.normal(*shape, dtype=self._dtype)
