"""Stops at the first rejected token; stores as it goes; a small row stays in registers."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def left_over(q_row, p_row, ids, guess, recovering, V: tl.constexpr, P: tl.constexpr):
    inside = ids < V
    q = tl.load(q_row + ids, mask=inside, other=0.0)
    if P == 0:
        p = ((ids == guess) & recovering).to(tl.float32)
    else:
        p = tl.load(p_row + ids, mask=inside & (ids < P) & recovering, other=0.0)
    p = tl.where(p == p, p, 0.0)
    q = tl.where(q == q, q, 0.0)
    return tl.maximum(q - p, 0.0)


@triton.jit
def pick(weights, number, N: tl.constexpr):
    """(index, what lies before it). The number is cut to where there is something."""
    ids = tl.arange(0, N)
    last = tl.max(tl.where(weights > 0, ids, 0), 0)
    before = tl.cumsum(weights, 0) - weights
    index = tl.max(tl.where((weights > 0) & (before <= number), ids, 0), 0)
    first = tl.min(tl.where(weights > 0, ids, last), 0)
    index = tl.maximum(index, first)
    return index, tl.sum(tl.where(ids == index, before, 0.0), 0)


@triton.jit
def one_sequence(
    tokens, counts, p_ptr, q_ptr, numbers, out, G,
    V: tl.constexpr, P: tl.constexpr, N: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    tokens += b * G
    numbers += b * (G + 1)
    out += b * (G + 1)
    count = tl.load(counts + b).to(tl.int32)
    q_row = q_ptr + b * (G + 1) * V
    p_row = p_ptr + b * G * P
    i = 0
    guess = b * 0 - 1
    running = i < count
    while running:
        x = tl.load(tokens + i)
        known = (x >= 0) & (x < V)
        q = tl.load(q_row + x, mask=known, other=0.0)
        p = 1.0
        if P > 0:
            p = tl.load(p_row + x, mask=known & (x < P), other=0.0)
        keeps = known & (p > 0) & (tl.load(numbers + i) * p < q)
        tl.store(out + i, x, mask=keeps)
        guess = tl.where(keeps, -1, x)
        q_row += tl.where(keeps, V, 0)
        p_row += tl.where(keeps, P, 0)
        i += keeps.to(tl.int32)
        running = keeps & (i < count)
    recovering = i < count
    number = tl.load(numbers + G)
    ids = tl.arange(0, N)
    if PARTS == 1:
        weights = left_over(q_row, p_row, ids, guess, recovering, V, P)
        if tl.sum(weights, 0) == 0:
            weights = left_over(q_row, p_row, ids, guess, i < 0, V, P)
        index, before = pick(weights, number * tl.sum(weights, 0), N)
        token = index
    else:
        parts = tl.arange(0, PARTS)
        sums = tl.zeros((PARTS,), tl.float64)
        tries = 0
        while tries < 2:
            for part in range(0, tl.cdiv(V, N)):
                weights = left_over(q_row, p_row, part * N + ids, guess, recovering, V, P)
                sums += tl.where(parts == part, tl.sum(weights, 0).to(tl.float64), 0.0)
            is_done = (tl.sum(sums, 0) > 0) | ~recovering
            recovering = recovering & is_done
            tries += tl.where(is_done, 2, 1)
        number = number * tl.sum(sums, 0)
        part, before = pick(sums, number, PARTS)
        weights = left_over(q_row, p_row, part * N + ids, guess, recovering, V, P)
        index, before = pick(weights, (number - before).to(tl.float32), N)
        token = part * N + index
    tl.store(out + i, token.to(tl.int64))
    i += 1
    while i <= G:
        tl.store(out + i, i * 0 - 1)
        i += 1


def rejection_sampling(
    tokens: Tensor,
    num_draft: Tensor,
    draft_probs: Tensor | None,
    target_probs: Tensor,
    uniforms: Tensor,
) -> Tensor:
    B, G = tokens.shape
    V = target_probs.shape[2]
    P = 0 if draft_probs is None else draft_probs.shape[2]
    N = triton.next_power_of_2(V) if V <= 2048 else 1024
    out = tokens.new_empty((B, G + 1))
    if B > 0:
        one_sequence[(B,)](
            tokens, num_draft, draft_probs if P else target_probs, target_probs, uniforms, out, G,
            V=V, P=P, N=N, PARTS=triton.next_power_of_2(-(-V // N)),
        )  # fmt: skip
    return out
