"""A story as a process: the order of its parts.

Mara was a baker. Tom was her brother. Mara was in the kitchen. Tom was in the garden. …
One morning, she went to the garden and met Tom. …
Who had the kite? Tom had the kite.
"""

from collections.abc import Callable

from .choices import Garbled, Process
from .events import event
from .opening import companion, hero, inventory, third_or_first_place, whereabouts
from .questions import another, question
from .world import World


def story() -> Process[None]:
    """All of a story; the last phrase is END."""
    world = World()
    for part in (hero, companion, third_or_first_place):
        yield from _heard(part, world, guess=True)
    while any(person.place is None for person in world.people):
        yield from _heard(whereabouts, world, guess=True)
    while (yield from _heard(inventory, world, guess=True)):
        pass
    events = 0
    while (yield from _heard(event, world, events)):
        events += 1
    questions, asked = 0, set()
    while questions == 0 or (yield from _heard(another, questions)):
        yield from _heard(question, world, asked)
        questions += 1


def _heard(part: Callable[..., Process], *arguments: object, guess: bool = False) -> Process:
    """`part`, whose sentence the checker may call garbled. What the story leaves no choice about is
    then taken as said. Where there was a choice, the sentence has not happened, and the story goes
    on behind it (True); with `guess` the first choice stands in, because without people in places
    no story goes on.
    """
    process, phrase, garbled = part(*arguments), None, False
    while True:
        try:
            choice = process.send(phrase)
        except StopIteration as end:
            return end.value
        if not garbled:
            try:
                phrase = yield choice
                continue
            except Garbled:
                garbled = True
        if not guess and len(choice.phrases) > 1:
            return True
        phrase = next(iter(choice.phrases))
