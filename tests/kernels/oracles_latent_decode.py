"""What latent attention is checked against: the definition, request by request, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.grading.closeness import assert_close
from tests.kernels.latent_kernel_inputs import Latent
from tests.kernels.rounding import furthest, two_steps_off

__tracebackhide__ = True


def attention(
    latent: Latent, dtype: torch.dtype = torch.float64, rounded_up: int | None = None
) -> Tensor:
    """[B, N, C]: of each head the mean of the latents, weighted by its softmax; zeros for none.

    rounded_up: scores are two steps of the dtype off, upwards where this bit of the token is set.
    """
    q_latent, q_rope = latent.q_latent.to(dtype), latent.q_rope.to(dtype)
    out = torch.zeros_like(q_latent)
    for row, (rows, turned) in enumerate(zip(latent.latents, latent.keys, strict=True)):
        if len(rows) == 0:
            continue
        content, position = rows.to(dtype), turned.to(dtype)
        scores = (q_latent[row] @ content.T + q_rope[row] @ position.T) * latent.scale
        if rounded_up is not None:
            scores = two_steps_off(scores, rounded_up)
        weights = (scores - scores.max(1, keepdim=True).values).exp()
        out[row] = weights @ content / weights.sum(1, keepdim=True)
    return out


def assert_attention(got: Tensor, latent: Latent) -> None:
    """Request by request: a short one's outputs are larger, and would excuse a long one's."""
    like = latent.q_latent
    assert got.dtype == like.dtype, f"expected the dtype of q_latent, {like.dtype}, got {got.dtype}"
    shape = list(like.shape)
    assert list(got.shape) == shape, f"expected the shape of q_latent, {shape}, got {[*got.shape]}"
    expected = attention(latent)
    naive = _roughest(latent, expected).to(got.dtype)
    for row, length in enumerate(latent.lengths):
        what = f"request {row} of {len(latent.lengths)}, with {length} tokens"
        assert_close(got[row], expected[row], naive=naive[row], axes="head channel", what=what)


def _roughest(latent: Latent, expected: Tensor) -> Tensor:
    """In float32, with scores rounded in 8 ways: for each output what is furthest off.

    Of scores in the hundreds few count, and one way to round them may be right by luck.
    """
    return furthest(expected, [attention(latent, torch.float32, bit) for bit in range(8)])
