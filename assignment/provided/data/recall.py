"""Associative recall: a sequence shows pairs of a key and a value, then asks keys for their values.

    A4B3C6F1E2 → A?C?F?E?B?    has the answers 4 6 1 2 3

This is multi-query associative recall (MQAR; Arora et al. 2023, Zoology,
https://arxiv.org/abs/2312.04927; BASED, https://arxiv.org/abs/2402.18668). Two things are simpler
than in the data of Zoology: queries fall on all places behind the pairs with equal probability,
where Zoology puts more of them near the pairs, by a power law; and one filler token stands in
between, where Zoology has random tokens. So the number of pairs, with which a model's memory must
grow, and the distance, with which it need not, are one argument each, and a sequence shows each of
its values once.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

FILLER = 0
IGNORE = -100  # what torch.nn.functional.cross_entropy leaves out unless told otherwise


@dataclass(frozen=True, eq=False)
class RecallBatch:
    """Sequences of associative recall, with what a model should say at each query.

    tokens: token ids.
    targets: at a query, the value of the key that stands there; −100 everywhere else. They are
        not shifted: logits[b, s] of a model that has read tokens[b, : s + 1] are for targets[b, s],
        and `cross_entropy(logits.flatten(0, 1), targets.flatten())` is the loss at the queries.
    vocab_size: V. Token 0 is the filler, 1 … V//2 − 1 are keys, V//2 … V − 1 are values.
    """

    tokens: Int[Tensor, "B S"]
    targets: Int[Tensor, "B S"]
    vocab_size: int

    @property
    def num_pairs(self) -> int:
        """Pairs of each sequence, and its queries too."""
        return int((self.targets[0] != IGNORE).sum())

    @property
    def chance(self) -> float:
        """Accuracy of a model that sees a sequence's values but not which key is asked for:
        1 / num_pairs, whichever of the values it says."""
        return 1 / self.num_pairs

    def accuracy(self, answers: Float[Tensor, "B S V"] | Int[Tensor, "B S"]) -> float:
        """Share of all queries that are answered right, from 0 to 1.

        Args:
            answers: logits, of which the largest counts, or token ids. What stands anywhere but at
                a query is ignored.

        Raises:
            ValueError: if answers are neither logits nor ids of this batch's shape.
        """
        shape = tuple(self.targets.shape)
        if answers.shape == (*shape, self.vocab_size):
            answers = answers.argmax(dim=-1)
        elif answers.shape != shape or answers.is_floating_point():
            raise ValueError(
                f"answers: expected logits {(*shape, self.vocab_size)} or integer ids {shape}, "
                f"got {answers.dtype} {tuple(answers.shape)}"
            )
        asked = self.targets != IGNORE
        return (answers.to(asked.device) == self.targets)[asked].double().mean().item()

    def text(self, row: int = 0) -> str:
        """One sequence to read, such as `A4B3 → .B?.A?`: a key in letters, a value as a number from
        0 on, a query with its question mark, and a point for each filler."""
        tokens, targets = self.tokens[row].tolist(), self.targets[row].tolist()
        parts = [
            self._name(token) + ("?" if target != IGNORE else "")
            for token, target in zip(tokens, targets, strict=True)
        ]
        end = 2 * self.num_pairs
        return f"{''.join(parts[:end])} → {''.join(parts[end:])}"

    def _name(self, token: int) -> str:
        if token == FILLER:
            return "."
        if token >= self.vocab_size // 2:
            return str(token - self.vocab_size // 2)
        letters = ""  # A … Z, AA, AB, …, as a spreadsheet names its columns
        while token:
            token, letter = divmod(token - 1, 26)
            letters = chr(ord("A") + letter) + letters
        return letters


def recall_batch(
    num_sequences: int, num_pairs: int, length: int, vocab_size: int, seed: int
) -> RecallBatch:
    """Draw sequences of multi-query associative recall.

    Each sequence is drawn anew, so no key keeps its value. The first 2·num_pairs tokens are the
    pairs, key then value: distinct keys, distinct values, all choices equally probable. Then each
    key is asked for once. Its query is one of the length − 2·num_pairs tokens behind the pairs; all
    ways to place the queries, in any order, are equally probable. Every other token is the filler,
    also behind a query: the answer itself is never shown.

    Args:
        num_sequences: B ≥ 1.
        num_pairs: pairs in each sequence, ≥ 1.
        length: tokens S in a sequence, ≥ 3·num_pairs.
        vocab_size: V ≥ 2·num_pairs + 2, so that V//2 − 1 keys are enough.
        seed: 0 … 2⁶³ − 1. The same arguments give the same batch.

    Raises:
        ValueError: if an argument is not such an integer.
    """
    _check("num_sequences", num_sequences, 1)
    _check("num_pairs", num_pairs, 1)
    _check("length", length, 3 * num_pairs, " = 3 · num_pairs")
    _check("vocab_size", vocab_size, 2 * num_pairs + 2, " = 2 · num_pairs + 2")
    _check("seed", seed, 0)
    if seed >= 2**63:
        raise ValueError(f"seed: expected an integer below 2⁶³, got {seed}")
    generator = torch.Generator().manual_seed(seed)

    def draw(choices: int) -> Int[Tensor, "B pairs"]:
        """num_pairs distinct integers out of 0 … choices − 1 per sequence, in random order."""
        order = torch.rand(num_sequences, choices, generator=generator).argsort(dim=1, stable=True)
        return order[:, :num_pairs]

    end, first_value = 2 * num_pairs, vocab_size // 2
    keys = 1 + draw(first_value - 1)
    values = first_value + draw(vocab_size - first_value)
    queries = end + draw(length - end)  # the place of key i's query, in no order

    tokens = torch.full((num_sequences, length), FILLER)
    tokens[:, 0:end:2] = keys
    tokens[:, 1:end:2] = values
    tokens.scatter_(1, queries, keys)
    targets = torch.full_like(tokens, IGNORE).scatter_(1, queries, values)
    return RecallBatch(tokens, targets, vocab_size)


def _check(name: str, value: int, least: int, formula: str = "") -> None:
    if not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: expected an integer ≥ {least}{formula}, got {value!r}")
