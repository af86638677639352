"""A student's id, and the random numbers that it stands for."""

import hashlib
import random
import re
import unicodedata
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")
ID = re.compile(r"[\w.@+-]{1,64}")


def normalised(student: str) -> str:
    """An id in one spelling: small letters, no spaces. "S 012 345" is "s012345".

    Raises:
        ValueError: it is empty, longer than 64 characters, or holds others than letters, digits
            and . _ - + @
    """
    joined = "".join(student[:1000].split())
    spelled = unicodedata.normalize("NFKC", joined).casefold()
    if not ID.fullmatch(spelled):
        raise ValueError("a student id has 1 to 64 letters, digits and . _ - + @")
    return spelled


class Chance:
    """Random draws of one question for one student: the same on every machine, for ever."""

    def __init__(self, student: str, question: str):
        digest = hashlib.sha256(f"{normalised(student)}:{question}".encode()).digest()
        # Of `random`'s methods, only random() is promised to stay the same in later Pythons.
        self._random = random.Random(int.from_bytes(digest, "big")).random

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[int(self._random() * len(options))]

    def several(self, options: Sequence[T], number: int) -> list[T]:
        """`number` different ones of the options, in random order."""
        left = list(options)
        return [left.pop(int(self._random() * len(left))) for _ in range(number)]
