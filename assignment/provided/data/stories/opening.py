"""How a story begins: who there is, where they are, what they have."""

from collections.abc import Sequence

from .choices import NOTHING, Process, pick, pick_evenly, say
from .lexicon import (
    GOODS,
    JOBS,
    NUMBERS,
    RELATIONS_OF_A_MAN,
    RELATIONS_OF_A_THIRD,
    RELATIONS_OF_A_WOMAN,
    TIMES_OF_DAY,
    WOMEN,
    article,
)
from .references import (
    NAMES,
    WRONG_ARTICLE,
    WRONG_GOODS,
    WRONG_PERSON,
    WRONG_POSSESSIVE,
    adjectives,
    any_place,
    new_noun,
)
from .world import Person, Thing, World

THREE_PEOPLE = 0.6  # how probably there is a third person
FEWEST_THINGS, MOST_THINGS = 2, 4
OPENING_ENDS = 0.4  # how probably after each sentence between these


def hero(world: World) -> Process[None]:
    """Mara was a baker ."""
    name = yield from pick_evenly(NAMES)
    yield from say("was")
    jobs = [(1.0, f"{article(job)} {job}", job) for job in JOBS]
    job = yield from pick(jobs, WRONG_ARTICLE)
    yield from say(".")
    world.people.append(_person(name, job))


def companion(world: World) -> Process[None]:
    """Tom was her brother ."""
    (first,) = world.people
    name = yield from pick_evenly([name for name in NAMES if name != first.name], WRONG_PERSON)
    yield from say("was")
    yield from say(first.her, WRONG_POSSESSIVE)
    woman = name in WOMEN
    yield from _is_related(world, name, RELATIONS_OF_A_WOMAN if woman else RELATIONS_OF_A_MAN)


def third_or_first_place(world: World) -> Process[None]:
    """Ida was their cousin .   Or Mara, the first of the two, is put in a place at once."""
    first = world.people[0]
    strangers = set(NAMES) - {person.name for person in world.people}
    options = [(THREE_PEOPLE / len(strangers), name, name) for name in sorted(strangers)]
    name = yield from pick([(1 - THREE_PEOPLE, first.name, None), *options], WRONG_PERSON)
    yield from say("was")
    if name is None:
        yield from _is_somewhere(world, first)
    else:
        yield from say("their", WRONG_POSSESSIVE)
        yield from _is_related(world, name, RELATIONS_OF_A_THIRD)


def whereabouts(world: World) -> Process[None]:
    """Tom was in the garden .   Everyone gets a place, in the order of their coming."""
    person = next(person for person in world.people if person.place is None)
    yield from say(person.name, WRONG_PERSON)
    yield from say("was")
    yield from _is_somewhere(world, person)


def inventory(world: World) -> Process[bool]:
    """There was a red kite in the attic .   Mara had an old lamp .   Mara had three pears .

    Returns:
        Whether the opening goes on. If not, "One morning ," has been said instead.
    """
    options = _starts(world)
    start = yield from pick(options, WRONG_PERSON if len(options) > 1 else NOTHING)
    if start == "one":
        yield from pick_evenly(TIMES_OF_DAY)
        yield from say(",")
        return False
    if start == "there":
        yield from _lies_somewhere(world)
    else:
        yield from _has_something(world, start)
    return True


def _starts(world: World) -> list[tuple[float, str, Person | str]]:
    """Options for the first word of `inventory`; the weights sum to 1."""
    things = len(world.things)
    ends = 0.0 if things < FEWEST_THINGS else OPENING_ENDS if things < MOST_THINGS else 1.0
    if ends == 1.0:
        return [(1.0, "One", "one")]
    more: list[tuple[float, str, Person | str]] = [(1.0, p.name, p) for p in world.people]
    more.append((1.5, "There was", "there"))
    total = sum(weight for weight, _, _ in more) / (1 - ends)
    options = [(weight / total, words, start) for weight, words, start in more]
    return [*options, (ends, "One", "one")]


def _person(name: str, job: str | None = None) -> Person:
    return Person(name, is_woman=name in WOMEN, job=job)


def _is_related(world: World, name: str, relations: Sequence[str]) -> Process[None]:
    yield from pick_evenly(relations, {"agreement": RELATIONS_OF_A_WOMAN + RELATIONS_OF_A_MAN})
    yield from say(".")
    world.people.append(_person(name))


def _is_somewhere(world: World, person: Person) -> Process[None]:
    place = yield from any_place(world)
    if any(other.place == place for other in world.people):
        yield from say(", too")
    yield from say(".")
    person.place = place


def _lies_somewhere(world: World) -> Process[None]:
    adjective = yield from pick(adjectives(), WRONG_ARTICLE)
    noun = yield from new_noun(world)
    place = yield from any_place(world)
    yield from say(".")
    world.things.append(Thing(noun, adjective, lies=place))
    world.last_subject = None


def _has_something(world: World, person: Person) -> Process[None]:
    yield from say("had")
    options: list[tuple[float, str, str | int]] = adjectives()
    if person.goods is None:
        options += [(3.0, NUMBERS[count], count) for count in range(2, 7)]
    what = yield from pick(options, WRONG_ARTICLE)
    if isinstance(what, int):
        goods = yield from pick_evenly(GOODS, WRONG_GOODS)
        yield from say(".")
        person.goods, person.count = goods, what
    else:
        noun = yield from new_noun(world)
        yield from say(".")
        world.things.append(Thing(noun, what, holder=person))
    world.last_subject = person
