"""What a question is: a text, and what it asks for."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Ask:
    """One answer that a question wants. unit: what the sheet says beside it."""

    key: str
    text: str
    unit: str


@dataclass(frozen=True)
class Question:
    """section: the handout's unit and section to read."""

    name: str  # "q1"
    title: str
    text: str
    asks: tuple[Ask, ...]
    section: tuple[str, str]
