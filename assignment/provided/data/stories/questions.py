"""The questions after a story, one a line. The story tells every answer."""

from collections.abc import Callable, Iterator
from functools import partial

from .choices import ANYTHING, Process, pick, say
from .lexicon import COLOURS, NUMBERS, article, counted
from .references import WRONG_PRONOUN
from .text import END
from .world import Person, Place, Thing, World

FEWEST, MOST = 2, 5  # questions of a story
ANOTHER = 0.6  # how probably another one follows between these

WRONG_ANSWER = {**WRONG_PRONOUN, "answer": ANYTHING}

# A question and what answers it, once the question mark has been said.
Question = tuple[float, str, Callable[[], Process[None]]]


def question(world: World, asked: set[str]) -> Process[None]:
    """Who had the kite ? Mara had the kite .   No question is asked twice; `asked` is added to."""
    options = [option for option in _questions(world) if option[1] not in asked]
    answers = {words: answer for _, words, answer in options}
    chosen = yield from pick(((weight, words, words) for weight, words, _ in options), UNKNOWN)
    asked.add(chosen)
    yield from say("?")
    yield from answers[chosen]()
    yield from say(".", WRONG_ANSWER)


def another(number: int) -> Process[bool]:
    """The line break before another question, or the end of the text.

    Args:
        number: how many questions there have been.
    Returns:
        Whether there is another question.
    """
    more = 1.0 if number < FEWEST else ANOTHER if number < MOST else 0.0
    return (yield from pick([(more, "\n", True), (1.0 - more, END, False)]))


UNKNOWN = {
    "fact": ["Who had", "Where was", "Was", "What did", "What was", "What colour", "How many"],
}


def _questions(world: World) -> Iterator[Question]:
    for thing in world.things:
        yield 1.5, f"Who had the {thing.noun}", partial(_who_had, thing)
        yield 1.0, f"Where was the {thing.noun}", partial(_where_was_it, thing)
        if thing.adjective in COLOURS:
            yield (
                0.7,
                f"What colour was the {thing.noun}",
                partial(_say, f"The {thing.noun} was {thing.adjective}"),
            )
    for person in world.people:
        she = person.she.capitalize()
        yield 1.5, f"Where was {person.name}", partial(_say, f"{she} was {person.place.phrase}")
        for place in world.known_places:
            yield 0.3, f"Was {person.name} {place.phrase}", partial(_was_there, person, place)
        if person.wish:
            words = f"{she} wanted the {person.wish.noun}"
            yield 2.0, f"What did {person.name} want", partial(_say, words)
        if person.goods:
            words = f"{she} had {NUMBERS[person.count]} {counted(person.goods, person.count)}"
            yield 2.0, f"How many {person.goods} did {person.name} have", partial(_say, words)
        if person.job:
            words = f"{she} was {article(person.job)} {person.job}"
            yield 1.0, f"What was {person.name}", partial(_say, words)


def _say(words: str) -> Process[None]:
    for word in words.split():
        yield from say(word, WRONG_ANSWER)


def _who_had(thing: Thing) -> Process[None]:
    return _say(f"{thing.holder.name if thing.holder else 'Nobody'} had the {thing.noun}")


def _where_was_it(thing: Thing) -> Process[None]:
    return _say(f"The {thing.noun} was {thing.place.phrase}")


def _was_there(person: Person, place: Place) -> Process[None]:
    if person.place == place:
        return _say(f"Yes , {person.she} was")
    return _say(f"No , {person.she} was {person.place.phrase}")
