"""Prompt lookup: the draft is copied from the text so far.

A summary repeats its source, an edited program the program, an answer the question. Where the last
few tokens have stood before, what followed then is a good guess at what follows now: a draft that
costs no model, no weights and no memory but an index.

Saxena, Prompt Lookup Decoding, 2023, https://github.com/apoorvumang/prompt-lookup-decoding.
An n-gram is n tokens in a row.
"""

from jaxtyping import Float
from torch import Tensor

from assignment.provided.speculative import Draft


def lookup(
    sequence: list[int], num_draft: int, max_ngram: int = 3, min_ngram: int = 1
) -> list[int]:
    """At most num_draft tokens that may come after `sequence`: the rule.

      1. For n = max_ngram, …, min_ngram: where do the last n tokens stand further to the left? They
         may overlap the end there, but one token at least follows them. The first n for which there
         is such a place decides, and of its places the last. If no n has one, nothing is drafted.
      2. The draft is copied from there on: the token that follows, the next, and so on. When the
         copy comes to the end of the sequence, it goes on with the drafted tokens themselves, so
         that there are always num_draft of them: after 1 2 1 2 1 come 2 1 2 1 ….

    Args:
        sequence: token ids, of any length; it is not changed.
        num_draft: 0 or more.
        max_ngram, min_ngram: 1 ≤ min_ngram ≤ max_ngram; both may be longer than the sequence.

    Raises:
        ValueError: an argument is out of its range.

    The plain form may look through the whole sequence. About 10 lines.
    """
    _check(num_draft, max_ngram, min_ngram)
    # BEGIN SOLUTION
    for n in range(max_ngram, min_ngram - 1, -1):
        for place in range(len(sequence) - 1, n - 1, -1):
            if sequence[place - n : place] == sequence[-n:]:
                return _copied(sequence, place, num_draft)
    return []
    # END SOLUTION


# BEGIN SOLUTION
def _copied(sequence: list[int], place: int, count: int) -> list[int]:
    """`count` tokens from `place` on; past the end, those that were copied."""
    period = len(sequence) - place
    return [sequence[place + i % period] for i in range(count)]


class _Index:
    """Of one sequence: the place after each n-gram, where it stood last."""

    def __init__(self, sizes: range):
        self._sizes, self._places, self._num_read = sizes, {}, 0

    def read(self, sequence: list[int]) -> None:
        """Enter what stands before each token that is new."""
        for place in range(self._num_read, len(sequence)):
            for n in self._sizes:
                if n <= place:
                    self._places[tuple(sequence[place - n : place])] = place
        self._num_read = len(sequence)

    def find(self, sequence: list[int]) -> int | None:
        """The place after the longest n-gram that ends the sequence and has stood before."""
        found = (self._places.get(tuple(sequence[-n:])) for n in self._sizes)
        return next((place for place in found if place is not None), None)


# END SOLUTION


class PromptLookup:
    """Drafts for sequences that grow, as `lookup` would, without reading them again.

    It remembers where each n-gram of each sequence stood last. One more token costs the same,
    however long the sequence is.

    About 25 lines in all.
    """

    def __init__(self, max_ngram: int = 3, min_ngram: int = 1):
        """
        Raises:
            ValueError: as `lookup`.
        """
        _check(0, max_ngram, min_ngram)
        # BEGIN SOLUTION
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._indexes: list[_Index] = []
        # END SOLUTION

    def __call__(
        self, sequences: list[list[int]], most: list[int], uniforms: Float[Tensor, "B G"]
    ) -> Draft:
        """A deterministic `Draft` of width G: row b is lookup(sequences[b], most[b], …).

        Args:
            sequences: the same at each call, each with any number of tokens added at its end.
            most: 0 … G for each sequence.
            uniforms: nothing is drawn; only their width G is used.

        No argument is changed, and none is needed after the call.

        Hint: enter an n-gram when the token after it is there. The last n tokens then never find
        themselves.
        """
        # BEGIN SOLUTION
        self._indexes = self._indexes or [_Index(self._sizes) for _ in sequences]
        rows = []
        for index, sequence, count in zip(self._indexes, sequences, most, strict=True):
            index.read(sequence)
            place = index.find(sequence)
            rows.append([] if place is None else _copied(sequence, place, count))
        return Draft.of(rows, uniforms.shape[1])
        # END SOLUTION


def _check(num_draft: int, max_ngram: int, min_ngram: int) -> None:
    if num_draft < 0:
        raise ValueError(f"num_draft is {num_draft}, expected 0 or more")
    if not 1 <= min_ngram <= max_ngram:
        raise ValueError(
            f"expected 1 <= min_ngram <= max_ngram, got min_ngram = {min_ngram}, "
            f"max_ngram = {max_ngram}"
        )
