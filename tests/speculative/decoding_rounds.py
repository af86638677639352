"""Decoding in rounds at temperature 0, one sequence by itself: what must happen, and what it costs.

The truth is the whole sequence through the model for every token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from tests.attention import oracles


@dataclass(frozen=True)
class Round:
    """What a round began with, what it might draft and did, and how much of that was accepted."""

    sequence: list[int]
    most: int
    drafted: list[int]
    accepted: int


def greedy_rounds(
    target: Callable,
    draft: Callable[[list[int], int], list[int]],
    prompt: list[int],
    max_new_tokens: int,
    num_draft: int,
) -> list[Round]:
    """draft: (sequence, most) -> tokens."""
    sequence, rounds = list(prompt), []
    while left := len(prompt) + max_new_tokens - len(sequence):
        most = min(num_draft, left - 1)
        drafted = draft(sequence, most)
        right = oracles.greedy(target, sequence, len(drafted) + 1)
        accepted = [a == b for a, b in zip_longest(drafted, right)].index(False)
        rounds.append(Round(list(sequence), most, drafted, accepted))
        sequence += right[: accepted + 1]
    return rounds


def target_tokens(rounds: list[Round]) -> int:
    """Fed to the target: the prompt, then the newest token of each round, and all that is drafted.

    So each token once, but for the last; and those that are rejected.
    """
    return len(rounds[0].sequence) - 1 + sum(1 + len(round_.drafted) for round_ in rounds)


def draft_tokens(rounds: list[Round]) -> int:
    """Fed to a draft model that drafts in these rounds: the prompt and the drafted tokens but the
    last of each round; then the newest token, and after a full round the last drafted one too."""
    drafting = [round_ for round_ in rounds if round_.drafted]
    total = 0
    for number, round_ in enumerate(drafting):
        before = drafting[number - 1]
        full = before.accepted == len(before.drafted)
        new = len(round_.sequence) if number == 0 else 1 + full
        total += new + len(round_.drafted) - 1
    return total
