"""`lookup` knows for each place how many tokens match; PromptLookup numbers its n-grams."""

from jaxtyping import Float
from torch import Tensor

from assignment.provided.speculative import Draft


def lookup(
    sequence: list[int], num_draft: int, max_ngram: int = 3, min_ngram: int = 1
) -> list[int]:
    check(num_draft, max_ngram, min_ngram)
    best, found = min_ngram - 1, None
    for place in range(len(sequence) - 1, 0, -1):
        matching = 0
        for left, right in zip(sequence[place - 1 :: -1], reversed(sequence), strict=False):
            if left != right or matching == max_ngram:
                break
            matching += 1
        if matching > best:
            best, found = matching, place
    return continued(sequence, found, num_draft)


def continued(sequence, place, count):
    draft = []
    source = iter(()) if place is None else iter(sequence[place:])
    for _ in range(count if place is not None else 0):
        try:
            token = next(source)
        except StopIteration:
            source = iter(draft)  # grows as it is read
            token = next(source)
        draft.append(token)
    return draft


def check(num_draft, max_ngram, min_ngram):
    if not (num_draft >= 0 and max_ngram >= min_ngram >= 1):
        raise ValueError(f"{num_draft}, {max_ngram}, {min_ngram}")


class PromptLookup:
    """An (n + 1)-gram is the number of its first n tokens and one more: numbers are looked up."""

    def __init__(self, max_ngram: int = 3, min_ngram: int = 1):
        check(0, max_ngram, min_ngram)
        self.max_ngram, self.min_ngram = max_ngram, min_ngram
        self.states = None

    def __call__(
        self, sequences: list[list[int]], most: list[int], uniforms: Float[Tensor, "B G"]
    ) -> Draft:
        if self.states is None:
            self.states = [({}, {}, []) for _ in sequences]
        drafts = []
        for (numbers, last, text), sequence, count in zip(
            self.states, sequences, most, strict=True
        ):
            for token in sequence[len(text) :]:
                for number in self.ending(numbers, text):
                    last[number] = len(text)
                text.append(token)
            places = [last[n] for n in self.ending(numbers, text) if n in last]
            drafts.append(continued(text, places[0] if places else None, count))
        return Draft.of(drafts, uniforms.shape[1])

    def ending(self, numbers, text):
        """The numbers of the n-grams at the end of the text, the longest first."""
        found = []
        for n in range(min(self.max_ngram, len(text)), self.min_ngram - 1, -1):
            number = 0
            for token in text[-n:]:
                number = numbers.setdefault((number, token), len(numbers) + 1)
            found.append(number)
        return found
