"""Targets with features, for EAGLE's tests: a feature is a function of the tokens that are seen.

`FeatureModel` is a `TreeModel` whose hidden states are vectors. That of a prefix is what a given
drafter predicts from the features before it, and noise: so the drafter is right often, though never
exactly. What the submission has asked the head about is kept, round by round.
"""

from __future__ import annotations

import torch
from torch import Tensor

from assignment.provided.models import TableLM
from tests.grading.closeness import Mismatch
from tests.speculative.eagle_oracles import CONFIG, DrafterOracle, draw_weights
from tests.speculative.tree_model import TreeModel

__tracebackhide__ = True

LONGEST = 200  # tokens and nodes: each feature is made from all before it
NEAR = 1e-3  # of two features: rounding moves one by 1e-6 of its size, the noise by a half


class FeatureModel(TreeModel):
    """asked: for each number of `feed`s so far, the features [N, D] that `logits` was given."""

    def __init__(self, draw, noise: float = 0.4):
        super().__init__(TableLM(CONFIG.vocab_size))
        self.weights = draw_weights(draw)
        self.embedding = draw.normal(CONFIG.vocab_size, CONFIG.d_model)
        self.drafter = DrafterOracle(self.weights, self.embedding)
        self.asked: dict[int, list[Tensor]] = {}
        self._head = draw.normal(CONFIG.vocab_size, CONFIG.d_model, scale=0.6)
        self._seed, self._noise = draw.seed(), noise
        self._features: dict[tuple[int, ...], Tensor] = {}

    def feed(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        if len(self.slots) + len(tokens) > LONGEST:
            raise ValueError(
                f"feed: {len(tokens)} tokens behind {len(self.slots)}, expected at most {LONGEST}"
            )
        return super().feed(tokens, positions, mask)

    def state(self, prefix: tuple[int, ...]) -> Tensor:
        for length in range(1, len(prefix) + 1):
            start = prefix[:length]
            if start not in self._features:
                self._features[start] = self._new_feature(start)
        return self._features[prefix]

    def states(self, sequence: list[int]) -> Tensor:
        """The feature of each of its tokens, [T, D]."""
        self.state(tuple(sequence))
        return torch.stack([self._features[tuple(sequence[: i + 1])] for i in range(len(sequence))])

    def _new_feature(self, prefix: tuple[int, ...]) -> Tensor:
        generator = torch.Generator().manual_seed(hash((self._seed, *prefix)) % 2**63)
        noise = torch.randn(CONFIG.d_model, generator=generator)
        if len(prefix) == 1:
            return noise
        before = torch.stack([self._features[prefix[: i + 1]] for i in range(len(prefix) - 1)])
        return (self.drafter(before, prefix[1:])[-1] + self._noise * noise).float()

    def head(self, features: Tensor) -> Tensor:
        """Logits [..., V], without a note of it."""
        return features @ self._head.to(features.dtype).T

    def logits(self, hidden: Tensor) -> Tensor:
        rows = hidden.detach().reshape(-1, CONFIG.d_model)
        self.asked.setdefault(len(self.feeds), []).append(rows)
        return self.head(hidden)

    def assert_asked(self, call: int, expected: Tensor, what: str) -> None:
        """That before feed number `call`, the head was asked about the rows of `expected`."""
        asked = torch.cat(self.asked.get(call, [torch.zeros(0, CONFIG.d_model)])).double()
        for row, feature in enumerate(expected):
            distances = (asked - feature).abs().amax(dim=1)
            nearest = float(distances.min()) if len(distances) else float("inf")
            if not nearest <= NEAR * float(feature.abs().max()):
                line = (
                    f"before target call {call}: the head was never asked about the feature that "
                    f"is predicted {what} {row}; the nearest it was asked about is "
                    f"{nearest:.3g} away"
                )
                raise Mismatch(line, expected=f"the feature {what} {row}", got="another one")


class RationalModel(TreeModel):
    """Of three tokens, and a drafter for it, whose distributions p and q are known fractions.

    All of them are permutations of (1, 1, 2) / 4. A feature begins with the log-weights of the
    target's `TableLM`, which are the head's logits. The drafter looks at the token alone: all its
    weights but those of the embedding are 0. No p of a first draft is q.
    """

    def __init__(self, draw):
        self.prompt = [0, 2, 1]
        table = torch.tensor([[1, 1, 2], [2, 1, 1], [1, 2, 1]])
        self.embedding = torch.cat([table.log(), torch.zeros(3, CONFIG.d_model - 3)], dim=1)
        self.weights = {name: 0 * weight for name, weight in draw_weights(draw).items()}
        self.weights["join.weight"][:, CONFIG.d_model :] = torch.eye(CONFIG.d_model)
        while True:
            model = TableLM(3, draw.seed(), weights=(1, 1, 2))
            if all(self._differ(model, first, table[first].tolist()) for first in range(3)):
                break
        super().__init__(model)
        self._features: dict[tuple[int, ...], Tensor] = {}

    def _differ(self, model: TableLM, first: int, p: list[int]) -> bool:
        q = model.weights([*self.prompt, first])
        return q != p and any(model.weights([*self.prompt, first, x]) != q for x in range(3))

    def state(self, prefix: tuple[int, ...]) -> Tensor:
        if prefix not in self._features:
            logits = self.model(torch.tensor([prefix]))[0, -1]
            generator = torch.Generator().manual_seed(hash(prefix) % 2**63)
            rest = torch.randn(CONFIG.d_model - len(logits), generator=generator)
            self._features[prefix] = torch.cat([logits, rest])
        return self._features[prefix]

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden[..., : self.model.vocab_size]
