"""Sessions: a batch of sequences in progress, fed a few tokens at a time.

A session hides how the past is remembered. `ReplaySession` keeps the tokens and recomputes: slow
and trivially right. `CachedSession` keeps keys and values in caches that it is given. Fed the same
tokens, both return the same logits.

Batches may be ragged. New tokens come right-padded, [B, T], and num_tokens[b] ≤ T says how many of
row b's columns are real; the rest of the row is ignored whatever it holds.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .llama import Llama


@runtime_checkable
class LayerCache(Protocol):
    """The keys and values that one layer has seen."""

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        """Tokens held per row."""

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        """Positions of the next `num_new` tokens of each row: lengths[b] + 0 … num_new − 1."""

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        """Add row b's first num_tokens[b] columns (default: all) behind what row b holds."""

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        """All keys and values; S is the longest row, what lies past a row's length is padding."""

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """Forget the tokens of row b from lengths[b] on."""


@runtime_checkable
class Session(Protocol):
    """A batch of sequences in progress."""

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        """Tokens fed per row."""

    def __call__(
        self, tokens: Int[Tensor, "B T"], num_tokens: Int[Tensor, "B"] | None = None
    ) -> Float[Tensor, "B T V"]:
        """Feed num_tokens[b] tokens to row b; return the logits after each. Padding columns of the
        result are unspecified but finite. If a call raises, nothing has been fed."""

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """Go back to when row b had been fed lengths[b] tokens."""


class ReplaySession:
    """Remembers the tokens and nothing else; every call runs the model over the whole sequences.

    Args:
        model: tokens [B, S] -> logits [B, S, V], causal: `Llama`, `TableLM` or a function.
        batch_size: rows.
    """

    def __init__(self, model: Callable[[Tensor], Tensor], batch_size: int):
        self.model = model
        self._rows: list[list[int]] = [[] for _ in range(batch_size)]

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return torch.tensor([len(row) for row in self._rows], dtype=torch.int64)

    @torch.no_grad()
    def __call__(
        self, tokens: Int[Tensor, "B T"], num_tokens: Int[Tensor, "B"] | None = None
    ) -> Float[Tensor, "B T V"]:
        counts = checked_counts(tokens, num_tokens, len(self._rows))
        fed = [new[:count] for new, count in zip(tokens.tolist(), counts, strict=True)]
        rows = [past + new for past, new in zip(self._rows, fed, strict=True)]
        every_logit = self.model(_right_padded(rows))
        result = every_logit.new_zeros(*tokens.shape, every_logit.shape[-1])
        for b, (past, count) in enumerate(zip(self._rows, counts, strict=True)):
            result[b, :count] = every_logit[b, len(past) : len(past) + count]
        self._rows = rows
        return result

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        kept = lengths.tolist()
        held = [len(row) for row in self._rows]
        if len(kept) != len(held) or any(not 0 <= k <= h for k, h in zip(kept, held, strict=True)):
            raise ValueError(f"lengths: expected {len(held)} values from 0 to {held}, got {kept}")
        self._rows = [row[:k] for row, k in zip(self._rows, kept, strict=True)]


class SessionOverCaches:
    """What sessions over caches have in common: a call that fails leaves the caches as they were.

    Args:
        caches: all hold the same rows and lengths.
    """

    def __init__(self, caches: Sequence[LayerCache]):
        self.caches = list(caches)

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.caches[0].lengths

    @torch.no_grad()
    def __call__(
        self, tokens: Int[Tensor, "B T"], num_tokens: Int[Tensor, "B"] | None = None
    ) -> Float[Tensor, "B T V"]:
        counts = checked_counts(tokens, num_tokens, tokens.shape[0])
        if num_tokens is not None:
            tokens = _without_padding_ids(tokens, counts)
        before = self.lengths
        try:
            return self._feed(tokens, num_tokens)
        except Exception:
            self._undo(before)
            raise

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        for cache in self.caches:
            cache.truncate(lengths)

    def _feed(self, tokens: Tensor, num_tokens: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _undo(self, lengths: Tensor) -> None:
        """After a failed call: take back what the layers before the failure appended."""
        for cache in self.caches:
            # A cache that cannot roll back must not hide the error that brought us here.
            with suppress(Exception):
                if not torch.equal(cache.lengths, lengths):
                    cache.truncate(lengths)


class CachedSession(SessionOverCaches):
    """Plumbing between a Llama, one cache per layer and an attention function.

    Args:
        model: the Llama.
        caches: one per layer, layer 0 first; all hold the same rows and lengths.
        attention: attention(q [B,N,T,H], k [B,K,S,H], v [B,K,S,H], kv_lengths=[B],
            num_tokens=[B] or None) -> [B,N,T,H]. k and v include the new tokens.
    """

    def __init__(
        self, model: Llama, caches: Sequence[LayerCache], attention: Callable[..., Tensor]
    ):
        if len(caches) != model.config.num_layers:
            raise ValueError(
                f"caches: expected one per layer, {model.config.num_layers}, got {len(caches)}"
            )
        super().__init__(caches)
        self.model, self.attention = model, attention

    def _feed(self, tokens: Tensor, num_tokens: Tensor | None) -> Tensor:
        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache = self.caches[layer]
            cache.append(k, v, num_tokens)
            keys, values = cache.keys_values()
            return self.attention(q, keys, values, kv_lengths=cache.lengths, num_tokens=num_tokens)

        # Once and before any layer appends: afterwards the caches' lengths include the new tokens.
        positions = self.caches[0].positions(tokens.shape[1])
        return self.model(tokens, positions, attend)


def checked_counts(tokens: Tensor, num_tokens: Tensor | None, batch_size: int) -> list[int]:
    """num_tokens as a list, after checking that it and `tokens` fit a batch of `batch_size`."""
    if tokens.dim() != 2 or tokens.shape[0] != batch_size:
        raise ValueError(f"tokens: expected shape [{batch_size}, T], got {list(tokens.shape)}")
    columns = tokens.shape[1]
    if num_tokens is None:
        return [columns] * batch_size
    counts = num_tokens.tolist()
    if num_tokens.shape != (batch_size,) or not all(0 <= count <= columns for count in counts):
        raise ValueError(
            f"num_tokens: expected {batch_size} values from 0 to {columns} "
            f"(tokens has {columns} columns), got {counts}"
        )
    return counts


def _right_padded(rows: list[list[int]]) -> Int[Tensor, "B S"]:
    width = max([1, *map(len, rows)])
    return torch.tensor([row + [0] * (width - len(row)) for row in rows])


def _without_padding_ids(tokens: Int[Tensor, "B T"], counts: list[int]) -> Int[Tensor, "B T"]:
    """Padding may hold any number, but the embedding only knows token ids: use 0."""
    columns = torch.arange(tokens.shape[1])
    return tokens.masked_fill(columns >= torch.tensor(counts).unsqueeze(1), 0)
