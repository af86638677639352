"""The law of the stories: draw one, and the exact probability of a text or of its next word.

sample(seed)                 a story's text
log_probability(text)        natural logarithm; −inf if the text is no story
next_word_laws(words)        before each word, the exact probability of every word that may come
entropy(text)                Σ over its words of the entropy of the next word's law, in nats
"""

import math
import random
from collections.abc import Iterator, Mapping, Sequence

from .choices import Choice
from .story import story
from .text import END, text_of, words_of


def sample(seed: int | str) -> str:
    """The text of the story that `seed` decides; the same on every machine."""
    chance = random.Random(seed)
    said: list[str] = []
    process = story()
    phrase = None
    try:
        while True:
            choice = process.send(phrase)
            phrase = _draw(choice.phrases, chance.random())
            said.extend(phrase.split(" "))
    except StopIteration:
        return text_of(said)


def next_word_laws(words: Sequence[str]) -> Iterator[Mapping[str, float]]:
    """For each word of a story, and once more after the last unless that is END: the law of the
    next word given those before it. Stops early after a word whose probability is 0."""
    if isinstance(words, str):
        raise ValueError("words: expected words_of(text), got a text")
    process = story()
    possible, depth = _in_words(next(process)), 0  # the phrases that fit, and their words so far
    for word in [*words, None]:
        law: dict[str, float] = {}
        for phrase, p in possible.items():
            law[phrase[depth]] = law.get(phrase[depth], 0.0) + p
        total = math.fsum(law.values())
        yield {next_word: p / total for next_word, p in law.items()}
        if word not in law:
            return
        possible = {phrase: p for phrase, p in possible.items() if phrase[depth] == word}
        depth += 1
        (phrase, *others) = possible
        if not others and len(phrase) == depth:
            try:
                possible, depth = _in_words(process.send(" ".join(phrase))), 0
            except StopIteration:
                return


def log_probability(text: str) -> float:
    """ln of the probability that the grammar tells exactly this story, its end included.

    Exact: every text can be said in one way at most, so the probability is the product of the
    choices'. −inf for a text that is not a whole story.
    """
    words = [*words_of(text), END]
    probabilities = [
        law.get(word, 0.0) for law, word in zip(next_word_laws(words), words, strict=False)
    ]
    if len(probabilities) < len(words) or 0.0 in probabilities:
        return -math.inf
    return math.fsum(map(math.log, probabilities))


def entropy(text: str) -> float:
    """Σ of the entropies of the next word's law before each word of a story, END included, in nats.

    Its mean over stories is the entropy of a story (chain rule), with less scatter than the mean
    of −log_probability. Over the number of words, END included, it gives the entropy rate.

    Raises:
        ValueError: if the text is not a whole story.
    """
    words = [*words_of(text), END]
    laws = list(next_word_laws(words))
    if len(laws) < len(words) or words[-1] not in laws[-1]:
        raise ValueError(f"text: not a story of the grammar after {len(laws) - 1} words")
    return math.fsum(-p * math.log(p) for law in laws for p in law.values() if p < 1.0)


def _in_words(choice: Choice) -> dict[tuple[str, ...], float]:
    return {tuple(phrase.split(" ")): p for phrase, p in choice.phrases.items()}


def _draw(phrases: Mapping[str, float], uniform: float) -> str:
    for phrase, probability in phrases.items():
        uniform -= probability
        if uniform < 0.0:
            return phrase
    return phrase  # rounding left a remainder: the last one
