"""What a round must give, and its rates: by enumeration, with fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import zip_longest

from torch import Tensor

from tests.speculative.law import Law, NextLaw


def round_law(draft_law: NextLaw, target_law: NextLaw, num_draft: int) -> Law:
    """What a round gives: tokens x, each accepted with min(p, q), then one by max(q − p, 0) or q.

    For p(x) · min(1, q/p) = min(p, q), and what is rejected in all, 1 − Σ min(p, q), is the sum of
    max(q − p, 0): normalised and times that, it is itself again.
    """
    law: Law = {}
    accepted: Law = {(): Fraction(1)}
    for i in range(num_draft + 1):
        still: Law = {}
        for tokens, mass in accepted.items():
            p = draft_law(tokens) if i < num_draft else ()
            pairs = zip_longest(p, target_law(tokens), fillvalue=Fraction(0))
            for x, (p_x, q_x) in enumerate(pairs):
                if min(p_x, q_x):
                    still[(*tokens, x)] = mass * min(p_x, q_x)
                if q_x > p_x:
                    law[(*tokens, x)] = mass * (q_x - p_x)
        accepted = still
    return law


def share_accepted(p: Tensor, q: Tensor) -> Tensor:
    """Σₓ p(x) · min(1, q(x) / p(x))."""
    return (p * (q / p).clamp(max=1)).sum(dim=-1)


def mean_tokens(acceptance: float, num_draft: int) -> Fraction:
    """Over the number of accepted tokens n: n + 1 tokens, with probability αⁿ(1 − α), or α^γ."""
    rate = Fraction(acceptance)
    fewer = sum((n + 1) * rate**n * (1 - rate) for n in range(num_draft))
    return fewer + (num_draft + 1) * rate**num_draft


def speedup(acceptance: float, num_draft: int, draft_cost: float) -> Fraction:
    """Target calls that the tokens of a round would take, over what the round takes."""
    round_cost = 1 + sum(Fraction(draft_cost) for _ in range(num_draft))
    return mean_tokens(acceptance, num_draft) / round_cost


def best_num_drafts(acceptance: float, draft_cost: float, most: int) -> list[int]:
    """All that are best, but for a rounding."""
    speedups = [speedup(acceptance, n, draft_cost) for n in range(most + 1)]
    enough = max(speedups) * (1 - Fraction(1, 10**12))
    return [n for n, value in enumerate(speedups) if value >= enough]
