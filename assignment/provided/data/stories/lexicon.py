"""The words of the stories."""

WOMEN = (
    *("Ada", "Anna", "Clara", "Dora", "Emma", "Eva", "Hanna", "Iris", "Julia", "Lucy", "Mara"),
    *("Maya", "Nina", "Olga", "Rosa", "Vera"),
)
MEN = (
    *("Adam", "Ben", "Boris", "David", "Emil", "Felix", "Hugo", "Ivan", "Jack", "Karim", "Leo"),
    *("Milo", "Oscar", "Paul", "Simon", "Tom"),
)

JOBS = (
    *("actor", "artist", "baker", "barber", "carpenter", "cook", "dancer", "doctor", "farmer"),
    *("fisher", "gardener", "judge", "miller", "nurse", "painter", "pilot", "poet", "sailor"),
    *("shepherd", "singer", "tailor", "teacher", "writer"),
)
RELATIONS_OF_A_WOMAN = ("sister", "daughter", "mother", "aunt", "friend", "neighbour", "cousin")
RELATIONS_OF_A_MAN = ("brother", "son", "father", "uncle", "friend", "neighbour", "cousin")
RELATIONS_OF_A_THIRD = ("friend", "neighbour", "cousin", "guest")

# A story plays in one setting. With each place stands the word that puts a person there.
SETTINGS = {
    "house": {
        "kitchen": "in",
        "attic": "in",
        "cellar": "in",
        "garden": "in",
        "hall": "in",
        "balcony": "on",
        "stairs": "on",
    },
    "village": {
        "market": "at",
        "mill": "at",
        "bakery": "in",
        "square": "on",
        "bridge": "on",
        "school": "at",
        "church": "in",
    },
    "harbour": {
        "pier": "on",
        "beach": "on",
        "boat": "on",
        "lighthouse": "in",
        "shop": "in",
        "dock": "at",
        "island": "on",
    },
    "forest": {
        "clearing": "in",
        "cave": "in",
        "stream": "at",
        "hut": "in",
        "hill": "on",
        "pond": "at",
        "path": "on",
    },
    "farm": {
        "barn": "in",
        "field": "in",
        "stable": "in",
        "orchard": "in",
        "yard": "in",
        "well": "at",
        "meadow": "on",
    },
    "castle": {
        "tower": "in",
        "gate": "at",
        "library": "in",
        "courtyard": "in",
        "wall": "on",
        "chapel": "in",
        "dungeon": "in",
    },
    "town": {
        "station": "at",
        "park": "in",
        "museum": "in",
        "cinema": "at",
        "theatre": "at",
        "hospital": "in",
        "roof": "on",
    },
}
PREPOSITIONS = ("in", "on", "at")

COLOURS = ("black", "blue", "brown", "green", "grey", "pink", "purple", "red", "white", "yellow")
QUALITIES = (
    *("big", "broken", "golden", "heavy", "light", "little", "new", "old", "round", "shiny"),
    *("silver", "small", "ugly", "wooden"),
)
THINGS = (
    *("axe", "ball", "basket", "bell", "book", "bottle", "box", "bucket", "candle", "clock"),
    *("coat", "cup", "drum", "flute", "hammer", "hat", "key", "kite", "lamp", "letter", "map"),
    *("mirror", "net", "pillow", "ring", "rope", "spoon", "sword", "umbrella", "vase", "violin"),
    "whistle",
)
# one, several
GOODS = {
    "apples": "apple",
    "buttons": "button",
    "cherries": "cherry",
    "coins": "coin",
    "eggs": "egg",
    "lemons": "lemon",
    "marbles": "marble",
    "nuts": "nut",
    "pears": "pear",
    "plums": "plum",
    "shells": "shell",
    "stones": "stone",
}
NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

FEELINGS = (
    *(
        "afraid",
        "angry",
        "bored",
        "calm",
        "curious",
        "glad",
        "happy",
        "hungry",
        "lonely",
        "nervous",
    ),
    *("proud", "quiet", "sad", "sleepy", "surprised", "thirsty", "tired", "worried"),
)
# What one person does and nothing comes of; {her} agrees with who does it.
HABITS = (
    "sang {her} favourite song",
    "closed {her} eyes",
    "washed {her} hands",
    "ate {her} lunch",
    "brushed {her} teeth",
    "tied {her} shoes",
    "hurt {her} foot",
    "combed {her} hair",
    "told {her} best joke",
    "forgot {her} own name",
    "counted to ten",
    "looked at the sky",
    "yawned",
    "smiled",
    "sneezed twice",
    "waited",
)
TOGETHER = ("danced", "laughed", "talked for an hour", "played a game", "had tea", "sang", "rested")
WEATHER = (
    "rain began",
    "rain stopped",
    "wind was cold",
    "wind was strong",
    "sun came out",
    "sun was hot",
    "sky was dark",
    "moon was bright",
    "birds were loud",
    "stars were bright",
)
TIMES_OF_DAY = ("day", "morning", "afternoon", "evening", "night", "summer", "winter")
GOING = ("went", "walked", "ran", "hurried", "rode", "returned")  # … to the attic
TAKING = ("took", "picked up", "found", "grabbed")
LOSING = ("lost", "sold", "dropped", "gave away")
CONNECTIVES = ("Then", "Soon", "Later", "Next", "After that", "Suddenly")


def article(word: str) -> str:
    """The indefinite article before `word`."""
    return "an" if word[0] in "aeiou" else "a"


def counted(goods: str, count: int) -> str:
    """The word for `count` of them: pear, pears."""
    return GOODS[goods] if count == 1 else goods
