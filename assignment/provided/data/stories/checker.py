"""What is wrong with a text, if it is to be a story: a list of violations, for any text.

The grammar is followed sentence by sentence. A sentence that it cannot say is a violation; the
checker names its kind, does not believe it, and goes on with the next one. So a model is measured
on what it remembers: who there is, who has what, what is where.
"""

from collections.abc import Iterable, Sequence
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


@dataclass(frozen=True)
class Violation:
    """A sentence that is wrong.

    kind: one of KINDS.
    word: where the text stops being right, as an index into words_of(text).
    sentence: its text, up to its full stop or the line break; a question with its answer.
    expected: some of the phrases that could stand at `word`, the most probable first.
    """

    kind: str
    word: int
    sentence: str
    expected: tuple[str, ...]

    def __str__(self) -> str:
        return f'{self.kind}: "{self.sentence}", expected {" or ".join(map(repr, self.expected))}'


def violations(text: str) -> list[Violation]:
    """Everything that is wrong with `text`, at most one violation a sentence, and at last whether
    it is unfinished; empty for a story."""
    words = [*words_of(text), END]
    found: list[Violation] = []
    process = story()
    choice = next(process)
    start = at = 0  # where the sentence begins; where the next phrase does
    is_known = False  # whether a violation of this sentence has been found
    while True:
        phrase = _standing(choice.phrases, words, at)
        if phrase is None:
            if _is_cut_off(choice, words, at):
                return [*found, _violation("unfinished", choice, words, start, at)]
            if not is_known:
                found.append(_violation(_kind(choice, words, at), choice, words, start, at))
                is_known = True
            phrase = _standing(choice.understood, words, at)
        if phrase is not None:
            at += len(phrase.split(" "))
            if phrase == END:
                return found
            choice = process.send(phrase)
            if words[at - 1] == ".":
                start, is_known = at, False
        elif words[at] == "\n" and (at == start or words[at - 1] == "\n"):
            at += 1  # a line too early; what it says may be right
        else:
            start = at = _end_of_sentence(words, at)
            is_known = False
            if not choice.phrases.keys() <= {"\n", END}:  # else it was one sentence too many
                choice = process.throw(Garbled())


def count_sentences(text: str) -> int:
    """Sentences of a text, a question with its answer as one; an unfinished last one counts,
    and so does a line break with nothing behind it."""
    words = [*words_of(text), END]
    count = at = 0
    while words[at] != END:
        while words[at] == "\n":
            at += 1
        at = _end_of_sentence(words, at)
        count += 1
    return count


def _standing(phrases: Iterable[str], words: Sequence[str], at: int) -> str | None:
    """The one of the phrases that stands at `at`."""
    for phrase in phrases:
        said = phrase.split(" ")
        if words[at : at + len(said)] == said:
            return phrase
    return None


def _is_cut_off(choice: Choice, words: Sequence[str], at: int) -> bool:
    """Whether the text ends here, or in the middle of a phrase."""
    rest = len(words) - 1 - at
    said = (phrase.split(" ") for phrase in choice.phrases)
    return rest == 0 or any(rest < len(s) and s[:rest] == words[at:-1] for s in said)


def _kind(choice: Choice, words: Sequence[str], at: int) -> str:
    for kind, phrases in choice.mistakes.items():
        if phrases is ANYTHING or _standing(phrases, words, at):
            return kind
    return "form"


def _end_of_sentence(words: Sequence[str], at: int) -> int:
    """Behind the full stop, or at the line break or END if one comes first."""
    while words[at] not in ("\n", END):
        at += 1
        if words[at - 1] == ".":
            break
    return at


def _violation(kind: str, choice: Choice, words: Sequence[str], start: int, at: int) -> Violation:
    while words[start] == "\n":
        start += 1
    sentence = words[start : _end_of_sentence(words, max(start, at))]
    likeliest = sorted(choice.phrases, key=lambda phrase: -choice.phrases[phrase])
    return Violation(kind, at, text_of(sentence), tuple(likeliest[:3]))
