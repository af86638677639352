"""`lookup` compares all windows at once in a tensor; the index is one dictionary for all rows."""

import itertools

import torch
from jaxtyping import Float
from torch import Tensor

from assignment.provided.speculative import NO_TOKEN, Draft


def lookup(
    sequence: list[int], num_draft: int, max_ngram: int = 3, min_ngram: int = 1
) -> list[int]:
    if num_draft < 0 or min_ngram < 1 or min_ngram > max_ngram:
        raise ValueError(f"{num_draft=}, {max_ngram=}, {min_ngram=}")
    tokens = torch.tensor(sequence, dtype=torch.int64)
    for n in reversed(range(min_ngram, max_ngram + 1)):
        if n >= len(tokens):
            continue
        alike = (tokens[:-1].unfold(0, n, 1) == tokens[-n:]).all(dim=1).nonzero()
        if len(alike):
            return list(itertools.islice(itertools.cycle(sequence[alike[-1] + n :]), num_draft))
    return []


class PromptLookup:
    def __init__(self, max_ngram: int = 3, min_ngram: int = 1):
        if min_ngram < 1 or min_ngram > max_ngram:
            raise ValueError(f"{max_ngram=}, {min_ngram=}")
        self.max_ngram, self.min_ngram = max_ngram, min_ngram
        self.followers = {}  # (row, token, …) -> where what followed them stands
        self.lengths = {}

    def __call__(
        self, sequences: list[list[int]], most: list[int], uniforms: Float[Tensor, "B G"]
    ) -> Draft:
        tokens = torch.full(uniforms.shape, NO_TOKEN, dtype=torch.int64)
        counts = []
        for row, sequence in enumerate(sequences):
            for end in range(self.lengths.get(row, 1), len(sequence)):
                self.followers.update(dict.fromkeys(self._keys(row, sequence, end), end))
            self.lengths[row] = max(1, len(sequence))
            found = [
                self.followers[key]
                for key in self._keys(row, sequence, len(sequence))
                if key in self.followers
            ]
            counts.append(most[row] if found else 0)
            text = sequence[found[-1] :] if found else []
            for column in range(counts[-1]):
                tokens[row, column] = text[column]
                text.append(text[column])
        return Draft(tokens, torch.tensor(counts))

    def _keys(self, row, sequence, end):
        """Of the n-grams that end there, the shortest first."""
        sizes = range(self.min_ngram, min(self.max_ngram, end) + 1)
        return [(row, *sequence[end - n : end]) for n in sizes]
