"""What a loop of a kernel counts with: tensors, as in a compiled one."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from assignment.provided.lab.kernel import KernelFault
from tests.grading.kernels.boundary import in_lab
from tests.grading.kernels.description import describe
from tests.grading.kernels.rebuild import rebuild


@triton.jit
def rows_by_range(out, length, WIDTH: tl.constexpr):
    for row in range(length):
        tl.store(out + row.to(tl.int64) * WIDTH, row)


@triton.jit
def rows_by_tl_range(out, length, WIDTH: tl.constexpr):
    for row in tl.range(0, length, step=1, num_stages=2):
        tl.store(out + row.to(tl.int64) * WIDTH, row)


@triton.jit
def rows_unrolled(out, length, WIDTH: tl.constexpr):
    for row in tl.static_range(3):
        tl.store(out + row * WIDTH, row)


@triton.jit
def rows_of(out, length, WIDTH: tl.constexpr):
    for row in range(length):
        tl.store(out + row.to(tl.int64) * WIDTH, row)


@triton.jit
def rows_by_a_helper(out, length, WIDTH: tl.constexpr):
    rows_of(out, length, WIDTH)


@triton.jit
def backwards(out, length, WIDTH: tl.constexpr):
    for row in range(length - 1, -1, -1):
        if row > 0 and row < length:
            tl.store(out + row * WIDTH, row)


@triton.jit
def rows_by_int32(out, length, WIDTH: tl.constexpr):
    for row in range(length):
        tl.store(out + row * WIDTH, row)


@triton.jit
def widths(out, length, WIDTH: tl.constexpr):
    far = tl.load(out)
    for row in range(far, far + length):
        tl.store(out + row, row.dtype.primitive_bitwidth)


@triton.jit
def to_a_half(out, length, WIDTH: tl.constexpr):
    for row in range(0, length / 2):
        tl.store(out + row, row)


def launched(kernel, length: int, width: int):
    def call(out):
        for one in range(1, 2):
            assert type(one) is int, "the launcher's own loops are Python's"
            kernel[(one,)](out, length, WIDTH=width)
        return out

    return call


KERNELS = [rows_by_range, rows_by_tl_range, rows_unrolled, rows_by_a_helper, backwards]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.fn.__name__)
@pytest.mark.parametrize("made", [lambda kernel: kernel, lambda kernel: rebuild(describe(kernel))])
def test_a_row_is_a_tensor(kernel, made):
    """Also as it is made again of its source, in official grading."""
    seen = in_lab(launched(made(kernel), 3, 2), torch.zeros(6))
    assert seen.value.tolist() == [0, 0, 1, 0, 2, 0]
    assert seen.compiled()[0].registers


@pytest.mark.parametrize("dtype, bits", [(torch.int32, 32), (torch.int64, 64)])
def test_it_has_the_dtype_of_its_bounds(dtype, bits):
    assert in_lab(launched(widths, 2, 1), torch.zeros(2, dtype=dtype)).value.tolist() == [bits] * 2


def test_it_ends_where_int32_ends():
    """A product with a constant, too: in Python both would be numbers without end."""
    out = torch.zeros(40_000)
    in_lab(launched(rows_by_range, 40, 1000), out, integer_bits=16)
    with pytest.raises(KernelFault, match="store out of bounds"):
        in_lab(launched(rows_by_int32, 40, 1000), out, integer_bits=16)


def test_bounds_are_integers():
    with pytest.raises(TypeError, match="bounds of a loop are integers, not int32, fp32, int32"):
        in_lab(launched(to_a_half, 3, 1), torch.zeros(6))
