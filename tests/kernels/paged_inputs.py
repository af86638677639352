"""Requests whose tokens lie scattered over the blocks of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Paged:
    """Arguments of `paged_attention`, in order; each request's keys and values, [S, K, H]."""

    arguments: list
    keys: list[Tensor]
    values: list[Tensor]

    @property
    def q(self) -> Tensor:
        return self.arguments[0]

    @property
    def scale(self) -> float:
        return self.arguments[6]

    @property
    def kv_heads(self) -> int:
        return self.arguments[1].shape[2]

    @property
    def block_size(self) -> int:
        return self.arguments[1].shape[1]

    @property
    def lengths(self) -> list[int]:
        return [len(keys) for keys in self.keys]

    @property
    def visible(self) -> list[int]:
        """Tokens that each request's query sees: all, or its last `window`."""
        window = self.arguments[7]
        return [length if window is None else min(length, window) for length in self.lengths]


def draw_paged(
    draw,
    heads: int,
    kv_heads: int,
    lengths: Sequence[int],
    *,
    head_dim: int = 16,
    block_size: int = 16,
    dtype: torch.dtype = torch.float16,
    scale: float | None = None,
    window: int | None = None,
    num_splits: int | None = None,
    max_length: int | None = None,
    levels: Sequence[tuple[float, float]] = (),
    mean: float = 0.0,
    shared: int = 0,
) -> Paged:
    """Blocks in random order. Whatever is no token's is NaN, and so are whole blocks that no
    window reaches.

    levels: of each request, or of none: lowest and highest of its scores, about; each token has its
        own in between.
    mean: of the values.
    shared: how many blocks at the beginning are the same for all requests that are so long.
    """
    scale = head_dim**-0.5 if scale is None else scale
    q = draw.normal(len(lengths), heads, head_dim)
    if levels:
        q = 1 + 0.2 * q
    common = [draw.normal(shared * block_size, kv_heads, head_dim, dtype=dtype) for _ in "kv"]
    keys, values = [], []
    for row, length in enumerate(lengths):
        k, v = (draw.normal(length, kv_heads, head_dim) for _ in "kv")
        if levels:
            low, high = levels[row]
            k += (low + (high - low) * draw.uniform(length, 1, 1)) / (scale * head_dim)
        k, v = k.to(dtype), (v + mean).to(dtype)
        if length >= len(common[0]):
            k[: len(common[0])], v[: len(common[1])] = common
        keys.append(k)
        values.append(v)
    tables, blocks = draw_tables(draw, lengths, block_size, shared)
    caches = [_scattered(rows, tables, blocks, block_size, window) for rows in (keys, values)]
    most = max(lengths) if max_length is None else max_length
    own = torch.tensor(lengths, dtype=torch.int32)
    arguments = [q.to(dtype), *caches, tables, own, most, scale, window, num_splits]
    return Paged(arguments, keys, values)


def draw_tables(draw, lengths: Sequence[int], block_size: int, shared: int) -> tuple[Tensor, int]:
    """(block tables, a column wider than needed; number of blocks, some of them nobody's)."""
    used = [-(-length // block_size) for length in lengths]
    nobodys = 3 + min(sum(used), 20)  # so many that block 0 is often one of them
    order = draw.permutation(shared + sum(used) + nobodys).int()
    common, free = order[:shared], order[shared:].tolist()
    tables = torch.full((len(lengths), max(used) + 1), -1, dtype=torch.int32)
    for row, (length, count) in enumerate(zip(lengths, used, strict=True)):
        tables[row, :count] = torch.tensor([free.pop() for _ in range(count)], dtype=torch.int32)
        if length >= shared * block_size:
            tables[row, :shared] = common
    return tables, len(order)


def _scattered(
    rows: list[Tensor], tables: Tensor, blocks: int, block_size: int, window: int | None
) -> Tensor:
    """A cache with what each request has, [S, K, H], in its slots, from its window's block on."""
    cache = torch.full((blocks * block_size, *rows[0].shape[1:]), torch.nan, dtype=rows[0].dtype)
    for row, table in zip(rows, tables, strict=True):
        first = 0 if window is None else max(0, len(row) - window) // block_size * block_size
        place = torch.arange(first, len(row))
        slots = table.long()[place // block_size] * block_size + place % block_size
        cache[slots] = row[first:]
    return cache.unflatten(0, (blocks, block_size))


def least_bytes(paged: Paged, splits: int) -> int:
    """What `splits` programs for each request and KV head move at least, and those that put their
    results together: keys and values once, queries and lengths by each, each block's number by each
    KV head, parts in float32 written and read, outputs once."""
    batch, heads, head_dim = paged.q.shape
    width = paged.q.element_size()
    cache = 2 * sum(paged.visible) * paged.kv_heads * head_dim * width
    queries = splits * batch * (heads * head_dim * width + 4 * paged.kv_heads)
    blocks = sum(-(-tokens // paged.block_size) for tokens in paged.visible)
    parts = 2 * splits * batch * heads * (head_dim + 1) * 4 if splits > 1 else 0
    return cache + queries + 4 * blocks * paged.kv_heads + parts + paged.q.numel() * width
