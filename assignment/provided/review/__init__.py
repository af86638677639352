"""The ten review questions, with numbers of your own: `make review STUDENT=your-id` prints them."""

from .question import Ask, Question, Section
from .questions import questions
from .sheet import FILE, template
from .student import normalised

__all__ = ["FILE", "Ask", "Question", "Section", "normalised", "questions", "template"]
