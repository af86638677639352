"""The words of the stories."""

WOMEN = (
    *("Ada", "Alma", "Anna", "Clara", "Dora", "Ella", "Emma", "Eva", "Flora", "Greta", "Hanna"),
    *("Ida", "Iris", "Julia", "Lena", "Lucy", "Mara", "Maya", "Nina", "Olga", "Rosa", "Sara"),
    *("Tilda", "Vera"),
)
MEN = (
    *("Adam", "Ben", "Boris", "Carl", "David", "Emil", "Felix", "Fred", "Hugo", "Ivan", "Jack"),
    *("Jonas", "Karim", "Leo", "Max", "Milo", "Nils", "Oscar", "Otto", "Paul", "Sam", "Simon"),
    *("Theo", "Tom"),
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
PLACES = tuple(place for places in SETTINGS.values() for place in places)
PREPOSITIONS = ("in", "on", "at")

COLOURS = ("black", "blue", "brown", "green", "grey", "pink", "purple", "red", "white", "yellow")
QUALITIES = (
    *("big", "broken", "clean", "golden", "heavy", "light", "little", "long", "new", "odd", "old"),
    *("plain", "round", "shiny", "silver", "simple", "small", "soft", "ugly", "warm", "wooden"),
)
THINGS = (
    *("axe", "bag", "ball", "basket", "bell", "blanket", "book", "bottle", "bowl", "box", "brush"),
    *("bucket", "candle", "chair", "clock", "coat", "compass", "cup", "doll", "drum", "fan"),
    *("flag", "flute", "fork", "guitar", "hammer", "hat", "jug", "kettle", "key", "kite", "knife"),
    *("ladder", "lamp", "lantern", "letter", "map", "mask", "mirror", "needle", "net", "painting"),
    *("pan", "pen", "picture", "pillow", "pipe", "plate", "pot", "puppet", "purse", "ribbon"),
    *("ring", "rope", "rug", "scarf", "shovel", "spoon", "sword", "tent", "towel", "toy"),
    *("trumpet", "umbrella", "vase", "violin", "watch", "whistle"),
)
# one, several
GOODS = {
    "acorns": "acorn",
    "apples": "apple",
    "beans": "bean",
    "buttons": "button",
    "cakes": "cake",
    "carrots": "carrot",
    "cherries": "cherry",
    "chestnuts": "chestnut",
    "coins": "coin",
    "eggs": "egg",
    "feathers": "feather",
    "figs": "fig",
    "lemons": "lemon",
    "marbles": "marble",
    "mushrooms": "mushroom",
    "nails": "nail",
    "nuts": "nut",
    "onions": "onion",
    "pears": "pear",
    "pebbles": "pebble",
    "plums": "plum",
    "seeds": "seed",
    "shells": "shell",
    "stamps": "stamp",
    "stones": "stone",
    "tickets": "ticket",
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
    "opened {her} umbrella wide",
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
