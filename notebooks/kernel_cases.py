"""Inputs for the kernels, and what is right in float64, for gpu_kernels.py."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SPARE = 3  # blocks that nobody holds
ROUNDING = 2  # units in the last place of the dtype that an answer's norm may be off
LEAST = 1e-5  # of its norm, for sums of many terms in float32


@dataclass(frozen=True)
class Shape:
    """One decode step. lengths: tokens of each request."""

    lengths: tuple[int, ...]
    heads: int = 32  # those of Llama 3 8B
    kv_heads: int = 8
    head_dim: int = 128
    block_size: int = 16
    dtype: torch.dtype = torch.float16
    window: int | None = None
    splits: int | None = None

    @property
    def batch(self) -> int:
        return len(self.lengths)

    @property
    def scale(self) -> float:
        return self.head_dim**-0.5

    @property
    def kv_bytes(self) -> int:
        """Of the keys and values that the queries see."""
        tokens = sum(min(length, self.window or length) for length in self.lengths)
        return 2 * tokens * self.kv_heads * self.head_dim * self.dtype.itemsize

    @property
    def bytes(self) -> int:
        """What has to move: those, the queries and the answers."""
        queries = self.batch * self.heads * self.head_dim * self.dtype.itemsize
        return self.kv_bytes + 2 * queries

    def __str__(self) -> str:
        lengths = set(self.lengths)
        tokens = f"{min(lengths)}" if len(lengths) == 1 else f"{min(lengths)} to {max(lengths)}"
        parts = [
            f"batch {self.batch}, context {tokens}",
            f"{self.heads}/{self.kv_heads} heads of {self.head_dim}",
            f"blocks of {self.block_size}",
            str(self.dtype).removeprefix("torch."),
        ]
        parts += [f"window {self.window}"] if self.window else []
        parts += [f"{self.splits} splits"] if self.splits else []
        return ", ".join(parts)


@dataclass(frozen=True)
class Case:
    """A shape with numbers in it: random ones, and NaN where no token is, or none in a block that
    a query sees."""

    shape: Shape
    q: Tensor
    k_cache: Tensor
    v_cache: Tensor
    tables: Tensor
    lengths: Tensor

    def arguments(self) -> tuple:
        """Of `paged_attention`."""
        shape = self.shape
        caches = self.k_cache, self.v_cache, self.tables, self.lengths
        return self.q, *caches, max(shape.lengths), shape.scale, shape.window, shape.splits

    def first(self, row: int) -> int:
        """The first token that a request's query sees."""
        length = self.shape.lengths[row]
        return max(0, length - (self.shape.window or length))

    def slots(self, row: int, first: int) -> Tensor:
        """Of a request's tokens from `first` on."""
        size = self.shape.block_size
        token = torch.arange(first, self.shape.lengths[row], device=self.q.device)
        return self.tables[row, token // size].long() * size + token % size


def make_case(shape: Shape, device: str, seed: int) -> Case:
    """Blocks lie in random order, as in a cache that has been in use for long."""
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*size: int) -> Tensor:
        return torch.empty(size, dtype=shape.dtype, device=device).normal_(generator=generator)

    needed = [-(-length // shape.block_size) for length in shape.lengths]
    blocks = sum(needed) + SPARE
    order = torch.randperm(blocks, generator=generator, device=device).int()
    tables = torch.full((shape.batch, max(needed) + 1), -1, dtype=torch.int32, device=device)
    for row, (count, last) in enumerate(zip(needed, torch.tensor(needed).cumsum(0), strict=True)):
        tables[row, :count] = order[last - count : last]
    size = (blocks, shape.block_size, shape.kv_heads, shape.head_dim)
    case = Case(
        shape,
        normal(shape.batch, shape.heads, shape.head_dim),
        normal(*size),
        normal(*size),
        tables,
        torch.tensor(shape.lengths, dtype=torch.int32, device=device),
    )
    nobody = torch.ones(blocks * shape.block_size, dtype=torch.bool, device=device)
    for row in range(shape.batch):
        block_begins = case.first(row) // shape.block_size * shape.block_size
        nobody[case.slots(row, block_begins)] = False
    for cache in (case.k_cache, case.v_cache):
        cache.flatten(0, 1)[nobody] = float("nan")
    return case


def expected(case: Case, row: int) -> Tensor:
    """One request's answer in float64 [N, H]; zeros for one without tokens."""
    slots, kv_heads = case.slots(row, case.first(row)), case.shape.kv_heads
    k, v = (cache.flatten(0, 1)[slots].double() for cache in (case.k_cache, case.v_cache))
    q = case.q[row].double().unflatten(0, (kv_heads, -1))
    scores = torch.einsum("kgh,tkh->kgt", q, k) * case.shape.scale
    return torch.einsum("kgt,tkh->kgh", scores.softmax(-1), v).flatten(0, 1)


def error(case: Case, out: Tensor, rows: list[int] | None = None) -> float:
    """‖out − expected‖ / ‖expected‖ of the worst of these rows; NaN is infinitely wrong."""
    worst = 0.0
    for row in range(case.shape.batch) if rows is None else rows:
        right = expected(case, row)
        off = float((out[row].double() - right).norm() / right.norm().clamp(min=1e-30))
        worst = max(worst, off if off == off else float("inf"))
    return worst


def allowed(dtype: torch.dtype) -> float:
    """What rounding may cost: the weights are rounded to the dtype of the values, then the sum."""
    return max(ROUNDING * torch.finfo(dtype).eps, LEAST)
