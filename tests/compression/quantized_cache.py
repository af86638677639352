"""A quantised cache over two caches of the test, and beside it what it should hold."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assignment.provided.compression import Quantized
from tests.attention.oracles import CacheOracle
from tests.compression import oracles_quantization as oracles
from tests.grading.boundary import watch
from tests.grading.closeness import assert_equal

ROWS, HEADS, HEAD_DIM = 3, 2, 5


class Watched:
    """Every call goes to the cache under test, and to one that keeps what came exactly.

    make(codes, scales) gives the cache under test over two caches, each the functions of a
    DelegatingCache.
    """

    def __init__(self, draw, make: Callable, dtype: torch.dtype = torch.float32):
        self.draw, self.dtype = draw, dtype
        self.codes = CacheOracle(ROWS, HEADS, HEAD_DIM, torch.int8)
        self.scales = CacheOracle(ROWS, HEADS, 1, torch.float32)
        self.exact = CacheOracle(ROWS, HEADS, HEAD_DIM, dtype)
        self.cache = make(functions(self.codes), functions(self.scales))

    def append(self, num_columns: int, num_tokens: list[int] | None = None) -> None:
        shape = (ROWS, HEADS, num_columns, HEAD_DIM)
        k, v = (oracles.of_many_sizes(self.draw, *shape, dtype=self.dtype) for _ in "kv")
        counts = None if num_tokens is None else torch.tensor(num_tokens)
        for row, count in enumerate(num_tokens or []):
            k[row, :, count:], v[row, :, count:] = torch.nan, torch.inf  # padding is anything
        _, changed = watch(self.cache.append, k, v, counts)
        assert changed == [], "append changed k or v, which are the caller's"
        self.exact.append(k, v, counts)

    def truncate(self, lengths: list[int]) -> None:
        self.cache.truncate(torch.tensor(lengths))
        self.exact.truncate(torch.tensor(lengths))

    def check(self) -> None:
        lengths = self.exact.lengths
        for kept, name in ((self.codes, "codes"), (self.scales, "scales")):
            assert_equal(kept.lengths, lengths, axes="row", what=f"lengths of the {name}")
        assert_equal(self.cache.lengths, lengths, axes="row", what="lengths")
        positions = lengths[:, None] + torch.arange(2)
        assert_equal(self.cache.positions(2), positions, axes="row token", what="positions")
        for name, got in zip(("keys", "values"), self.cache.keys_values(), strict=True):
            self._check_tokens(name, got, lengths.tolist())

    def _check_tokens(self, name: str, got: Tensor, lengths: list[int]) -> None:
        exact, codes, scales = (getattr(c, name) for c in (self.exact, self.codes, self.scales))
        shape = [ROWS, HEADS, max(lengths), HEAD_DIM]
        assert_equal(list(got.shape), shape, what=f"shape of the {name}")
        for row, length in enumerate(lengths):
            if length:
                what = f"{name} of row {row}"
                kept = Quantized(codes[row], scales[row], None, "row")
                oracles.assert_quantized(kept, exact[row], 8, "row", True, f"{what}, ")
                oracles.assert_rounded(got[row, :, :length], exact[row], 8, "row", True, what)


def functions(kept: CacheOracle) -> list[Callable]:
    """What a DelegatingCache is made of: `kept` does the work, for one width and dtype only."""

    def append(k, v, num_tokens):
        for new, held in ((k, kept.keys[0]), (v, kept.values[0])):
            expected = [*held.shape[::2], held.dtype]
            assert_equal([*new.shape[1::2], new.dtype], expected, what="heads, width and dtype")
        kept.append(k, v, num_tokens)

    def keys_values():
        return padded(kept.keys), padded(kept.values)

    return [lambda: kept.lengths, append, keys_values, kept.truncate]


def padded(rows: list[Tensor]) -> Tensor:
    """[B, K, S, H] of rows [K, n, H]; past a row's length there are sevens."""
    heads, _, width = rows[0].shape
    longest = max(row.shape[1] for row in rows)
    result = torch.full((len(rows), heads, longest, width), 7, dtype=rows[0].dtype)
    for row, tokens in enumerate(rows):
        result[row, :, : tokens.shape[1]] = tokens
    return result
