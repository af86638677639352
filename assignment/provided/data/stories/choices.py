"""A grammar as a program that says, at each step, what may come next.

A process is a Python generator. It yields a `Choice`, the probabilities of the next phrase given
everything said before, is sent the phrase that was taken, and goes on; when it returns, the text is
complete. Whoever drives it decides which phrase that is: `law` draws one, or reads it from a text
and multiplies the probabilities; `checker` tells what is wrong with a text. A process that
remembers what was said (who has the lamp?) is a language model with exact probabilities.
"""

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Choice:
    """The law of the next phrase.

    Attributes:
        phrases: phrase -> probability, summing to 1. A phrase is one or more words with blanks
            between; none begins with all of another, so a text shows which was taken.
        mistakes: kind of mistake -> phrases which, if said here instead, are that kind.
        understood: phrases that cannot come here, but may be sent by a checker: the process knows
            how to go on.
    """

    phrases: Mapping[str, float]
    mistakes: Mapping[str, Iterable[str]]
    understood: Sequence[str] = ()


class Garbled(Exception):
    """Thrown into a process by the checker: this sentence is not to be believed, and the text is
    behind it now. The process goes on with the next one."""


Process = Generator[Choice, str, T]


class _Anything:
    """As the phrases of a mistake: whatever is said."""


ANYTHING = _Anything()
NOTHING: Mapping[str, Iterable[str]] = {}


def say(phrase: str, mistakes: Mapping[str, Iterable[str]] = NOTHING) -> Process[None]:
    """The only thing that can come next."""
    yield Choice({phrase: 1.0}, mistakes)


def pick(
    options: Iterable[tuple[float, str, T]], mistakes: Mapping[str, Iterable[str]] = NOTHING
) -> Process[T]:
    """One of (weight, phrase, value), with probability in proportion to its weight; its value.
    With weight 0 it is only understood."""
    weights: dict[str, float] = {}
    values: dict[str, T] = {}
    for weight, phrase, value in options:
        weights[phrase] = weight
        values[phrase] = value
    total = math.fsum(weights.values())  # the same in every version of Python
    phrase = yield Choice(
        {phrase: w / total for phrase, w in weights.items() if w},
        mistakes,
        [phrase for phrase, w in weights.items() if not w],
    )
    return values[phrase]


def pick_evenly(
    phrases: Iterable[str], mistakes: Mapping[str, Iterable[str]] = NOTHING
) -> Process[str]:
    """One of the phrases, all equally probable."""
    return pick(((1.0, phrase, phrase) for phrase in phrases), mistakes)
