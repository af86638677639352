"""Worked examples: a sum of two vectors, and a softmax of rows. Read them before you write yours.

Each is there as one first thinks of it, and as it should be. All run on a GPU, and on the CPU in
the lab:

    from assignment.provided.lab.kernel import lab
    from assignment.provided.lab.kernel.examples import add

    x, y = torch.randn(4000), torch.randn(4000)
    with lab() as seen:
        total = add(x, y)
    seen.check()                                # no fault
    seen.launches[0].programs                   # 16
    seen.launches[0].loaded["x"]                # Traffic(operations=16, requested=16000,
                                                #         unique=16000, sectors=500)

Axes: n elements of a vector; rows and columns of a matrix.
"""

import torch
import triton
import triton.language as tl
from jaxtyping import Float
from torch import Tensor

TILE = 256  # elements that a program of the sums takes; a power of two, as every tile's sides are

# --- a sum of two vectors -------------------------------------------------------------------------


@triton.jit
def _add_without_mask_kernel(x, y, out, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at) + tl.load(y + at))


def add_without_mask(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """x + y, wrong: the last tile reaches beyond the end unless TILE divides n.

    The lab calls it "load out of bounds", with the program and the first byte. On a GPU it would
    read what lies there, and overwrite it: it may go well for months.
    """
    out = torch.empty_like(x)
    _add_without_mask_kernel[(triton.cdiv(len(x), TILE),)](x, y, out, TILE=TILE)
    return out


@triton.jit
def _add_interleaved_kernel(x, y, out, n, TILE: tl.constexpr):
    """Of P programs, number p adds the elements p, p + P, p + 2P, …"""
    at = tl.program_id(0) + tl.num_programs(0) * tl.arange(0, TILE)
    inside = at < n
    total = tl.load(x + at, mask=inside, other=0.0) + tl.load(y + at, mask=inside, other=0.0)
    tl.store(out + at, total, mask=inside)


def add_interleaved(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """x + y, right and slow: it requests as few bytes as `add`, from up to 8 times the sectors.

    Memory moves in sectors of 32 bytes, and here the neighbours in a sector belong to different
    programs. Each moves the whole sector for one float32 of it.
    """
    out = torch.empty_like(x)
    _add_interleaved_kernel[(triton.cdiv(len(x), TILE),)](x, y, out, len(x), TILE=TILE)
    return out


@triton.jit
def _add_kernel(x, y, out, n, TILE: tl.constexpr):
    """One tile: TILE elements that lie side by side, without those after the end."""
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = at < n
    total = tl.load(x + at, mask=inside, other=0.0) + tl.load(y + at, mask=inside, other=0.0)
    tl.store(out + at, total, mask=inside)


def add(x: Float[Tensor, "n"], y: Float[Tensor, "n"]) -> Float[Tensor, "n"]:
    """x + y: each byte is read or written once, in whole sectors."""
    out = torch.empty_like(x)
    _add_kernel[(triton.cdiv(len(x), TILE),)](x, y, out, len(x), TILE=TILE)
    return out


# --- a softmax of rows ----------------------------------------------------------------------------


@triton.jit
def _row_max_kernel(x, top, columns, TILE: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, TILE)
    values = tl.load(x + row * columns + column, mask=column < columns, other=-float("inf"))
    tl.store(top + row, tl.max(values, 0))


@triton.jit
def _exponentials_kernel(x, top, raised, total, columns, TILE: tl.constexpr):
    """exp(x − the row's maximum), and the sum of them."""
    row, column = tl.program_id(0), tl.arange(0, TILE)
    inside = column < columns
    values = tl.load(x + row * columns + column, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.load(top + row))  # 0 where nothing is
    tl.store(raised + row * columns + column, powers, mask=inside)
    tl.store(total + row, tl.sum(powers, 0))


@triton.jit
def _divide_kernel(raised, total, out, columns, TILE: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, TILE)
    inside = column < columns
    powers = tl.load(raised + row * columns + column, mask=inside, other=0.0)
    tl.store(out + row * columns + column, powers / tl.load(total + row), mask=inside)


def softmax_in_three(x: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """Softmax of each row, right and slow: a launch for each step, as an expression of torch does.

    What lies between two launches goes through memory: the matrix is read three times and written
    twice, for the two that it takes.
    """
    rows, columns = x.shape
    raised, out = torch.empty_like(x), torch.empty_like(x)
    top, total = torch.empty_like(x[:, 0]), torch.empty_like(x[:, 0])
    tile = triton.next_power_of_2(columns)
    _row_max_kernel[(rows,)](x, top, columns, TILE=tile)
    _exponentials_kernel[(rows,)](x, top, raised, total, columns, TILE=tile)
    _divide_kernel[(rows,)](raised, total, out, columns, TILE=tile)
    return out


@triton.jit
def _softmax_kernel(x, out, columns, TILE: tl.constexpr):
    """One row, which stays on the chip from its only load to its only store."""
    row, column = tl.program_id(0), tl.arange(0, TILE)
    inside = column < columns
    values = tl.load(x + row * columns + column, mask=inside, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + column, powers / tl.sum(powers, 0), mask=inside)


def softmax(x: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """Softmax of each row of a contiguous float32 matrix, fused: read once, written once.

    A program holds its whole row, so a row must fit into the registers of one: some thousands of
    columns.
    """
    rows, columns = x.shape
    out = torch.empty_like(x)
    _softmax_kernel[(rows,)](x, out, columns, TILE=triton.next_power_of_2(columns))
    return out
