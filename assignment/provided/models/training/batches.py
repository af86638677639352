"""What a language model is trained on: documents in batches, and the loss of the next token."""

import random
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

SORTED = 64  # batches that are sorted by length together


class Batches:
    """Documents in batches: batches(step) -> tokens [B, T], real [B, T], for step 0, 1, ….

    A document is a row from its first token on, and `real` is False where a shorter one is padded
    (with 0). Documents of a batch are about equally long, so that little is: out of a random order,
    SORTED batches at a time are sorted by length, cut up and shuffled.

    An epoch, all documents once (but for fewer than a batch that may remain), is followed by
    another in an order of its own. batches(step) depends on the step and the arguments only.

    Args:
        documents: token ids.
        batch_size: B, documents of a batch.
        seed: decides the orders.

    Raises:
        ValueError: if there are fewer documents than batch_size.
    """

    def __init__(self, documents: Sequence[Sequence[int]], batch_size: int, seed: int):
        if not 1 <= batch_size <= len(documents):
            raise ValueError(f"batch_size: expected 1 … {len(documents)}, got {batch_size}")
        self.documents, self.batch_size, self.seed = documents, batch_size, seed
        self._epoch, self._order = -1, []

    def __call__(self, step: int) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
        if step < 0:
            raise ValueError(f"step: expected 0 or more, got {step}")
        epoch, index = divmod(step, len(self.documents) // self.batch_size)
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._shuffled(epoch)
        return padded([self.documents[i] for i in self._order[index]])

    def _shuffled(self, epoch: int) -> list[list[int]]:
        """The documents of each batch of an epoch."""
        chance = random.Random(f"{self.seed} {epoch}")
        order = list(range(len(self.documents)))
        chance.shuffle(order)
        batches, size = [], self.batch_size
        whole = len(order) // size * size  # cut before sorting, or the longest would be left over
        for start in range(0, whole, SORTED * size):
            alike = order[start : min(start + SORTED * size, whole)]
            alike.sort(key=lambda i: len(self.documents[i]))
            batches += [alike[i : i + size] for i in range(0, len(alike), size)]
        chance.shuffle(batches)
        return batches


def padded(
    documents: Sequence[Sequence[int]],
) -> tuple[Int[Tensor, "B T"], Bool[Tensor, "B T"]]:
    """Documents as rows, with 0 behind the shorter ones, and where they are real."""
    lengths = torch.tensor([len(document) for document in documents])
    real = torch.arange(int(lengths.max())) < lengths.unsqueeze(1)
    tokens = torch.zeros(real.shape, dtype=torch.int64)
    tokens[real] = torch.tensor([token for document in documents for token in document])
    return tokens, real


def next_token_loss(
    logits: Float[Tensor, "B T V"],
    tokens: Int[Tensor, "B T"],
    real: Bool[Tensor, "B T"] | None = None,
) -> Float[Tensor, ""]:
    """Mean of −log p(token t + 1 | tokens 0 … t), in nats a token.

    Args:
        logits: what the model returns for `tokens`; the last column predicts nothing we know.
        tokens: the tokens that it was given, which are also the answers, one place further on.
        real: False where `tokens` is padding, which counts neither in the sum nor in the number.
            Default: every token is real.

    Raises:
        ValueError: if the shapes do not fit, or if there is no token to predict.
    """
    if logits.dim() != 3 or logits.shape[:2] != tokens.shape:
        raise ValueError(
            f"logits: expected [B, T, V] for tokens {list(tokens.shape)}, got {list(logits.shape)}"
        )
    predicted, answers = logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
    if real is not None and real.shape != tokens.shape:
        raise ValueError(f"real: expected {list(tokens.shape)}, got {list(real.shape)}")
    if real is not None:
        counted = real[:, 1:].flatten()
        predicted, answers = predicted[counted], answers[counted]
    if not len(answers):
        raise ValueError(f"tokens: no token to predict in {list(tokens.shape)}")
    return F.cross_entropy(predicted, answers)
