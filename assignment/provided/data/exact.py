"""The grammar as a language model over tokens: the exact law of the next one.

A model's perplexity says how much worse it is on average; this says where, and towards what. It is
also the best teacher there is: a loss against the law is free of the chance in which word came.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from .stories import END, next_word_laws, text_of, words_of
from .tokenizer import StoryTokenizer


class ExactLaw:
    """The law of the next token of a story.

    Args:
        tokenizer: the stories' tokenizer.
    """

    def __init__(self, tokenizer: StoryTokenizer):
        self.tokenizer = tokenizer
        self._ids: dict[tuple[str, bool], int] = {}

    def __call__(self, document: list[int]) -> Float[Tensor, "T V"]:
        """Row t is the law of token t + 1 of `document`, a whole story from BEGIN to END; float32.

        Raises:
            ValueError: if the document is not a story of the grammar.
        """
        words = [*words_of(self.tokenizer.decode(document)), END]
        laws = list(next_word_laws(words))
        if len(laws) < len(words) or words[-1] not in laws[-1] or len(document) != len(words) + 1:
            raise ValueError(
                "document: not a story of the grammar from BEGIN to END: "
                f"{self.tokenizer.decode(document, skip_special_tokens=False)!r}"
            )
        rows, ids, probabilities = [], [], []
        for row, law in enumerate(laws):
            starts_line = row == 0 or words[row - 1] == "\n"
            rows += [row] * len(law)
            ids += [self._id(word, starts_line) for word in law]
            probabilities += law.values()
        law = torch.zeros(len(words), self.tokenizer.vocab_size)
        law[rows, ids] = torch.tensor(probabilities, dtype=torch.float32)
        # The words are a story; are the tokens the usual ones for them, between BEGIN and END?
        if document[0] != self.tokenizer.begin or not law[range(len(law)), document[1:]].all():
            raise ValueError(f"document: not the tokens of a story: {document}")
        return law

    def _id(self, word: str, starts_line: bool) -> int:
        """A word's token, which depends on whether a blank comes before it."""
        key = word, starts_line
        if key not in self._ids:
            joined = word == END or starts_line  # else with the blank that it has behind a word
            text = word if joined else text_of(["x", word])[1:]
            (self._ids[key],) = self.tokenizer.encode(text)
        return self._ids[key]
