"""Every n-gram is entered as soon as it is there, with the place before: the end has two."""

from collections import defaultdict

from jaxtyping import Float
from torch import Tensor

from assignment.provided.speculative import Draft


def lookup(
    sequence: list[int], num_draft: int, max_ngram: int = 3, min_ngram: int = 1
) -> list[int]:
    row = Row(max_ngram, min_ngram)
    row.read(sequence)
    return row.draft(sequence, num_draft)


class Row:
    def __init__(self, max_ngram, min_ngram):
        if max_ngram < min_ngram or min_ngram <= 0:
            raise ValueError("n-grams of no size")
        self.max_ngram, self.min_ngram, self.length = max_ngram, min_ngram, 0
        self.places = defaultdict(lambda: (None, None))  # the last, and the one before

    def read(self, sequence):
        for end in range(self.length + 1, len(sequence) + 1):
            for n in range(self.min_ngram, min(self.max_ngram, end) + 1):
                ngram = tuple(sequence[end - n : end])
                last, _ = self.places[ngram]
                self.places[ngram] = end, last
        self.length = len(sequence)

    def draft(self, sequence, count):
        if count < 0:
            raise ValueError("a negative number of tokens")
        for n in range(min(self.max_ngram, len(sequence)), self.min_ngram - 1, -1):
            _, place = self.places[tuple(sequence[len(sequence) - n :])]
            if place is not None:
                repeated = sequence[place:] * (count // (len(sequence) - place) + 1)
                return repeated[:count]
        return []


class PromptLookup:
    def __init__(self, max_ngram: int = 3, min_ngram: int = 1):
        self.new_row = lambda: Row(max_ngram, min_ngram)
        self.new_row()
        self.rows = defaultdict(self.new_row)

    def __call__(
        self, sequences: list[list[int]], most: list[int], uniforms: Float[Tensor, "B G"]
    ) -> Draft:
        drafts = []
        for number, sequence in enumerate(sequences):
            self.rows[number].read(sequence)
            drafts.append(self.rows[number].draft(sequence, most[number]))
        return Draft.of(drafts, uniforms.shape[-1])
