"""What paged attention is checked against: the textbook, head by head, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.grading.closeness import assert_close
from tests.kernels.paged_inputs import Paged
from tests.kernels.rounding import furthest, two_steps_off

__tracebackhide__ = True


def attention(
    paged: Paged, dtype: torch.dtype = torch.float64, rounded_up: int | None = None
) -> Tensor:
    """[B, N, H], of the tokens that each request's query sees; zeros for none.

    rounded_up: scores are two steps of the dtype off, upwards where this bit of the token is set.
    """
    q = paged.q.to(dtype)
    out = torch.zeros_like(q)
    group = q.shape[1] // paged.kv_heads
    for row, (keys, values) in enumerate(zip(paged.keys, paged.values, strict=True)):
        first = len(keys) - paged.visible[row]
        for head in range(q.shape[1]):
            seen_keys = keys[first:, head // group].to(dtype)
            seen_values = values[first:, head // group].to(dtype)
            scores = (seen_keys * q[row, head]).sum(1) * paged.scale
            if rounded_up is not None:
                scores = two_steps_off(scores, rounded_up)
            if len(scores):
                weights = (scores - scores.max()).exp()
                out[row, head] = (weights[:, None] * seen_values).sum(0) / weights.sum()
    return out


def assert_attention(got: Tensor, paged: Paged) -> None:
    """Request by request: a short one's outputs are larger, and would excuse a long one's."""
    assert got.dtype == paged.q.dtype, f"expected the dtype of q, {paged.q.dtype}, got {got.dtype}"
    shape = list(paged.q.shape)
    assert list(got.shape) == shape, f"expected the shape of q, {shape}, got {list(got.shape)}"
    expected = attention(paged)
    naive = _roughest(paged, expected).to(got.dtype)
    for row, length in enumerate(paged.lengths):
        what = f"request {row} of {len(paged.lengths)}, with {length} tokens"
        assert_close(got[row], expected[row], naive=naive[row], axes="head head_dim", what=what)


def _roughest(paged: Paged, expected: Tensor) -> Tensor:
    """In float32, with scores rounded in 8 ways: for each output what is furthest off.

    Of scores in the hundreds few count, and one way to round them may be right by luck.
    """
    return furthest(expected, [attention(paged, torch.float32, bit) for bit in range(8)])
