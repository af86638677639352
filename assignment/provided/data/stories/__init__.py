"""Short stories in English, told by a grammar of our own that remembers what it said.

    sample             a story for a seed
    log_probability    exact, of any text
    next_word_laws     the exact probability of every word that may come next
    entropy            what no model can do better than
    violations         what is wrong with a text: who cannot have what, what does not agree

The grammar is a program (`story`) that says what may come next (`choices`), and knows what is true
so far (`world`). A story has people, places, things, numbers; its parts are `opening`, `events`
(what one person can do: `actions`) and `questions`. The words are in `lexicon`.
"""

from .checker import KINDS, Violation, count_sentences, violations
from .law import entropy, log_probability, next_word_laws, sample
from .text import END, text_of, words_of

__all__ = [
    "END",
    "KINDS",
    "Violation",
    "count_sentences",
    "entropy",
    "log_probability",
    "next_word_laws",
    "sample",
    "text_of",
    "violations",
    "words_of",
]
