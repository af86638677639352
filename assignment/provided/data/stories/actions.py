"""What one person can do, and what becomes of it. Only what is possible is said: nobody gives what
they do not have, takes what is elsewhere or meets who is not there."""

from collections.abc import Callable, Iterator
from functools import partial

from .choices import Process, pick, pick_evenly, say
from .lexicon import FEELINGS, GOING, HABITS, LOSING, NUMBERS, TAKING, counted
from .references import (
    WRONG_GOODS,
    WRONG_PERSON,
    WRONG_PLACE,
    WRONG_POSSESSIVE,
    WRONG_THING,
    another_place,
    one_of,
    the_thing,
)
from .world import Person, World

# The rest of a sentence, of which `pick` has said the subject and the words that name the action.
# The world changes when the full stop has been said, so a broken sentence changes nothing (but
# whom "she" means next: that is so once it is named).
Rest = Callable[[World, Person], Process[None]]


def act(world: World, person: Person) -> Process[None]:
    """went to the attic and met Tom ."""
    world.last_subject = person
    rest = yield from pick(_possible(world, person), IMPOSSIBLE)
    yield from rest(world, person)


def _possible(world: World, person: Person) -> Iterator[tuple[float, str, Rest]]:
    """Options: every action that `person` can do now."""
    others, held = world.others_with(person), world.held_by(person)
    for verb in GOING:
        yield 3.0 / len(GOING), f"{verb} to the", _goes
    if world.lying_in(person.place):
        for verb in TAKING:
            yield 4.0 / len(TAKING), f"{verb} the", _takes
    if held:
        yield 1.0, "left the", _leaves
        yield 0.8, "still had the", _still_has
        if others:
            yield 2.0, "gave the", _gives
        for other in others:
            yield 1.0, f"gave {other.name} the", partial(_gives, receiver=other)
    if world.elsewhere(person):
        yield 1.2, "looked for the", _looks_for
    if person.wish is None and len(held) < len(world.things):
        yield 1.2, "wanted the", _wants
    if person.goods:
        for more in range(1, min(3, 9 - person.count) + 1):
            yield 0.6, f"found {NUMBERS[more]} more", partial(_finds, more=more)
        for fewer in range(1, min(3, person.count - 1) + 1):
            for verb in LOSING:
                yield 0.5 / len(LOSING), f"{verb} {NUMBERS[fewer]} of", partial(_loses, fewer=fewer)
    yield 0.4, "was", _feels
    for habit in HABITS:
        yield 0.6 / len(HABITS), habit.format(her=person.her), _stops


IMPOSSIBLE = {
    "fact": [
        *(f"{verb} the" for verb in (*TAKING, "left", "still had", "looked for", "wanted")),
        *(f"found {number} more" for number in NUMBERS),
        *(f"{verb} {number} of" for verb in LOSING for number in NUMBERS),
        "gave",
    ],
    "agreement": [
        *(habit.format(her=word) for habit in HABITS for word in ("her", "his", "their")),
        "were",
    ],
}


def _goes(world: World, person: Person) -> Process[None]:
    """went to the … attic .   attic with the kite .   attic and met Tom ."""
    place = yield from another_place(world, person.place)
    held = world.held_by(person)
    there = [other for other in world.people if other.place == place]
    endings = [(3.0, ".", "."), (1.0, "with the", "with"), (2.0, "and met", "met")]
    possible = {".": True, "with": held, "met": there}
    ending = yield from pick(
        [option for option in endings if possible[option[2]]],
        {"fact": ("with the", "and met")},
    )
    if ending == "with":
        yield from the_thing(held)
    elif ending == "met":
        yield from one_of(there)
    if ending != ".":
        yield from say(".")
    person.place = place


def _takes(world: World, person: Person) -> Process[None]:
    """took the … kite ."""
    thing = yield from the_thing(world.lying_in(person.place))
    yield from say(".")
    thing.holder, thing.lies = person, None


def _leaves(world: World, person: Person) -> Process[None]:
    """left the … kite in the attic ."""
    thing = yield from the_thing(world.held_by(person))
    yield from say(person.place.phrase, WRONG_PLACE)
    yield from say(".")
    thing.holder, thing.lies = None, person.place


def _still_has(world: World, person: Person) -> Process[None]:
    """still had the … kite ."""
    yield from the_thing(world.held_by(person))
    yield from say(".")


def _gives(world: World, person: Person, receiver: Person | None = None) -> Process[None]:
    """gave the … kite to Tom .   gave Tom the … kite ."""
    thing = yield from the_thing(world.held_by(person))
    if receiver is None:
        yield from say("to")
        receiver = yield from one_of(world.others_with(person))
    yield from say(".")
    thing.holder = receiver


def _looks_for(world: World, person: Person) -> Process[None]:
    """looked for the … kite , but the kite was in the attic .   kite , but Tom had the kite ."""
    thing = yield from the_thing(world.elsewhere(person))
    yield from say(", but")
    if thing.holder:
        yield from say(thing.holder.name, {"fact": ("the", *WRONG_PERSON["fact"])})
        yield from say("had the")
        yield from say(thing.noun, WRONG_THING)
    else:
        yield from say("the", WRONG_PERSON)
        yield from say(thing.noun, WRONG_THING)
        yield from say("was")
        yield from say(thing.lies.phrase, WRONG_PLACE)
    yield from say(".")


def _wants(world: World, person: Person) -> Process[None]:
    """wanted the … kite ."""
    thing = yield from the_thing([thing for thing in world.things if thing.holder is not person])
    yield from say(".")
    person.wish = thing


def _finds(world: World, person: Person, more: int) -> Process[None]:
    """found two more … pears and then had five pears ."""
    yield from say(counted(person.goods, more), WRONG_GOODS)
    yield from _then_has(person, person.count + more)


def _loses(world: World, person: Person, fewer: int) -> Process[None]:
    """lost two of … her pears and then had one pear ."""
    yield from say(person.her, WRONG_POSSESSIVE)
    yield from say(person.goods, WRONG_GOODS)
    yield from _then_has(person, person.count - fewer)


def _then_has(person: Person, count: int) -> Process[None]:
    yield from say("and then had")
    yield from say(NUMBERS[count], {"fact": NUMBERS})
    yield from say(counted(person.goods, count), WRONG_GOODS)
    yield from say(".")
    person.count = count


def _feels(world: World, person: Person) -> Process[None]:
    """was … happy ."""
    yield from pick_evenly(FEELINGS)
    yield from say(".")


def _stops(world: World, person: Person) -> Process[None]:
    """yawned … ."""
    yield from say(".")
