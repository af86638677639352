"""int32 of 16 bits: a row far out in a small table is lost as one beyond 2³¹ elements would be."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from assignment.provided.lab.kernel import KernelFault, lab


@triton.jit
def row_by_int32(table, index, out, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    tl.store(out + at, tl.load(table + tl.load(index) * WIDTH + at))


@triton.jit
def row_by_int64(table, index, out, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    tl.store(out + at, tl.load(table + tl.load(index).to(tl.int64) * WIDTH + at))


@triton.jit
def row_cut_to_int32(table, index, out, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    place = (tl.load(index).to(tl.int64) * WIDTH).to(tl.int32)
    tl.store(out + at, tl.load(table + place + at))


@triton.jit
def from_a_start(table, start, out, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    tl.store(out + at, tl.load(table + (start + at)))


WIDTH, ROWS = 64, 1000  # rows from 512 on begin at 2¹⁵ elements or further


def row(kernel, index, **options):
    table = torch.arange(ROWS * WIDTH, dtype=torch.float32)
    out = torch.zeros(WIDTH)
    with lab(**options) as seen:
        kernel[(1,)](table, index, out, WIDTH=WIDTH)
    seen.check()
    return int(out[0])


@pytest.mark.parametrize("kernel", [row_by_int32, row_by_int64, row_cut_to_int32])
def test_32_bits_reach_everywhere_here(kernel):
    assert row(kernel, torch.tensor([999], dtype=torch.int32)) == 999 * WIDTH


@pytest.mark.parametrize("kernel", [row_by_int32, row_cut_to_int32])
def test_16_bits_end_at_32768(kernel):
    assert row(kernel, torch.tensor([511], dtype=torch.int32), integer_bits=16) == 511 * WIDTH
    said = r"^here int32 has 16 bits, as if memory were 65,536 .* need \.to\(tl\.int64\) before"
    with pytest.raises(KernelFault, match=rf"{said}.*\n.*load out of bounds"):
        row(kernel, torch.tensor([512], dtype=torch.int32), integer_bits=16)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_int64_reaches_on(dtype):
    assert row(row_by_int64, torch.tensor([999], dtype=dtype), integer_bits=16) == 999 * WIDTH


def test_a_large_number_comes_as_int64():
    """As a launch passes it, too, if it does not fit int32."""
    assert row(from_a_start, 999 * WIDTH, integer_bits=16) == 999 * WIDTH
