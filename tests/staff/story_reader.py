"""A second opinion on the stories: reads one as a person would, keeps account of who is where and
has what, and raises AssertionError at the first sentence that is not so.

It shares no code with the grammar, only its lists of words.
"""

import re
from dataclasses import dataclass

from assignment.provided.data.stories import lexicon

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
HER = {"she": "her", "he": "his"}
CONNECTIVE = re.compile(r"(Then|Soon|Later|Next|After that|Suddenly|One (\w+),) ")
HER_RELATIONS = ("friend", "neighbour", "cousin", "sister", "daughter", "mother", "aunt")
HIS_RELATIONS = ("friend", "neighbour", "cousin", "brother", "son", "father", "uncle")


@dataclass
class Somebody:
    name: str
    place: str = ""
    job: str = ""
    wish: str = ""
    goods: str = ""
    count: int = 0

    @property
    def she(self) -> str:
        assert (self.name in lexicon.WOMEN) != (self.name in lexicon.MEN)
        return "she" if self.name in lexicon.WOMEN else "he"

    def has(self, number: str, goods: str) -> bool:
        """Whether that is how many of their goods they have: one pear, two pears."""
        return number == NUMBERS[self.count] and goods == self.counted(self.count)

    def counted(self, count: int) -> str:
        return self.goods if count > 1 else {"cherries": "cherry"}.get(self.goods, self.goods[:-1])


@dataclass
class Something:
    adjective: str
    holder: str = ""  # whose name
    lies: str = ""  # where, if nobody has it


class StoryReader:
    def __init__(self, text: str):
        story, *questions = lines = text.split("\n")
        assert all(line.endswith(".") for line in lines)
        self.people: dict[str, Somebody] = {}
        self.things: dict[str, Something] = {}
        self.subject: Somebody | None = None  # whom "she" or "he" would mean
        self.setting, self.scenery = [], ""  # its places; what the last sentence with "The" was on
        sentences = story[:-1].split(". ")
        begins = [said.startswith("One ") for said in (*sentences, "One ")].index(True)
        for sentence in sentences[:begins]:
            self.read("opening", sentence)
        assert 2 <= len(self.people) <= 3 and 2 <= len(self.things) <= 4
        for sentence in sentences[begins:]:
            self.read("event", sentence)
        assert 4 <= len(sentences) - begins <= 10
        for line in questions:
            self.read("question", line[:-1])
        assert 2 <= len({line.split("?")[0] for line in questions}) == len(questions) <= 5

    def read(self, part: str, sentence: str) -> None:
        said = sentence
        if part == "event" and (start := CONNECTIVE.match(sentence)):
            said = sentence[start.end() :]
            assert start[2] is None or start[2] in lexicon.TIMES_OF_DAY
            assert said.startswith(("she ", "he ", "they ", *self.people)), sentence
        elif part == "event":
            assert said[:1].isupper(), sentence
        for pattern, method in PATTERNS[part].items():
            if found := re.fullmatch(pattern, said):
                try:
                    is_so = getattr(self, method)(*found.groups())
                except (KeyError, ValueError):  # nobody or nothing of this name
                    is_so = False
                assert is_so in (None, True), f"not so: {sentence}"
                return
        raise AssertionError(f"not understood: {sentence}")

    def who(self, word: str) -> Somebody:
        """Whom a name or pronoun means; the sentence is about them."""
        if word.lower() not in ("she", "he"):
            self.subject = self.people[word]
        assert self.subject and word.lower() in (self.subject.she, self.subject.name.lower())
        return self.subject

    def here(self, preposition: str, place: str) -> str:
        """The place's name, when the preposition is right and it is of this story's setting."""
        (setting,) = [places for places in lexicon.SETTINGS.values() if place in places]
        self.setting = self.setting or list(setting)
        assert place in self.setting and preposition in ("", setting[place])
        return place

    def thing(self, adjective: str | None, noun: str) -> Something:
        thing = self.things[noun]
        assert adjective is None or adjective == thing.adjective + " "
        return thing

    def place_of(self, thing: Something) -> str:
        return thing.lies or self.people[thing.holder].place

    # The opening

    def is_a(self, name, article, job):
        assert not self.people and agrees(article, job) and job in lexicon.JOBS
        self.people[name] = Somebody(name, job=job)

    def is_related(self, name, whose, relation):
        (first, *others) = self.people.values()
        assert name not in self.people and len(others) < 2 and not first.place
        self.people[name] = person = Somebody(name)
        if others:
            return whose == "their" and relation in ("friend", "neighbour", "cousin", "guest")
        relations = HER_RELATIONS if person.she == "she" else HIS_RELATIONS
        return whose == HER[first.she] and relation in relations

    def is_somewhere(self, name, preposition, place, too):
        places = [person.place for person in self.people.values()]
        assert len(places) > 1 and list(self.people).index(name) == places.index("")
        assert bool(too) == (place in places) and not self.things
        self.people[name].place = self.here(preposition, place)

    def comes(self, article, adjective, noun, holder, lies):
        assert adjective in (*lexicon.COLOURS, *lexicon.QUALITIES) and noun in lexicon.THINGS
        assert noun not in self.things and agrees(article, adjective)
        assert all(person.place for person in self.people.values())
        self.things[noun] = Something(adjective, holder, lies)

    def lies_somewhere(self, article, adjective, noun, preposition, place):
        self.subject = None
        self.comes(article, adjective, noun, "", self.here(preposition, place))

    def has_a(self, name, article, adjective, noun):
        self.comes(article, adjective, noun, self.who(name).name, "")

    def has_goods(self, name, number, goods):
        person = self.who(name)
        assert not person.goods and goods in lexicon.GOODS and person.place
        person.goods, person.count = goods, NUMBERS.index(number)
        return 2 <= person.count <= 6

    # Events

    def goes(self, who, place, adjective, noun, met):
        person = self.who(who)
        assert person.place != self.here("", place)
        person.place = place
        if noun:
            return self.thing(adjective, noun).holder == person.name
        return not met or (met != person.name and self.people[met].place == place)

    def takes(self, who, adjective, noun):
        person, thing = self.who(who), self.thing(adjective, noun)
        assert thing.lies == person.place
        thing.holder, thing.lies = person.name, ""

    def leaves(self, who, adjective, noun, preposition, place):
        person, thing = self.who(who), self.thing(adjective, noun)
        assert thing.holder == person.name and person.place == self.here(preposition, place)
        thing.holder, thing.lies = "", place

    def still_has(self, who, adjective, noun):
        return self.thing(adjective, noun).holder == self.who(who).name

    def gives(self, who, first, adjective, noun, last):
        person, thing = self.who(who), self.thing(adjective, noun)
        (name,) = [name for name in (first, last) if name]
        assert thing.holder == person.name != name and self.people[name].place == person.place
        thing.holder = name

    def looks_for(self, who, adjective, noun, holder, preposition, place):
        person, thing = self.who(who), self.thing(adjective, noun)
        assert person.place != self.place_of(thing)
        return thing.holder == holder if holder else thing.lies == self.here(preposition, place)

    def wants(self, who, adjective, noun):
        person = self.who(who)
        assert not person.wish and self.thing(adjective, noun).holder != person.name
        person.wish = noun

    def finds(self, who, number, goods, count, goods_then):
        person, more = self.who(who), NUMBERS.index(number)
        assert 1 <= more <= 3 and person.count and goods == person.counted(more)
        person.count += more
        return person.has(count, goods_then)

    def loses(self, who, number, whose, goods, count, goods_then):
        person, fewer = self.who(who), NUMBERS.index(number)
        assert 1 <= fewer <= 3 and fewer < person.count
        person.count -= fewer
        return (goods, whose) == (person.goods, HER[person.she]) and person.has(count, goods_then)

    def idles(self, who, what):
        person = self.who(who)
        does = [habit.format(her=HER[person.she]) for habit in lexicon.HABITS]
        return what in (*does, *(f"was {word}" for word in lexicon.FEELINGS))

    def they(self, what, place):
        self.subject = None
        places = [person.place for person in self.people.values()]
        (shared,) = {place for place in places if places.count(place) > 1}
        if not place:
            return what in (*lexicon.TOGETHER, *(f"were {word}" for word in lexicon.FEELINGS))
        for person in self.people.values():
            person.place = place if person.place == shared else person.place
        return shared != self.here("", place)

    def still_lies(self, adjective, noun, preposition, place):
        self.subject, before, self.scenery = None, self.scenery, noun
        return before != noun and self.thing(adjective, noun).lies == self.here(preposition, place)

    def weather(self, what):
        self.subject, before, self.scenery = None, self.scenery, what
        return what in lexicon.WEATHER and what != before

    # Answers

    def who_had(self, noun, who):
        return who == (self.things[noun].holder or "Nobody")

    def where_was_it(self, noun, preposition, place):
        return self.place_of(self.things[noun]) == self.here(preposition, place)

    def what_colour(self, noun, colour):
        return self.things[noun].adjective == colour in lexicon.COLOURS

    def where_was(self, name, she, preposition, place):
        person = self.people[name]
        return (she, self.here(preposition, place)) == (person.she.capitalize(), person.place)

    def was_there(self, name, preposition, place, she, instead, instead_place):
        person = self.people[name]
        known = [p.place for p in self.people.values()] + [t.lies for t in self.things.values()]
        assert self.here(preposition, place) in known and she == person.she
        assert not instead or self.here(instead, instead_place) != place
        return person.place == (instead_place or place)

    def wanted(self, name, she, noun):
        return (she, noun) == (self.people[name].she.capitalize(), self.people[name].wish)

    def how_many(self, goods, name, she, number, goods_then):
        person = self.people[name]
        assert (goods, she) == (person.goods, person.she.capitalize())
        return person.has(number, goods_then)

    def what_was(self, name, she, article, job):
        person = self.people[name]
        return (she, job) == (person.she.capitalize(), person.job) and agrees(article, job)


def agrees(article: str, word: str) -> bool:
    return article == ("an" if word[0] in "aeio" or word == "ugly" else "a")


PLACE, THING = r"(in|on|at) the (\w+)", r"the (\w+ )?(\w+)"
GOES = r"(?:went|walked|ran|hurried|rode|returned) to the (\w+)"
LOSES = "(?:lost|sold|dropped|gave away)"
PATTERNS = {  # a sentence of this form -> the method that judges it; the first form that fits
    "opening": {
        r"([A-Z]\w+) was (an?) (\w+)": "is_a",
        r"([A-Z]\w+) was (her|his|their) (\w+)": "is_related",
        rf"([A-Z]\w+) was {PLACE}(, too)?": "is_somewhere",
        rf"There was (an?) (\w+) (\w+) {PLACE}": "lies_somewhere",
        r"([A-Z]\w+) had (an?) (\w+) (\w+)": "has_a",
        r"([A-Z]\w+) had (\w+) (\w+)": "has_goods",
    },
    "event": {
        rf"[Tt]hey ({GOES} together|.*)": "they",
        rf"The (\w+ )?(\w+) was still {PLACE}": "still_lies",
        r"The (.*)": "weather",
        rf"(\w+) {GOES}(?: with {THING}| and met (\w+))?": "goes",
        rf"(\w+) (?:took|picked up|found|grabbed) {THING}": "takes",
        rf"(\w+) left {THING} {PLACE}": "leaves",
        rf"(\w+) still had {THING}": "still_has",
        rf"(\w+) gave (?:([A-Z]\w+) )?{THING}(?: to (\w+))?": "gives",
        rf"(\w+) looked for {THING}, but (?:(\w+) had the \3|the \3 was {PLACE})": "looks_for",
        rf"(\w+) wanted {THING}": "wants",
        r"(\w+) found (\w+) more (\w+) and then had (\w+) (\w+)": "finds",
        rf"(\w+) {LOSES} (\w+) of (\w+) (\w+) and then had (\w+) (\w+)": "loses",
        r"(\w+) (.*)": "idles",
    },
    "question": {
        r"Who had the (\w+)\? (\w+) had the \1": "who_had",
        rf"Where was the (\w+)\? The \1 was {PLACE}": "where_was_it",
        r"What colour was the (\w+)\? The \1 was (\w+)": "what_colour",
        rf"Where was (\w+)\? (\w+) was {PLACE}": "where_was",
        rf"Was (\w+) {PLACE}\? Yes, (\w+) was()()": "was_there",
        rf"Was (\w+) {PLACE}\? No, (\w+) was {PLACE}": "was_there",
        r"What did (\w+) want\? (\w+) wanted the (\w+)": "wanted",
        r"How many (\w+) did (\w+) have\? (\w+) had (\w+) (\w+)": "how_many",
        r"What was (\w+)\? (\w+) was (an?) (\w+)": "what_was",
    },
}
