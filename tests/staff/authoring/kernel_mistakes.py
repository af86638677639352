"""Kernels that the handout talks about and that nobody should copy, and one small product."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from assignment.provided.lab.kernel.examples import TILE


@triton.jit
def _overlapping_kernel(x, y, out, n, TILE: tl.constexpr):
    """Each tile begins one element before the end of the last one."""
    at = tl.program_id(0) * (TILE - 1) + tl.arange(0, TILE)
    inside = at < n
    total = tl.load(x + at, mask=inside, other=0.0) + tl.load(y + at, mask=inside, other=0.0)
    tl.store(out + at, total, mask=inside)


def add_overlapping(x: Tensor, y: Tensor) -> Tensor:
    out = torch.empty_like(x)
    _overlapping_kernel[(triton.cdiv(len(x), TILE - 1),)](x, y, out, len(x), TILE=TILE)
    return out


@triton.jit
def _to_nothing_kernel(x, out, n, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < n
    total = tl.load(out + at, mask=inside) + tl.load(x + at, mask=inside)
    tl.store(out + at, total, mask=inside)


def add_to_nothing(x: Tensor, y: Tensor) -> Tensor:
    """Sums up in a tensor that nobody has set to zero."""
    out = torch.empty_like(x)
    for values in (x, y):
        _to_nothing_kernel[(triton.cdiv(len(x), TILE),)](values, out, len(x), TILE=TILE)
    return out


WEIGHT = 3  # no tl.constexpr


@triton.jit
def takes_a_global(out):
    tl.store(out, WEIGHT)


@triton.jit
def changes_its_dtype(x, out, n):
    """A whole number before the loop, a float after its first turn."""
    total = 0
    for at in range(n):
        total += tl.load(x + at)
    tl.store(out, total)


@triton.jit
def scores(queries, keys, out, ROWS: tl.constexpr, TILE: tl.constexpr, WIDTH: tl.constexpr):
    """queries · keysᵀ, of which the machine code is looked at."""
    row, token, column = tl.arange(0, ROWS), tl.arange(0, TILE), tl.arange(0, WIDTH)
    left = tl.load(queries + row[:, None] * WIDTH + column[None, :])
    right = tl.load(keys + token[:, None] * WIDTH + column[None, :])
    tl.store(out + row[:, None] * TILE + token[None, :], tl.dot(left, tl.trans(right)))
