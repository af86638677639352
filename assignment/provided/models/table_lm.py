"""A language model for tests: its probabilities are known fractions and depend on everything.

The next token's probabilities are a permutation of fixed integer weights over their sum. Which
permutation is decided by a hash of the whole prefix, order and positions included. So the exact
law of any decoding method can be computed with fractions, and a decoder that drops, repeats,
reorders or shifts one token gets other probabilities from then on.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .sessions import ReplaySession, checked_counts

PRIME = 2**31 - 1  # hashes are sums modulo this prime
MIXER = 2_654_435_761  # spreads a hash over the table; its product with one fits in 63 bits
TABLE_ROWS = 4093


class TableLM:
    """A language model whose every next-token probability is weights[i] / denominator.

    Args:
        vocab_size: V.
        seed: decides the hash and the table.
        weights: V integers ≥ 0 that each prefix permutes. Default 1 … V: no two tokens are equally
            probable, and the denominator is V(V+1)/2. A weight of 0 gives a logit of −inf.
        max_length: longest sequence.

    `model(tokens [B, T]) -> logits [B, T, V]` treats each row as a whole sequence from its start:
    logits[:, t] = log of the weights after tokens[:, : t+1]. `model.session(batch_size)` feeds
    tokens bit by bit and counts what it is fed.
    """

    def __init__(
        self,
        vocab_size: int,
        seed: int = 0,
        weights: Sequence[int] | None = None,
        max_length: int = 4096,
    ):
        weights = list(range(1, vocab_size + 1)) if weights is None else list(weights)
        if len(weights) != vocab_size or min(weights) < 0 or sum(weights) == 0:
            raise ValueError(
                f"weights: expected {vocab_size} integers ≥ 0, not all 0, got {weights}"
            )
        self.vocab_size, self.max_length = vocab_size, max_length
        self.denominator = sum(weights)
        generator = torch.Generator().manual_seed(seed)
        self._start = int(torch.randint(PRIME, (), generator=generator))
        self._multipliers = torch.randint(1, PRIME, (max_length,), generator=generator)
        order = torch.rand(TABLE_ROWS, vocab_size, generator=generator).argsort(dim=1)
        self._table = torch.tensor(weights)[order]
        self._logits = self._table.float().log()

    def __call__(self, tokens: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """log(weights) after each prefix.

        Raises:
            ValueError: if a token is not in 0 … V−1 or a row is longer than max_length.
        """
        return self._logits[self._table_rows(tokens)]

    def weights(self, prefix: Sequence[int]) -> list[int]:
        """Integer weights of the next token after `prefix`, one per token of the vocabulary. The
        probability of token i is weights[i] / denominator."""
        if not prefix:
            return self._table[_mix(self._start)].tolist()
        return self._table[self._table_rows(torch.tensor([list(prefix)]))[0, -1]].tolist()

    def session(self, batch_size: int, capacity: int | None = None) -> "TableSession":
        """A Session of `batch_size` empty rows, each of which may hold up to `capacity` tokens."""
        return TableSession(self, batch_size, capacity)

    def _table_rows(self, tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B T"]:
        # hash of a prefix = start + Σ (token at i + 1) · multiplier[i] modulo PRIME
        length = tokens.shape[1]
        if length > self.max_length:
            raise ValueError(
                f"tokens: {length} in a row, this model's max_length is {self.max_length}"
            )
        if tokens.numel() and not 0 <= int(tokens.min()) <= int(tokens.max()) < self.vocab_size:
            raise ValueError(
                f"tokens: expected ids from 0 to {self.vocab_size - 1}, "
                f"got {int(tokens.min())} to {int(tokens.max())}"
            )
        terms = (tokens + 1) * self._multipliers[:length] % PRIME
        return _mix((terms.cumsum(dim=1) + self._start) % PRIME)


def _mix(hash_: Tensor | int) -> Tensor | int:
    return ((hash_ * MIXER) >> 20) % TABLE_ROWS


@dataclass(frozen=True)
class Call:
    """One call of a session: tokens [B, columns], of which num_tokens[b] were real in row b."""

    num_tokens: tuple[int, ...]
    columns: int


class TableSession(ReplaySession):
    """A session over a TableLM that keeps account of its calls.

    calls: one `Call` each, in order; num_calls: how many; tokens: real tokens fed; padded_tokens:
    rows × columns fed. Going back with `truncate` takes nothing off the account.
    """

    def __init__(self, model: TableLM, batch_size: int, capacity: int | None = None):
        super().__init__(model, batch_size)
        self.capacity = capacity
        self.calls: list[Call] = []

    def __call__(
        self, tokens: Int[Tensor, "B T"], num_tokens: Int[Tensor, "B"] | None = None
    ) -> Float[Tensor, "B T V"]:
        """Feed tokens and return the logits after each.

        Raises:
            ValueError: if shapes do not fit the batch, a row would exceed the capacity, or a real
                token is not in the vocabulary. Nothing has been fed or counted then.
        """
        counts = checked_counts(tokens, num_tokens, len(self._rows))
        for b, (row, count) in enumerate(zip(self._rows, counts, strict=True)):
            if self.capacity is not None and len(row) + count > self.capacity:
                raise ValueError(
                    f"tokens: row {b} holds {len(row)} and was fed {count} more, "
                    f"its capacity is {self.capacity}"
                )
        logits = super().__call__(tokens, num_tokens)
        self.calls.append(Call(tuple(counts), tokens.shape[1]))
        return logits

    @property
    def num_calls(self) -> int:
        return len(self.calls)

    @property
    def tokens(self) -> int:
        return sum(sum(call.num_tokens) for call in self.calls)

    @property
    def padded_tokens(self) -> int:
        return sum(len(call.num_tokens) * call.columns for call in self.calls)
