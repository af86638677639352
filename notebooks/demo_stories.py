"""`make demo MODEL=toy`: stories that the toy model tells, and what is wrong with them."""

from collections.abc import Callable
from textwrap import shorten

from demo_answers import Answer, Conversation, Sampling
from rich.text import Text

from assignment.provided.data.stories import Violation, violations
from assignment.provided.data.tokenizer import BEGIN, load_tokenizer
from assignment.provided.models.toy import load_toy

LISTED = 3  # violations that are named


class Stories(Conversation):
    """The toy model goes on from the beginning that it is given, with a new story each time."""

    name = "the toy model"
    capacity = 512  # a story has 145 tokens on average, and hardly ever more than 250
    prompt = ""  # it begins by itself
    temperature = 1.0  # greedy, it would always tell the same
    invitation = "begin a story"

    def __init__(self):
        super().__init__(load_toy("target"), load_tokenizer())

    def opening(self, text: str, typed: bool) -> Text:
        return Text(text, "bold")

    def ask(self, text: str, sampling: Sampling, show: Callable[[str], None]) -> Answer:
        self.forget()
        return self.answer(self.tokenizer.encode(BEGIN + text), sampling, show)

    def remark(self, answer: Answer) -> str:
        small = "So small a model spends most of a step on Python's own work, not on tokens.\n\n"
        return small + verdict(self.tokenizer.decode(answer.prompt + answer.tokens))


def verdict(story: str) -> str:
    """What the stories' checker says, in a line."""
    wrong = violations(story)
    if not wrong:
        return "The checker finds nothing wrong."
    more = [f"and {len(wrong) - LISTED} more"] if len(wrong) > LISTED else []
    return f"The checker finds wrong: {', '.join([*map(brief, wrong[:LISTED]), *more])}."


def brief(violation: Violation) -> str:
    sentence = shorten(violation.sentence, 60, placeholder=" …")
    return f'{violation.kind} "{sentence}"' if sentence else violation.kind
