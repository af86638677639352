"""A `ModelDraft` that is asked on its own, and whether it drafts what it should."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from assignment.provided.models import TableLM
from assignment.provided.speculative import Draft
from tests.attention import oracles
from tests.grading.closeness import Mismatch, assert_close, assert_equal
from tests.speculative.decoding_models import Watched

__tracebackhide__ = True

VOCAB = 13


class Drafting:
    """A drafter on a session of the grader's.

    model_draft, sample: the submission's.
    filters: temperature, top_k and top_p of the draft.
    """

    def __init__(
        self,
        model_draft: Callable,
        sample: Callable,
        draw,
        batch_size: int,
        filters: tuple,
        capacity: int | None = None,
    ):
        self.model = TableLM(VOCAB, draw.seed())
        self.session = Watched(self.model, batch_size, capacity)
        self.drafter = model_draft(self.session.parts, *filters)
        self._draw, self._sample, self._filters = draw, sample, filters
        self._calls, self._answered = 0, []  # of each row the text asked about, and its draft

    def ask(
        self, sequences: list[list[int]], most: list[int], width: int | None = None
    ) -> list[list[int]]:
        """The drafted tokens, after a check of all that belongs to them."""
        uniforms = self._draw.uniform(len(most), max(most) if width is None else width)
        asked = self._asked(sequences, most)
        draft = self.drafter(sequences, most, uniforms)
        if not isinstance(draft, Draft):
            raise _missing("a Draft", draft, asked)
        assert_equal(draft.num_draft.tolist(), most, what=f"{asked}: num_draft")
        assert_equal(list(draft.tokens.shape), list(uniforms.shape), what=f"{asked}: shape")
        rows = [row[:count] for row, count in zip(draft.tokens.tolist(), most, strict=True)]
        strangers = [token for token in chain(*rows) if not 0 <= token < VOCAB]
        assert_equal(strangers, [], what=f"{asked}: tokens that the model does not have")
        if any(most):
            self._assert_drawn(sequences, rows, draft, uniforms, asked)
        self._answered = list(zip([list(s) for s in sequences], rows, strict=True))
        return rows

    def _asked(self, sequences: list[list[int]], most: list[int]) -> str:
        """Which call it is, for what, and what a loop would not ask."""
        self._calls += 1
        asked = f"call {self._calls}, for {most} tokens after texts of {list(map(len, sequences))}"
        pairs = enumerate(zip(self._answered, sequences, strict=bool(self._answered)))
        others = [row for row, (old, new) in pairs if not _goes_on(*old, new)]
        return f"{asked} (rows {others} do not go on from the last call)" if others else asked

    def _assert_drawn(
        self,
        sequences: list[list[int]],
        rows: list[list[int]],
        draft: Draft,
        uniforms: Tensor,
        asked: str,
    ) -> None:
        """Every token's distribution is the model's after all tokens before it, and the token is
        what `sample` draws from it."""
        b, i = torch.tensor([(b, i) for b, row in enumerate(rows) for i in range(len(row))]).T
        logits = torch.cat(
            [
                self.model(torch.tensor([sequence + new[:-1]]))[0, len(sequence) - 1 :]
                for sequence, new in zip(sequences, rows, strict=True)
                if new
            ]
        )
        law = self._law(logits, torch.float64)
        drafted = [
            f"{asked}: drafted token {place} of row {row}"
            for row, place in zip(b.tolist(), i.tolist(), strict=True)
        ]
        if draft.probs is not None:
            rounding = (self._law(logits, torch.float32).double() - law).abs().max()
            for what, got, right in zip(drafted, draft.probs[b, i], law, strict=True):
                naive = (right + rounding).float()
                assert_close(got, right, naive=naive, axes="token", what=f"{what}: its probs")
        elif self._filters[0] > 0:  # a greedy draft may call itself deterministic
            raise _missing("probs", draft.probs, asked)
        probs = law.float() if draft.probs is None else draft.probs[b, i]
        drawn = self._sample(probs, uniforms[b, i]).tolist()
        for what, got, right in zip(drafted, chain(*rows), drawn, strict=True):
            assert_equal(got, right, what=what)

    def _law(self, logits: Tensor, dtype: torch.dtype) -> Tensor:
        if self._filters[0] == 0:
            return one_hot(logits.argmax(dim=-1), VOCAB).to(dtype)
        return oracles.next_token_probs(logits, *self._filters, dtype)


def _goes_on(text: list[int], drafted: list[int], new: list[int]) -> bool:
    """Whether `new` may be the text after a round: drafted tokens come next, then another one."""
    more = new[len(text) :]
    same = [a == b for a, b in zip(more, drafted, strict=False)]
    right = [*same, False].index(False)
    return new[: len(text)] == text and (right == len(drafted) or len(more) <= right + 1)


def _missing(expected: str, got: object, what: str) -> Mismatch:
    kind = type(got).__name__
    return Mismatch(f"expected {expected}, got {kind}", expected=expected, got=kind, what=what)
