"""An n-gram model, the baseline of a trained model's loss: interpolated, modified Kneser–Ney.

    p_n(w | c) = (count(c w) − D) / Σ_v count(c v) + γ(c) · p_{n−1}(w | c without its first token)
    p_0(w) = 1 / vocab_size

The discount D has one value for counts of 1, one for 2 and one for more; γ(c) is what the discounts
set free. Only the longest n-grams are counted by how often they occur. A shorter one is asked where
the longer one was not seen, so it counts how many different tokens it was seen behind; at the start
of a document, where nothing stands before it, it counts how often it occurs.

A document is a list of token ids. Its first token (begin) is given, all others are predicted, the
end token too. No n-gram reaches over the start of a document.

Source: Chen and Goodman, An Empirical Study of Smoothing Techniques for Language Modeling, 1998.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Order:
    """The n-grams of one length n. An n-gram's number is its place in `keys`; its key is
    (number of its first n − 1 tokens) · vocab_size + (its last token)."""

    keys: np.ndarray  # ascending
    share: np.ndarray  # by n-gram: (count − D) / Σ of the counts behind the same context
    freed: np.ndarray  # by context, an (n − 1)-gram: γ, which is 1 where nothing was seen behind it

    def numbers(self, keys: np.ndarray) -> np.ndarray:
        """The numbers of the n-grams with these keys; −1 for one that was never seen."""
        places = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[places] == keys, places, -1)


@dataclass(frozen=True)
class NGram:
    """What `fit` returns."""

    vocab_size: int
    orders: list[Order]  # of single tokens first

    def log_probabilities(self, document: Sequence[int]) -> np.ndarray:
        """log p(token t | tokens 0 … t − 1) in nats, for t = 1 … len(document) − 1.

        Raises:
            ValueError: if the document is empty or a token is not in the vocabulary.
        """
        tokens = _joined([document], self.vocab_size)
        p = np.full(len(tokens), 1 / self.vocab_size)
        contexts = np.zeros(len(tokens), dtype=np.int64)  # number of each token's context, or −1
        for order in self.orders:
            numbers = order.numbers(contexts * self.vocab_size + tokens)
            p *= np.where(contexts >= 0, order.freed[contexts], 1)
            p += np.where(numbers >= 0, order.share[numbers], 0)
            # A token's next longer context is the n-gram that ends right before it.
            contexts = np.concatenate([[-1], numbers[:-1]])
        return np.log(p[1:])


def fit(documents: Sequence[Sequence[int]], order: int, vocab_size: int) -> NGram:
    """Count the n-grams of `documents`.

    Args:
        documents: token ids, 0 … vocab_size − 1.
        order: the length n of the longest n-grams.
        vocab_size: tokens that may be asked for, seen or not.

    Raises:
        ValueError: if order < 1, a document is empty or a token is not in the vocabulary.
    """
    if order < 1:
        raise ValueError(f"order: expected at least 1, got {order}")
    tokens = _joined(documents, vocab_size)
    lengths = np.array([len(document) for document in documents])
    order = min(order, lengths.max())  # there are no longer ones
    place = np.arange(len(tokens)) - np.repeat(lengths.cumsum() - lengths, lengths)

    # keys[n], and the number of the n-gram that ends at each token; the only 0-gram is number 0
    keys = [np.zeros(1, dtype=np.int64)]
    numbers = [np.zeros(len(tokens), dtype=np.int64)]
    for n in range(1, order + 1):
        ends = np.flatnonzero(place >= n - 1)
        contexts = numbers[n - 1][ends - 1]
        found, inverse = np.unique(contexts * vocab_size + tokens[ends], return_inverse=True)
        keys.append(found)
        numbers.append(np.full(len(tokens), -1, dtype=np.int64))
        numbers[n][ends] = inverse

    orders = []
    for n in range(1, order + 1):
        # A document's first token is given: it is not counted as a 1-gram.
        starts, later = (place == n - 1) & (place > 0), place >= n
        if n == order:
            behind = numbers[n][later]
        else:  # one for each different (n + 1)-gram, whatever its first token
            behind = np.empty(len(keys[n + 1]), dtype=np.int64)
            behind[numbers[n + 1][later]] = numbers[n][later]
        counts = np.bincount(np.concatenate([behind, numbers[n][starts]]), minlength=len(keys[n]))
        orders.append(_discounted(keys[n], counts, keys[n] // vocab_size, len(keys[n - 1])))
    return NGram(vocab_size, orders)


def _discounted(
    keys: np.ndarray, counts: np.ndarray, contexts: np.ndarray, num_contexts: int
) -> Order:
    discounts = _discounts(counts)[counts.clip(max=3)]
    total = np.bincount(contexts, counts, num_contexts)
    freed = np.bincount(contexts, discounts, num_contexts)
    return Order(
        keys=keys,
        share=(counts - discounts) / total[contexts].clip(min=1),
        freed=np.divide(freed, total, out=np.ones(num_contexts), where=total > 0),
    )


def _discounts(counts: np.ndarray) -> np.ndarray:
    """D for counts of 0, 1, 2 and more: what leaving one out suggests. Chen and Goodman, eq. 26."""
    times = np.bincount(counts.clip(max=5), minlength=6)  # how many n-grams have each count
    if not times[1:5].all():
        return np.array([0, 0.5, 1, 1.5])  # no estimate: few n-grams, or few rare ones
    y = times[1] / (times[1] + 2 * times[2])
    estimates = [k - (k + 1) * y * times[k + 1] / times[k] for k in (1, 2, 3)]
    return np.array([0, *np.maximum(estimates, y)])  # never 0: what was not seen stays possible


def _joined(documents: Sequence[Sequence[int]], vocab_size: int) -> np.ndarray:
    if not documents or not all(map(len, documents)):
        raise ValueError("documents: expected at least one token in each, and one document")
    tokens = np.concatenate([np.asarray(document, dtype=np.int64) for document in documents])
    if not 0 <= tokens.min() <= tokens.max() < vocab_size:
        raise ValueError(
            f"documents: token ids from {tokens.min()} to {tokens.max()} "
            f"do not fit vocab_size {vocab_size}"
        )
    return tokens
