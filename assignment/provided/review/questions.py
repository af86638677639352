"""The ten questions with one student's numbers in them."""

from collections.abc import Callable

from . import numbers
from .models import about_bytes, about_heads, about_recall, about_streams, about_windows, bounded
from .question import Ask, Question
from .student import Chance
from .systems import about_blocks, about_drafts, about_rounding, about_rows

__all__ = ["Ask", "Question", "questions"]

WRITERS: dict[str, tuple[Callable, Callable]] = {
    "q1": (numbers.streams, about_streams),
    "q2": (numbers.bounds, bounded),
    "q3": (numbers.heads, about_heads),
    "q4": (numbers.kv_bytes, about_bytes),
    "q5": (numbers.windows, about_windows),
    "q6": (numbers.recall, about_recall),
    "q7": (numbers.rounding, about_rounding),
    "q8": (numbers.drafting, about_drafts),
    "q9": (numbers.blocks, about_blocks),
    "q10": (numbers.rows, about_rows),
}


def drawn(student: str, question: str):
    """The numbers of one question for one student.

    Raises:
        ValueError: `student` is no id.
    """
    return WRITERS[question][0](Chance(student, question))


def questions(student: str) -> tuple[Question, ...]:
    """All ten, for one student.

    Raises:
        ValueError: `student` is no id.
    """
    return tuple(write(name, drawn(student, name)) for name, (_, write) in WRITERS.items())
