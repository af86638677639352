"""How sentences name people, things and places, and which confusion is which kind of mistake."""

from collections.abc import Sequence

from .choices import Process, pick
from .lexicon import COLOURS, GOODS, JOBS, MEN, PREPOSITIONS, QUALITIES, THINGS, WOMEN, article
from .world import PLACES, Person, Place, Thing, World

NAMES = (*WOMEN, *MEN)
ADJECTIVES = (*COLOURS, *QUALITIES)

# kind of mistake -> what, if said here, is that mistake. The first kind that fits counts.
WRONG_PERSON = {"fact": NAMES}
WRONG_THING = {"fact": (*THINGS, *ADJECTIVES)}
WRONG_PLACE = {
    "fact": [place.phrase for place in PLACES],
    "agreement": [f"{word} the {place.name}" for place in PLACES for word in PREPOSITIONS],
}
WRONG_PLACE_NAME = {"fact": [place.name for place in PLACES]}
WRONG_PRONOUN = {"agreement": ("she", "he", "they", "it", "She", "He", "They", "It")}
WRONG_POSSESSIVE = {"agreement": ("her", "his", "their", "its")}
WRONG_ARTICLE = {
    "agreement": [f"{wrong} {word}" for wrong in ("a", "an") for word in (*JOBS, *ADJECTIVES)]
}
WRONG_GOODS = {"agreement": (*GOODS, *GOODS.values())}


def one_of(people: Sequence[Person]) -> Process[Person]:
    """Mara"""
    return pick(((1.0, person.name, person) for person in people), WRONG_PERSON)


def the_thing(things: Sequence[Thing]) -> Process[Thing]:
    """kite, or red kite: three times in four the noun alone."""
    options = [(3.0, thing.noun, thing) for thing in things]
    options += [(1.0, f"{thing.adjective} {thing.noun}", thing) for thing in things]
    return pick(options, WRONG_THING)


def adjectives() -> list[tuple[float, str, str]]:
    """Options: a red, an old."""
    return [(1.0, f"{article(word)} {word}", word) for word in ADJECTIVES]


def new_noun(world: World) -> Process[str]:
    """kite: a thing that the story did not have yet."""
    taken = {thing.noun for thing in world.things}
    nouns = [(1.0, noun, noun) for noun in THINGS if noun not in taken]
    return pick(nouns, {"fact": taken})


def any_place(world: World) -> Process[Place]:
    """in the kitchen: places that were named are three times as likely as others."""
    known = world.known_places
    options = [(3.0 if p in known else 1.0, p.phrase, p) for p in world.possible_places]
    return pick(options, WRONG_PLACE)


def another_place(world: World, here: Place) -> Process[Place]:
    """attic: where somebody goes from `here`; mostly a place that was named."""
    known = world.known_places
    options = [(8.0 if p in known else 1.0, p.name, p) for p in world.possible_places if p != here]
    return pick(options, WRONG_PLACE_NAME)
