"""What is true in a story so far: who there is, where everybody and everything is."""

from dataclasses import dataclass, field

from .lexicon import SETTINGS


@dataclass(frozen=True)
class Place:
    name: str
    preposition: str
    setting: str

    @property
    def phrase(self) -> str:
        """in the kitchen"""
        return f"{self.preposition} the {self.name}"


PLACES = tuple(
    Place(name, preposition, setting)
    for setting, places in SETTINGS.items()
    for name, preposition in places.items()
)


@dataclass(eq=False)
class Person:
    name: str
    is_woman: bool
    job: str | None = None
    place: Place | None = None
    wish: "Thing | None" = None
    goods: str | None = None  # the plural: "apples"
    count: int = 0

    @property
    def she(self) -> str:
        return "she" if self.is_woman else "he"

    @property
    def her(self) -> str:
        return "her" if self.is_woman else "his"


@dataclass(eq=False)
class Thing:
    noun: str
    adjective: str
    holder: Person | None = None
    lies: Place | None = None  # where it is while nobody holds it

    @property
    def place(self) -> Place | None:
        return self.holder.place if self.holder else self.lies


@dataclass
class World:
    people: list[Person] = field(default_factory=list)
    things: list[Thing] = field(default_factory=list)
    last_subject: Person | None = None  # whom "she" or "he" means
    last_scenery: Thing | str | None = None  # what the last sentence with "The" was about

    @property
    def known_places(self) -> list[Place]:
        """Where somebody or something is, each once, in the order of people and things."""
        places = [person.place for person in self.people if person.place]
        places += [thing.lies for thing in self.things if thing.lies]
        return list(dict.fromkeys(places))

    @property
    def possible_places(self) -> list[Place]:
        """The places of the setting, which the first place that is named decides."""
        known = self.known_places
        return [place for place in PLACES if not known or place.setting == known[0].setting]

    @property
    def company(self) -> list[Person]:
        """Whom "they" means: those who share a place. Among three people there is one such group
        at most."""
        for person in self.people:
            if others := self.others_with(person):
                return [person, *others]
        return []

    def others_with(self, person: Person) -> list[Person]:
        """Who else is where `person` is."""
        return [p for p in self.people if p is not person and p.place == person.place]

    def held_by(self, person: Person) -> list[Thing]:
        return [thing for thing in self.things if thing.holder is person]

    def lying_in(self, place: Place) -> list[Thing]:
        return [thing for thing in self.things if thing.lies == place]

    def elsewhere(self, person: Person) -> list[Thing]:
        """The things that are not where `person` is."""
        return [thing for thing in self.things if thing.place != person.place]
