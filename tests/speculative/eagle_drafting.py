"""A drafter in the middle of a sequence, beside the oracle of what it should say."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from tests.grading.closeness import assert_close, assert_equal
from tests.speculative.eagle_oracles import CONFIG, DrafterOracle, draw_weights

__tracebackhide__ = True

VOCAB, WIDTH = CONFIG.vocab_size, CONFIG.d_model
ROUGH = 1e-5  # of the largest number: a fourth of what may be off. Rounding costs a tenth of that.


def assert_near(got: Tensor, expected: Tensor, **where: str) -> None:
    rough = expected + ROUGH * expected.abs().max()
    assert_close(got, expected, naive=rough.float(), **where)


class Drafting:
    """The submission's drafter, which has read the pairs of a sequence.

    new_pairs: (weights, embedding) -> the submission's `DrafterPast`, empty.
    predicted: [D], of the newest token. head: what `draft_chain` and `draft_tree` are given as one.
    """

    def __init__(self, new_pairs: Callable, draw, length: int):
        self.weights, self.embedding = draw_weights(draw), draw.normal(VOCAB, WIDTH)
        self.oracle = DrafterOracle(self.weights, self.embedding)
        self.sequence = draw.integers(0, VOCAB, length).tolist()
        self.features = draw.normal(length - 1, WIDTH)
        self._head = draw.normal(VOCAB, WIDTH, scale=0.5)
        self.pairs = new_pairs(self.weights, self.embedding)
        self.predicted = self._read(self.features, self.sequence[1:])[-1]
        self._later = draw.normal(WIDTH), int(draw.integers(0, VOCAB, 1))

    def head(self, features: Tensor) -> Tensor:
        return features @ self._head.to(features.dtype).T

    def logits(self, drafted: list[int]) -> Tensor:
        """The oracle's logits [len(drafted) + 1, V], after each of the drafted tokens."""
        return self.head(self.oracle.drafting(self.features, self.sequence, drafted))

    def assert_holds_the_same(self) -> None:
        """A pair that comes later gives what it would if nothing had been drafted."""
        assert_equal(self.pairs.length, len(self.features), what="pairs held after drafting")
        feature, token = self._later
        features, tokens = torch.cat([self.features, feature[None]]), [*self.sequence[1:], token]
        expected = self.oracle(features, tokens)[-1:]
        got = self._read(feature[None], [token])
        assert_near(got, expected, axes="pair width", what="the pair fed next")

    def _read(self, features: Tensor, next_tokens: list[int]) -> Tensor:
        held, count = self.pairs.length, len(features)
        mask = torch.ones(count, held + count).tril(held).bool()
        return self.pairs.feed(
            features, torch.tensor(next_tokens), held + torch.arange(count), mask
        )
