"""The models of the tests of decoding, and sessions of theirs that watch who uses them."""

from __future__ import annotations

import torch
from torch import Tensor

from assignment.provided.models import TableLM
from assignment.provided.models.table_lm import TableSession
from assignment.provided.speculative import SessionParts


class Imitator:
    """A draft model that agrees with the target after about two prefixes in three."""

    def __init__(self, target: TableLM, seed: int):
        self._target, self._other = target, TableLM(target.vocab_size, seed)

    def __call__(self, tokens: Tensor) -> Tensor:
        agrees = tokens.cumsum(dim=1) % 3 > 0
        return self._target(tokens).where(agrees[:, :, None], self._other(tokens))


class Watched:
    """A session of the grader's, and what a submission gets of it: `parts`.

    The logits of padding are those of the last token of the vocabulary. More tokens than `capacity`
    in a row are refused.
    """

    def __init__(self, model, batch_size: int, capacity: int | None = None):
        self._session = TableSession(model, batch_size, capacity)
        self.parts = SessionParts(self._feed, self._session.truncate, lambda: self.lengths)

    @property
    def lengths(self) -> Tensor:
        return self._session.lengths

    @property
    def num_calls(self) -> int:
        return self._session.num_calls

    @property
    def row_totals(self) -> list[int]:
        """How many tokens each row was fed, whatever was taken back."""
        counts = [call.num_tokens for call in self._session.calls]
        return [sum(row) for row in zip(*counts, strict=True)] or [0] * len(self.lengths)

    def _feed(self, tokens: Tensor, num_tokens: Tensor | None = None) -> Tensor:
        logits = self._session(tokens, num_tokens)
        if num_tokens is not None:
            padding = torch.arange(tokens.shape[1]) >= num_tokens[:, None]
            logits[padding] = torch.linspace(0, 20, logits.shape[-1])
        return logits
