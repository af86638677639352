"""Maxima and minima with NaN in the lab are those of a GPU."""

from __future__ import annotations

import math

import pytest
import torch
import triton
import triton.language as tl

from assignment.provided.lab.kernel import lab


@triton.jit
def _extremes(x, y, out, SIZE: tl.constexpr):
    at = tl.arange(0, SIZE)
    a, b = tl.load(x + at), tl.load(y + at)
    tl.store(out + at, tl.maximum(a, b))
    tl.store(out + SIZE + at, tl.minimum(a, b))
    tl.store(out + 2 * SIZE + at, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_number_wins_over_nan_unless_nan_is_to_be_handed_on(dtype):
    x = torch.tensor([1, math.nan, -2, math.nan], dtype=dtype)
    y = torch.tensor([math.nan, 3, -5, math.nan], dtype=dtype)
    out = torch.empty(3, 4, dtype=dtype)
    with lab() as seen:
        _extremes[(1,)](x, y, out, SIZE=4)
    seen.check()
    expected = [[1, 3, -2, math.nan], [1, 3, -5, math.nan], [math.nan, math.nan, -2, math.nan]]
    torch.testing.assert_close(out.float(), torch.tensor(expected), equal_nan=True)
