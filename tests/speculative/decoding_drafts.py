"""Drafts of the grader's own: what `propose` is asked is known, and so is what it answers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assignment.provided.speculative import Draft
from tests.attention import oracles
from tests.speculative.decoding_models import Watched


@dataclass(frozen=True)
class Question:
    """What `propose` was asked in one round, and how many tokens each row of the target had been
    fed until then."""

    sequences: list[list[int]]
    most: list[int]
    uniforms: Tensor
    fed: list[int]


class Asked:
    """Passes questions on and remembers those in which any token may be drafted.

    What a submission gets is `propose`, a function.
    """

    def __init__(self, propose: Callable, target: Watched):
        self._propose, self._target = propose, target
        self.questions: list[Question] = []

    def propose(self, sequences: list[list[int]], most: list[int], uniforms: Tensor) -> Draft:
        if any(most):
            copies = [list(sequence) for sequence in sequences]
            question = Question(copies, list(most), uniforms.clone(), self._target.row_totals)
            self.questions.append(question)
        return self._propose(sequences, most, uniforms)


class Planned:
    """Deterministic drafts, of which a plan says how often they are what the target says at
    temperature 0. Behind them stands a number that is no token.

    plan[b]: (drafted, right) of row b by the length of its sequence, modulo the plan's; fewer where
    it may not draft so many. wrong: a token for a right one, where the draft is wrong.
    """

    def __init__(
        self,
        target: Callable,
        plan: Sequence[Sequence[tuple[int, int]]],
        wrong: Callable[[int], int] | None = None,
    ):
        self._target, self._plan = target, plan
        self._wrong = wrong or (lambda token: (token + 1) % target.vocab_size)

    def row(self, b: int) -> Callable[[list[int], int], list[int]]:
        """The drafts of row b: (sequence, most) -> tokens."""
        plan = self._plan[b]

        def draft(sequence: list[int], most: int) -> list[int]:
            drafted, right = (min(count, most) for count in plan[len(sequence) % len(plan)])
            truth = oracles.greedy(self._target, sequence, drafted)
            return truth[:right] + [self._wrong(token) for token in truth[right:]]

        return draft

    def propose(self, sequences: list[list[int]], most: list[int], uniforms: Tensor) -> Draft:
        asked = enumerate(zip(sequences, most, strict=True))
        draft = Draft.of([self.row(b)(*row) for b, row in asked], uniforms.shape[1])
        behind = torch.arange(uniforms.shape[1]) >= draft.num_draft[:, None]
        return Draft(draft.tokens.masked_fill(behind, 10**6), draft.num_draft)


def sure_drafts(model: Callable) -> Callable:
    """`propose` that drafts what a model says at temperature 0, and calls it deterministic."""

    @functools.cache
    def greedy(sequence: tuple[int, ...], count: int) -> list[int]:
        return oracles.greedy(model, list(sequence), count)

    def propose(sequences: list[list[int]], most: list[int], uniforms: Tensor) -> Draft:
        rows = [greedy(tuple(s), count) for s, count in zip(sequences, most, strict=True)]
        return Draft.of(rows, uniforms.shape[1])

    return propose
