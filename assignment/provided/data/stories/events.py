"""What happens in a story, one sentence an event."""

from .actions import act
from .choices import NOTHING, Process, pick, pick_evenly, say
from .lexicon import CONNECTIVES, FEELINGS, GOING, TOGETHER, WEATHER
from .references import WRONG_PERSON, WRONG_PLACE, WRONG_PRONOUN, WRONG_THING, another_place
from .world import Person, Thing, World

FEWEST, MOST = 4, 10  # events of a story
STORY_ENDS = 0.2  # how probably after each event between these
CONNECTED = 0.25  # share of events that begin with a connective

WRONG_SUBJECT = {**WRONG_PERSON, **WRONG_PRONOUN}


def event(world: World, number: int) -> Process[bool]:
    """One event, or the line break that ends them. Before event 0 "One morning ," has been said.

    Args:
        number: how many events there have been.
    Returns:
        Whether the story goes on.
    """
    if number == 0:
        yield from _somebody_acts(world)
        return True
    ends = 0.0 if number < FEWEST else STORY_ENDS if number < MOST else 1.0
    start = yield from pick(_starts(world, ends), WRONG_SUBJECT if ends < 1.0 else NOTHING)
    if start == "end":
        return False
    if start == "connective":
        yield from _somebody_acts(world)
    elif start == "the":
        yield from _scenery(world)
    else:
        yield from _acts(world, start)
    return True


def _starts(world: World, ends: float) -> list[tuple[float, str, Person | str]]:
    """Options for the first word after a full stop; the weights sum to 1."""
    if ends == 1.0:
        return [(1.0, "\n", "end")]
    direct = [*_subjects(world), (0.8, "the", "the")]
    total = sum(weight for weight, _, _ in direct) / (1 - ends) / (1 - CONNECTED)
    options = [
        (weight / total, word[0].upper() + word[1:], start) for weight, word, start in direct
    ]
    connected = (1 - ends) * CONNECTED / len(CONNECTIVES)
    options += [(connected, word, "connective") for word in CONNECTIVES]
    return [*options, (ends, "\n", "end")]


def _subjects(world: World) -> list[tuple[float, str, Person | str]]:
    """Options: anybody by name, the last subject as a pronoun, those who are together as "they"."""
    last = world.last_subject
    options: list[tuple[float, str, Person | str]] = [
        (0.4 if person is last else 1.0, person.name, person) for person in world.people
    ]
    if last:
        options.append((2.0, last.she, last))
    if world.company:
        options.append((1.2, "they", "they"))
    return options


def _somebody_acts(world: World) -> Process[None]:
    subject = yield from pick(_subjects(world), WRONG_SUBJECT)
    yield from _acts(world, subject)


def _acts(world: World, subject: Person | str) -> Process[None]:
    if subject == "they":
        yield from _they_act(world)
    else:
        yield from act(world, subject)


def _they_act(world: World) -> Process[None]:
    """They … went to the garden together .   were happy .   danced ."""
    company = world.company
    options = [(2.0 / len(GOING), f"{verb} to the", "go") for verb in GOING]
    options += [(1.5 / len(TOGETHER), words, "do") for words in TOGETHER]
    world.last_subject = None
    what = yield from pick([*options, (1.0, "were", "feel")], {"agreement": ("was",)})
    place = None
    if what == "go":
        place = yield from another_place(world, company[0].place)
        yield from say("together")
    elif what == "feel":
        yield from pick_evenly(FEELINGS)
    yield from say(".")
    for person in company if place else []:
        person.place = place


def _scenery(world: World) -> Process[None]:
    """The … rain began .   red kite was still in the attic ."""
    options: list[tuple[float, str, Thing | str]] = [(0.1, words, words) for words in WEATHER]
    for thing in world.things:
        if thing.lies:
            options.append((0.6, thing.noun, thing))
            options.append((0.2, f"{thing.adjective} {thing.noun}", thing))
    options = [option for option in options if option[2] is not world.last_scenery]
    world.last_subject = None
    what = yield from pick(options, WRONG_THING)
    if isinstance(what, Thing):
        yield from say("was still")
        yield from say(what.lies.phrase, WRONG_PLACE)
    yield from say(".")
    world.last_scenery = what
