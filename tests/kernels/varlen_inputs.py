"""Requests with any number of queries; their keys in rows one after another, or in blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ROWS = 64  # query heads of query tokens that a program of the ideal has
TENSORS = {
    0: "q", 1: "k", 2: "v", 3: "query_starts", 4: "lengths", 8: "key_starts", 9: "block_tables",
}  # fmt: skip


@dataclass(frozen=True)
class Varlen:
    """Arguments of `varlen_attention`, in order; each request's queries, [n, N, H], and its keys
    and values, [S, K, H]."""

    arguments: list
    queries: list[Tensor]
    keys: list[Tensor]
    values: list[Tensor]

    @property
    def q(self) -> Tensor:
        return self.arguments[0]

    @property
    def scale(self) -> float:
        return self.arguments[6]

    @property
    def window(self) -> int | None:
        return self.arguments[7]

    @property
    def kv_heads(self) -> int:
        return self.keys[0].shape[1]

    @property
    def group(self) -> int:
        return self.q.shape[1] // self.kv_heads

    def seen(self, request: int, first: int, last: int) -> range:
        """Positions that at least one of these queries sees, of those from `first` to `last`."""
        before = len(self.keys[request]) - len(self.queries[request])
        begin = 0 if self.window is None else max(0, before + first - self.window + 1)
        return range(begin, max(before + last + 1, begin))

    @property
    def pairs(self) -> int:
        """A query token, and a token that it sees."""
        each = enumerate(self.queries)
        return sum(len(self.seen(b, i, i)) for b, new in each for i in range(len(new)))

    @property
    def flops(self) -> int:
        _, heads, head_dim = self.q.shape
        return 4 * self.pairs * heads * head_dim

    def tiles(self, rows: int = ROWS) -> list[tuple[int, int, range]]:
        """(request, how many rows, what they see) of each tile of so many rows of a KV head."""
        found = []
        for request, new in enumerate(self.queries):
            whole = len(new) * self.group
            for first in range(0, whole, rows):
                last = min(first + rows, whole) - 1
                seen = self.seen(request, first // self.group, last // self.group)
                found.append((request, last - first + 1, seen))
        return found


def tensors(arguments: list) -> dict[str, Tensor]:
    """Those that are given, by name."""
    return {name: arguments[i] for i, name in TENSORS.items() if arguments[i] is not None}


def prompts(*lengths: int) -> list[tuple[int, int]]:
    """Whole: each token is a query."""
    return [(length, length) for length in lengths]


def draw_varlen(
    draw,
    heads: int,
    kv_heads: int,
    requests: Sequence[tuple[int, int]],
    *,
    head_dim: int = 16,
    dtype: torch.dtype = torch.float16,
    scale: float | None = None,
    levels: Sequence[tuple[float, float]] = (),
    mean: float = 0.0,
    shared: int = 0,
    **options,
) -> Varlen:
    """
    Args:
        requests: of each, how many queries it has, and how many tokens in all.
        levels: of each request, or of none: lowest and highest of its scores, about; each token has
            its own in between.
        mean: of the values.
        shared: how many tokens at the beginning are the same for all requests that are so long.
        options: of `laid_out`.
    """
    scale = head_dim**-0.5 if scale is None else scale
    common = [draw.normal(shared, kv_heads, head_dim) for _ in "kv"]
    queries, keys, values = [], [], []
    for request, (new, length) in enumerate(requests):
        q = draw.normal(new, heads, head_dim)
        k, v = (draw.normal(length, kv_heads, head_dim) for _ in "kv")
        if levels:
            low, high = levels[request]
            q = 1 + 0.2 * q
            k += (low + (high - low) * draw.uniform(length, 1, 1)) / (scale * head_dim)
        if length >= shared:
            k[:shared], v[:shared] = common
        queries.append(q.to(dtype))
        keys.append(k.to(dtype))
        values.append((v + mean).to(dtype))
    return laid_out(draw, queries, keys, values, scale=scale, shared=shared, **options)


def laid_out(
    draw,
    queries: list[Tensor],
    keys: list[Tensor],
    values: list[Tensor],
    *,
    scale: float,
    block_size: int | None = None,
    window: int | None = None,
    max_queries: int | None = None,
    shared: int = 0,
) -> Varlen:
    """Requests in an order of chance, with gaps between them; whatever no query sees is NaN.

    block_size: of a paged cache; without it, a request's keys lie one after another.
    shared: how many tokens, of whole blocks, all requests have in common that are so long.
    """
    counts, lengths = ([len(x) for x in rows] for rows in (queries, keys))
    key_starts = tables = None
    if block_size is None:
        key_starts, slots, size = _draw_rows(draw, lengths)
    else:
        tables, slots, size = _draw_blocks(draw, lengths, block_size, shared // block_size)
    starts = torch.tensor([0, *counts]).cumsum(0).int()
    own = torch.tensor(lengths, dtype=torch.int32)
    most = max(counts) if max_queries is None else max_queries
    rest = [starts, own, most, scale, window, key_starts, tables]
    varlen = Varlen([torch.cat(queries), None, None, *rest], queries, keys, values)
    for place, rows in ((1, keys), (2, values)):
        cache = torch.full((size, *rows[0].shape[1:]), torch.nan, dtype=rows[0].dtype)
        for request, row in enumerate(rows):
            if counts[request]:
                seen = varlen.seen(request, 0, counts[request] - 1)
                cache[slots[request][seen.start : seen.stop]] = row[seen.start : seen.stop]
        varlen.arguments[place] = cache if tables is None else cache.unflatten(0, (-1, block_size))
    return varlen


def no_request(draw) -> Varlen:
    arguments = draw_varlen(draw, 6, 2, [(0, 9)], max_queries=4).arguments
    arguments[3:5], arguments[8] = [arguments[3][:1], arguments[4][:0]], arguments[8][:0]
    return Varlen(arguments, [], [], [])


def chunk_of(draw, whole: Varlen, first: int, end: int) -> Varlen:
    """Of whole prompts the queries from `first` to before `end`, and what comes up to them."""
    queries = [q[first:end] for q in whole.queries]
    keys, values = ([row[:end] for row in rows] for rows in (whole.keys, whole.values))
    return laid_out(draw, queries, keys, values, scale=whole.scale)


def _draw_rows(draw, lengths: Sequence[int]) -> tuple[Tensor, list[Tensor], int]:
    """(each request's first row; the rows of its tokens; how many rows there are)."""
    starts = torch.zeros(len(lengths), dtype=torch.int32)
    end = 0
    for request in draw.permutation(len(lengths)).tolist():
        starts[request] = end = end + int(draw.integers(0, 4, 1))
        end += lengths[request]
    slots = [first + torch.arange(n) for first, n in zip(starts.tolist(), lengths, strict=True)]
    return starts, slots, end + 2


def _draw_blocks(
    draw, lengths: Sequence[int], block_size: int, shared: int
) -> tuple[Tensor, list[Tensor], int]:
    """(block tables, a column wider than needed; the slots of each request's tokens; how many slots
    there are, some of them nobody's). shared: blocks."""
    used = [-(-length // block_size) for length in lengths]
    nobodys = 3 + min(sum(used), 20)  # so many that block 0 is often one of them
    order = draw.permutation(shared + sum(used) + nobodys)
    common, free = order[:shared], order[shared:].tolist()
    tables = torch.full((len(lengths), max(used) + 1), -1, dtype=torch.int32)
    slots = []
    for request, (length, count) in enumerate(zip(lengths, used, strict=True)):
        tables[request, :count] = torch.tensor([free.pop() for _ in range(count)])
        if length >= shared * block_size:
            tables[request, :shared] = common
        token = torch.arange(length)
        block = tables[request].long()[token // block_size]
        slots.append(block * block_size + token % block_size)
    return tables, slots, len(order) * block_size


def kv_bytes(varlen: Varlen, rows: int = ROWS) -> int:
    """Of keys and values: each once for each tile of rows of which one sees it."""
    _, _, head_dim = varlen.q.shape
    tokens = sum(len(seen) for _, _, seen in varlen.tiles(rows))
    return 2 * tokens * varlen.kv_heads * head_dim * varlen.q.element_size()


def most_kv_bytes(varlen: Varlen) -> int:
    """Of those of `kv_bytes` the most that are one request's, of one KV head."""
    tokens = Counter()
    for request, _, seen in varlen.tiles():
        tokens[request] += len(seen)
    return 2 * max(tokens.values()) * varlen.q.shape[2] * varlen.q.element_size()


def least_bytes(varlen: Varlen) -> int:
    """What programs of `ROWS` rows move at least: keys and values that one of their rows sees, once
    each; queries and outputs once; and numbers of 4 bytes: where the request's queries begin and
    end, how long it is, and where its keys are, which is the number of each block that is seen."""
    block_size = None if varlen.arguments[9] is None else varlen.arguments[1].shape[1]
    numbers = 0
    for _, _, seen in varlen.tiles():
        where = 1 if block_size is None else len({token // block_size for token in seen})
        numbers += 3 + where
    once = 2 * varlen.q.numel() * varlen.q.element_size()
    return kv_bytes(varlen) + once + 4 * numbers * varlen.kv_heads
