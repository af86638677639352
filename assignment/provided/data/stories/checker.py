"""What is wrong with a text, if it is to be a story: a list of violations, for any text.

The grammar is followed sentence by sentence. A sentence that it cannot say is a violation; the
checker names its kind, does not believe it, and goes on with the next one. So a model is measured
on what it remembers: who there is, who has what, what is where.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from .choices import ANYTHING, Choice, Garbled
from .story import story
from .text import END, text_of, words_of

# What can be wrong with a sentence. `form` is what is none of the others.
KINDS = {
    "agreement": "a pronoun, article, preposition, number or verb that does not agree",
    "fact": "somebody or something that is not so in this story",
    "answer": "a question without its right answer",
    "form": "not a sentence of the grammar, or not in this place",
    "unfinished": "the text ends before the story does",
}
_SENTENCE_ENDS = (".", "?")


@dataclass(frozen=True)
class Violation:
    """A sentence that is wrong.

    kind: one of KINDS.
    word: where the text stops being right, as an index into words_of(text).
    sentence: its text, up to its full stop or question mark.
    expected: some of the phrases that could stand at `word`, the most probable first.
    """

    kind: str
    word: int
    sentence: str
    expected: tuple[str, ...]

    def __str__(self) -> str:
        return f'{self.kind}: "{self.sentence}", expected {" or ".join(map(repr, self.expected))}'


def violations(text: str) -> list[Violation]:
    """Everything that is wrong with `text`, at most one violation a sentence; empty for a story."""
    words = [*words_of(text), END]
    found: list[Violation] = []
    process = story()
    choice = next(process)
    start = at = 0  # where the sentence begins; where the next phrase does
    while True:
        phrase = next((p for p in choice.phrases if _stands(p, words, at)), None)
        if phrase is not None:
            at += len(phrase.split(" "))
            if phrase == "\n" or words[at - 1] in _SENTENCE_ENDS:
                start = at
            if phrase == END:
                return found
            choice = process.send(phrase)
            continue
        if words[at] == END:
            found.append(_violation("unfinished", choice, words, start, at))
            return found
        kind = _kind(choice, words, at)
        found.append(_violation(kind, choice, words, start, at))
        start = at = _next_sentence(words, at, stuck=at == start and words[at] == "\n")
        choice = process.throw(Garbled())


def count_sentences(text: str) -> int:
    """Sentences and questions of a text; an unfinished last one counts."""
    words = words_of(text)
    ends = sum(word in _SENTENCE_ENDS for word in words)
    return ends + bool(words and words[-1] not in _SENTENCE_ENDS)


def _stands(phrase: str, words: Sequence[str], at: int) -> bool:
    said = phrase.split(" ")
    return list(words[at : at + len(said)]) == said


def _kind(choice: Choice, words: Sequence[str], at: int) -> str:
    for kind, phrases in choice.mistakes.items():
        if phrases is ANYTHING or any(_stands(phrase, words, at) for phrase in phrases):
            return kind
    return "form"


def _next_sentence(words: Sequence[str], at: int, stuck: bool) -> int:
    """Behind the full stop or question mark, or at the line break or END if one comes first."""
    if stuck:
        return at + 1
    while words[at] not in ("\n", END):
        at += 1
        if words[at - 1] in _SENTENCE_ENDS:
            break
    return at


def _violation(kind: str, choice: Choice, words: Sequence[str], start: int, at: int) -> Violation:
    end = _next_sentence(words, at, stuck=False)
    likeliest = sorted(choice.phrases, key=lambda phrase: -choice.phrases[phrase])
    return Violation(kind, at, text_of(words[start:end]), tuple(likeliest[:3]))
