"""What prefill attention is checked against: softmax by its definition, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.grading.closeness import assert_close
from tests.kernels.rounding import furthest, root_mean_square, two_steps_off
from tests.kernels.varlen_inputs import Varlen

__tracebackhide__ = True


def attention(
    varlen: Varlen, dtype: torch.dtype = torch.float64, rounded_up: int | None = None
) -> list[Tensor]:
    """Of each request [n, N, H]: each query over what it sees; zeros for nothing.

    rounded_up: scores are two steps of the dtype off, upwards where this bit of the token is set.
    """
    results = []
    for request, rows in enumerate(zip(varlen.queries, varlen.keys, varlen.values, strict=True)):
        queries, keys, values = (row.to(dtype).transpose(0, 1) for row in rows)  # [heads, …, H]
        keys, values = (row.repeat_interleave(varlen.group, 0) for row in (keys, values))
        is_seen = _who_sees_what(varlen, request)
        sees_some = is_seen.any(1)
        scores = queries[:, sees_some] @ keys.mT * varlen.scale
        if rounded_up is not None:
            scores = two_steps_off(scores, rounded_up)
        weights = scores.masked_fill(~is_seen[sees_some], -torch.inf).softmax(2)
        out = torch.zeros_like(queries)
        out[:, sees_some] = weights @ values
        results.append(out.transpose(0, 1))
    return results


def _who_sees_what(varlen: Varlen, request: int) -> Tensor:
    """[n, S]"""
    new, length = len(varlen.queries[request]), len(varlen.keys[request])
    position, token = torch.arange(length - new, length)[:, None], torch.arange(length)
    is_seen = token <= position
    if varlen.window is not None:
        is_seen &= position - token < varlen.window
    return is_seen


def assert_attention(got: Tensor, varlen: Varlen) -> None:
    """By how much is seen, 1 token, 2 or 3, 4 to 7, …: outputs of few tokens are larger, and would
    excuse those of many."""
    q = varlen.q
    assert got.dtype == q.dtype, f"expected the dtype of q, {q.dtype}, got {got.dtype}"
    shape = list(q.shape)
    assert list(got.shape) == shape, f"expected the shape of q, {shape}, got {list(got.shape)}"
    expected = attention(varlen)
    naive = _roughest(varlen, expected)
    parts = got.split([len(new) for new in varlen.queries])
    for request, part in enumerate(parts):
        new, length = len(part), len(varlen.keys[request])
        told = f"request {request} of {len(parts)}, {new} queries, {length} tokens"
        counts = _who_sees_what(varlen, request).sum(1)
        sizes = torch.tensor([int(count).bit_length() for count in counts])
        for size in sizes.unique():
            chosen = (sizes == size).nonzero()[:, 0]
            first, last = (length - new + int(chosen[end]) for end in (0, -1))
            assert_close(
                part[chosen],
                expected[request][chosen],
                naive=naive[request][chosen].to(q.dtype),
                axes="query head head_dim",
                what=f"{told}: queries at positions {first} … {last}",
            )


def _roughest(varlen: Varlen, expected: list[Tensor]) -> list[Tensor]:
    """In float32, with scores rounded in 8 ways: for each output what is furthest off.

    Of scores in the hundreds few count, and one way to round them may be right by luck.
    """
    ways = [attention(varlen, torch.float32, bit) for bit in range(8)]
    return [furthest(exact, each) for exact, *each in zip(expected, *ways, strict=True)]


def assert_rounded_once(got: Tensor, varlen: Varlen) -> None:
    """On the mean about as far from the exact results as these are when they are rounded."""
    expected = torch.cat(attention(varlen))
    rounded = root_mean_square(expected.to(got.dtype).double() - expected)
    off = root_mean_square(got.double() - expected)
    assert off < 1.5 * rounded, (
        f"the mean distance from the exact results is {off:.2g}; rounding them once costs "
        f"{rounded:.2g}"
    )
