"""The ten review questions, with numbers of your own: `make review STUDENT=your-id` prints them."""

from .questions import Ask, Question, questions
from .sheet import FILE, template
from .student import normalised

__all__ = ["FILE", "Ask", "Question", "normalised", "questions", "template"]
