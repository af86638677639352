"""Words and text: a story is written as text, and read as words.

A word is a run of letters, a punctuation mark or a line break. The tokenizer cuts text at the same
places, so that a word of the grammar is one token.
"""

import re
from collections.abc import Iterable

# Not part of the text: it stands for "the story ends here", as the tokenizer's end token does.
END = "<|end|>"

_WORD = re.compile(r"[^\W\d_]+|\n|[^\w\s]|\d|_")
_CLOSING = frozenset(".,?!;:")


def words_of(text: str) -> list[str]:
    """The words of a text, in order. Blanks only separate."""
    return _WORD.findall(text)


def text_of(words: Iterable[str]) -> str:
    """The text that the words make: blanks between words, none before a mark or beside a line
    break, nothing for END."""
    pieces: list[str] = []
    for word in words:
        if word == END:
            continue
        if pieces and word not in _CLOSING and "\n" not in (word, pieces[-1]):
            pieces.append(" ")
        pieces.append(word)
    return "".join(pieces)
