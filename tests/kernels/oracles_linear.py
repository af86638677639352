"""What gated linear attention is checked against: the recurrence, token by token, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.grading.closeness import assert_close
from tests.kernels.linear_inputs import Linear
from tests.kernels.rounding import furthest

__tracebackhide__ = True
CHUNK = 64  # of the textbook's form


def recurrence(linear: Linear, sequence: int) -> tuple[Tensor, Tensor]:
    """(outputs [n, N, E], new state [N, D, E]) of one sequence."""
    rows = linear.rows(sequence)
    q, k, v, log_decay = (argument[rows].double() for argument in linear.arguments[:4])
    state, out = linear.state[sequence].double(), torch.zeros_like(v)
    for token, gate in enumerate(log_decay.exp()):
        state = gate[:, None, None] * state + k[token][:, :, None] * v[token][:, None, :]
        out[token] = linear.scale * (q[token][:, :, None] * state).sum(1)
    return out, state


def by_chunks(linear: Linear, sequence: int, rounded_up: int) -> tuple[Tensor, Tensor]:
    """As `recurrence`: the textbook's form by chunks, in the dtype under test.

    That is: sums and exponents are float32, exponents differences of sums from the chunk's start.
    The factors of each product are rounded to the dtype of q: weighted scores, weighted keys, and
    the state, the columns of which are scaled so that float16 holds them.

    rounded_up: sums may be added in any order. Here they are two steps of float32 off, upwards
    where this bit of the token is set; that of the whole chunk as its last token's, the other way.
    """
    rows, dtype = linear.rows(sequence), linear.q.dtype
    tokens = [argument[rows].float().transpose(0, 1) for argument in linear.arguments[:4]]
    state, outs = linear.state[sequence].clone(), [tokens[2][:, :0]]
    for first in range(0, linear.lengths[sequence], CHUNK):
        q, k, v, log_decay = (each[:, first : first + CHUNK] for each in tokens)
        is_closed = log_decay.isinf()
        closed, sums = is_closed.cumsum(1), log_decay.masked_fill(is_closed, 0).cumsum(1)
        is_up = (torch.arange(sums.shape[1]) >> rounded_up) % 2
        whole = sums[:, -1:] * (1 - (4 * is_up[-1] - 2) * torch.finfo(sums.dtype).eps)
        sums = sums * (1 + (4 * is_up - 2) * torch.finfo(sums.dtype).eps)
        is_seen = (closed[:, :, None] == closed[:, None, :]).tril()
        weights = is_seen * (sums[:, :, None] - sums[:, None, :]).tril().exp()
        scores = (q @ k.mT * weights * linear.scale).to(dtype).float()
        top = state.abs().amax(1, keepdim=True).clamp(min=1e-30)
        remembered = q @ (state / top).to(dtype).float() * top
        kept = (closed == 0) * sums.exp()
        outs.append(scores @ v + linear.scale * kept[:, :, None] * remembered)
        to_end = (closed[:, -1:] == closed) * (whole - sums).exp()
        faded = (k * to_end[:, :, None]).to(dtype).float()
        state = ((closed[:, -1:] == 0) * whole.exp())[:, :, None] * state + faded.mT @ v
    return torch.cat(outs, 1).transpose(0, 1).to(dtype), state


def assert_linear(out: Tensor, state: Tensor, linear: Linear, but: int | None = None) -> None:
    """Sequence by sequence: one with a large state would excuse the others. but: one to leave out.

    What rounding costs is measured on the textbook's form by chunks, rounded in two ways.
    """
    v, given = linear.arguments[2], linear.state
    for got, dtype, shape, what in (
        (out, v.dtype, v.shape, "outputs"),
        (state, torch.float32, given.shape, "new state"),
    ):
        assert got.dtype == dtype, f"{what}: expected {dtype}, got {got.dtype}"
        assert got.shape == shape, f"{what}: expected shape {list(shape)}, got {list(got.shape)}"
    for sequence, length in enumerate(linear.lengths):
        if sequence == but:
            continue
        expected = recurrence(linear, sequence)
        ways = [by_chunks(linear, sequence, bit) for bit in (0, 5)]
        naive = [furthest(exact, each) for exact, *each in zip(expected, *ways, strict=True)]
        what = f"sequence {sequence} of {len(linear.lengths)}, with {length} new tokens"
        options = {"naive": naive[0], "axes": "token head channel", "what": f"outputs of {what}"}
        if length:
            assert_close(out[linear.rows(sequence)], expected[0], **options)
        options = {"naive": naive[1], "axes": "head row column", "what": f"new state of {what}"}
        assert_close(state[sequence], expected[1], **options)
