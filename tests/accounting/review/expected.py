"""What a right answer is, and whether one is right."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tests.accounting.review.quantities import LONGEST, Quantity, Unreadable, shown, understand
from tests.accounting.review.words import meaning

ROUNDED = 0.006  # relative: 1.005 written with three digits is 0.5 % off
SMALL = 1e-9  # what 0 may come to in floats
MOST_ITEMS = 100


@dataclass(frozen=True)
class Number:
    """A number that may be rounded."""

    value: float
    quantity: Quantity
    tolerance: float = ROUNDED

    def read(self, answer: object) -> float:
        return understand(answer, self.quantity)

    def say(self, read: float) -> str:
        return shown(read, self.quantity)

    def is_right(self, read: float) -> bool:
        return abs(read - self.value) <= self.tolerance * abs(self.value) + SMALL


@dataclass(frozen=True)
class Count(Number):
    """A number that must be exact."""

    tolerance: float = 0.0


@dataclass(frozen=True)
class Numbers:
    """A list of numbers, in order."""

    values: Sequence[float]
    quantity: Quantity
    tolerance: float = ROUNDED
    digits: bool = False  # "461" is 4, 6, 1

    def read(self, answer: object) -> list[float]:
        items = self._items(answer)
        if len(items) > MOST_ITEMS:
            raise Unreadable(f"it has {len(items):,} items")
        return [understand(item, self.quantity) for item in items]

    def say(self, read: list[float]) -> str:
        return f"{len(read)} numbers, " + ", ".join(f"{number:.6g}" for number in read[:10])

    def is_right(self, read: list[float]) -> bool:
        return len(read) == len(self.values) and all(
            abs(got - right) <= self.tolerance * abs(right) + SMALL
            for got, right in zip(read, self.values, strict=True)
        )

    def _items(self, answer: object) -> list:
        if isinstance(answer, list):
            return answer
        if self.digits and isinstance(answer, int) and 9 < answer < 10**18:  # and no boolean
            answer = str(answer)
        if not isinstance(answer, str) or len(answer) > LONGEST:
            raise Unreadable("a list is wanted, such as [1, 2, 3]")
        text = answer.strip(" []()")
        items = re.split(r"\s*[,;]\s*" if re.search("[,;]", text) else r"\s+", text)
        return list(items[0]) if self.digits and len(items) == 1 else items


@dataclass(frozen=True)
class Word:
    """One of several words; with a single choice, that or one of its other names."""

    value: str
    choices: tuple[str, ...] = ()

    def read(self, answer: object) -> str:
        return meaning(answer, self.choices or (self.value,))

    def say(self, read: str) -> str:
        return repr(read)

    def is_right(self, read: str) -> bool:
        return read == self.value


Expected = Number | Numbers | Word
