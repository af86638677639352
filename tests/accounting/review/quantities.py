"""Numbers with units, as people write them: "400 ms", "819,200 B", "56.9x", "60 %", "4/7"."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from itertools import product

from tests.accounting.review.spelling import plain

LONGEST = 200  # characters of an answer


class Unreadable(Exception):
    """An answer that cannot be understood; the text says why."""


@dataclass(frozen=True)
class Quantity:
    """A kind of number: the unit it is counted in, and what each unit is worth in that one."""

    unit: str
    units: dict[str, float]  # as `_spelled` spells them
    words: dict[str, float] = field(default_factory=dict)  # what stands for a number, `plain`
    before: str = ""  # pattern of what may stand before the number


def _with(endings: tuple[str, ...], units: dict[str, float]) -> dict[str, float]:
    return {unit + end: worth for (unit, worth), end in product(units.items(), endings)}


PER_TOKEN = ("", "/token", "/tok", "/t", "/outputtoken")
TIMES = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("us", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("min", "minute", "minutes"), 60.0),
}
PREFIXES = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
BINARY = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
BYTES = {
    **{prefix + "b": worth for prefix, worth in (PREFIXES | BINARY).items()},
    **dict.fromkeys(("byte", "bytes"), 1.0),
    **{f"{word}bytes": 1e3**n for n, word in enumerate(("kilo", "mega", "giga", "tera"), 1)},
    **{f"{word}bytes": 2**n for word, n in (("kibi", 10), ("mebi", 20), ("gibi", 30))},
}  # fmt: skip
OF_A_RATE = ("", "t", "tok", "toks", "token", "tokens", "outputtoken", "outputtokens")
RATES = dict.fromkeys(
    [f"{token}/{second}" for token in OF_A_RATE for second in ("s", "sec", "second")] + ["tps"], 1.0
)
FLOPS = ("flop", "flops", "op", "ops")
INTENSITIES = dict.fromkeys(
    [f"{flop}/{byte}" for flop in FLOPS for byte in ("b", "byte", "bytes")], 1.0
)
TIMES_MORE = (
    *(word + end for word in ("x", "times") for end in ("", "less", "fewer", "smaller", "faster")),
    "fold", "-fold", "xmore",
)  # fmt: skip
BEFORE_A_FACTOR = r"x|(?:by )?(?:a )?factor(?: of)?"
COUNTED = (
    "token", "tok", "block", "slot", "row", "score", "entry", "entries", "weight", "head", "kvhead",
    "kv-head", "position", "layer", "kvcacheblock",
)  # fmt: skip
UNCHANGED = (
    "unchanged", "none", "no change", "not at all", "the same", "it does not change",
    "it doesnt change", "they do not change", "they dont change", "constant",
)  # fmt: skip
NOTHING = ("none", "no", "zero", "none at all", "no weights", "it keeps none")

TIME = Quantity("s", TIMES)
TIME_PER_TOKEN = Quantity("s per token", _with(PER_TOKEN, TIMES))
RATE = Quantity("tokens/s", RATES)
INTENSITY = Quantity("FLOP/B", INTENSITIES)
SIZE = Quantity("bytes", _with(PER_TOKEN, BYTES))
FACTOR = Quantity(
    "times", dict.fromkeys(TIMES_MORE, 1.0), dict.fromkeys(UNCHANGED, 1.0), BEFORE_A_FACTOR
)
SHARE = Quantity("of 1", {"%": 0.01, "percent": 0.01, "/cent": 0.01, "of1": 1.0})
COUNTS = {name + end: 1.0 for name, end in product(COUNTED, ("", "s"))}
COUNT = Quantity("", COUNTS, dict.fromkeys(NOTHING, 0.0))
PER_ROUND = Quantity("", COUNTS | dict.fromkeys(("token/round", "tokens/round"), 1.0))
NUMBER = Quantity("", {})

MANTISSA = r"[-+]?(?:\d[\d ,_']*)?(?:\.\d+|\d\.?)"
SPELLED = re.compile(
    rf"(?:[A-Za-z]{{1,12}} ?[=≥] ?|[~≈] ?)?(?P<number>{MANTISSA})(?:[eE](?P<e>[-+]?\d{{1,3}}))?"
    r"(?: ?[*x·] ?(?P<base>10|2)(?:\^|\*\*)(?P<times>[-+]?\d{1,3})|(?:\^|\*\*)(?P<power>\d{1,3}))?"
    rf"(?: ?/ ?(?P<below>\d+(?:\.\d+)?(?:[eE][-+]?\d{{1,3}})?))?(?P<unit>.*)"
)
GROUPED = re.compile(r"\d{1,3}(?:[ ,_']\d{3})+")
WORDS = {"µ": "u", "μ": "u", "×": "x", "−": "-", "\u00a0": " ", "\u2009": " ", "\u202f": " "}
WORDS |= {">=": "≥", " 1/s": " /s"}


def understand(value: object, quantity: Quantity) -> float:
    """The number in `quantity.unit`. Raises Unreadable."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise Unreadable(f"{_kind(value)} is no number")
    number = _read(value, quantity) if isinstance(value, str) else _plain(value)
    if not math.isfinite(number):
        raise Unreadable("it is no finite number")
    return number


def shown(number: float, quantity: Quantity) -> str:
    """A number with its unit: "0.02 s per token"; a share with its percents."""
    text = f"{number:,.10g}" if abs(number) < 1e16 else f"{number:.6g}"
    if quantity is SHARE:
        return f"{text} ({number * 100:,.6g} %)"
    return f"{text} {quantity.unit}".strip()


def _plain(value: int | float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _read(text: str, quantity: Quantity) -> float:
    if len(text) > LONGEST:
        raise Unreadable(f"it has {len(text):,} characters")
    if (word := plain(text)) in quantity.words:
        return quantity.words[word]
    for old, new in WORDS.items():
        text = text.replace(old, new)
    text = text.strip()
    if quantity.before:
        text = re.sub(rf"^(?:{quantity.before}) ?(?=[\d.])", "", text, flags=re.IGNORECASE)
    found = SPELLED.fullmatch(text)
    if not found:
        raise Unreadable("it does not begin with a number")
    return _value(found) * _worth(found["unit"], quantity)


def _value(found: re.Match) -> float:
    digits = found["number"].strip().lstrip("+-")
    whole = digits.partition(".")[0]
    if re.search(r"\D", whole) and not GROUPED.fullmatch(whole):
        raise Unreadable(f"{digits!r} is no number (thousands in threes, a point for decimals)")
    if whole.startswith("0") and whole.strip("0") and re.search(r"\D", whole):
        raise Unreadable(f"{digits!r}: write a point for decimals")
    number = float(re.sub(r"[ ,_']", "", digits))
    try:
        number = number ** int(found["power"]) if found["power"] else number
        number *= 10.0 ** int(found["e"] or 0) * float(found["base"] or 1) ** int(
            found["times"] or 0
        )
        number /= float(found["below"] or 1)
    except (OverflowError, ZeroDivisionError):
        return math.inf
    return -number if found["number"].startswith("-") else number


def _worth(unit: str, quantity: Quantity) -> float:
    spelled = _spelled(unit)
    if not spelled:
        return 1.0
    if spelled not in quantity.units:
        wanted = f"in {quantity.unit}" if quantity.unit else "a number without a unit"
        raise Unreadable(f"unit {unit.strip()!r} is unknown here; it is wanted {wanted}")
    return quantity.units[spelled]


def _spelled(unit: str) -> str:
    """A unit without spaces and capitals, "per" as a slash."""
    unit = re.sub(r"\bper\b|\bfor each\b", "/", unit.strip().lower())
    return re.sub(r"\s+", "", unit).rstrip(".")


def _kind(value: object) -> str:
    names = {bool: "true or false", list: "a list", dict: "a table"}
    return names.get(type(value), f"a {type(value).__name__}")
