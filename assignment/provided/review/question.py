"""What a question is: a text, what it asks for, and where that is explained."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ask:
    """One answer that a question wants. unit: what the sheet says beside it."""

    key: str
    text: str
    unit: str


@dataclass(frozen=True)
class Section:
    """A section of the handout. unit: whose chapter it is in, "" for one that belongs to none."""

    title: str
    unit: str = ""

    def __str__(self) -> str:
        return f"handout{self.unit and ' '}{self.unit}, “{self.title}”"


@dataclass(frozen=True)
class Question:
    """source: what to read."""

    name: str  # "q1"
    title: str
    text: str
    asks: tuple[Ask, ...]
    source: Section
