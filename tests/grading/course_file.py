"""Reading the course file: tables that know where they are, and what each value may be."""

from __future__ import annotations

import datetime
import difflib
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

TRACKS = ("core", "elective")


class CourseError(Exception):
    """The course file is wrong: the place, what came, what was expected."""


NAME = re.compile(r"[a-z][a-z0-9_]*")
PROBLEM_NAME = re.compile(r"[a-z][a-z0-9_]*\.[a-z][a-z0-9_]*")
FILE = re.compile(r"[a-z][a-z0-9_]*\.toml")
_REQUIRED = object()


class Table:
    """A TOML table being read: remembers where it is, and which keys nobody asked for."""

    def __init__(self, data: dict, where: str):
        self._data, self._where, self._known = data, where, []

    def take(self, key: str, check: Callable, default: object = _REQUIRED):
        """The value of `key` as `check` reads it; `check` raises ValueError(what was expected)."""
        self._known.append(key)
        if key not in self._data:
            if default is _REQUIRED:
                self.fault(f"{key} is missing", f"a key {key!r}")
            return default
        try:
            return check(self._data[key])
        except ValueError as error:
            self.fault(f"{key} is {_show(self._data[key])}", str(error))

    def table(self, key: str) -> Table:
        return Table(self.take(key, a_dict, default={}), f"{self._where}: {key}")

    def tables(self, key: str, name: re.Pattern, where: str) -> list[tuple[str, Table]]:
        """The tables inside table `key`, each name checked."""
        inside = self.table(key)
        found = []
        for each in inside._data:
            if not name.fullmatch(each):
                example = "attention.kv_cache" if "." in name.pattern else "attention"
                self.fault(f"{key} has a table {each!r}", f"a name such as {example!r}")
            place = f"{self._where}: {where.format(each)}"
            found.append((each, Table(inside.take(each, a_dict), place)))
        return found

    def refuse_the_rest(self) -> None:
        """A key that nobody asked for is a typo."""
        for key in self._data:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                self.fault(f"unknown key {key!r}", f"only {', '.join(self._known)}{hint}")

    def fault(self, came: str, expected: str) -> None:
        raise CourseError(f"{self._where}: {came}; expected {expected}")


def a_text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    return value


def a_dict(value: object) -> dict:
    if not isinstance(value, dict):
        raise ValueError("a table")
    return value


def a_date(value: object) -> datetime.date:
    if not isinstance(value, datetime.date) or isinstance(value, datetime.datetime):
        raise ValueError("a date without quotes, such as 2027-02-12")
    return value


def a_track(value: object) -> str:
    if value not in TRACKS:
        raise ValueError(f"one of {', '.join(map(repr, TRACKS))}")
    return value


def _number(value: object) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not _positive(value):
        raise ValueError("a number above 0")
    return Fraction(value)


def _positive(value: int | Decimal) -> bool:
    return Decimal(value).is_finite() and value > 0


def a_file(value: object) -> str:
    if not isinstance(value, str) or not FILE.fullmatch(value):
        raise ValueError("a name in small letters that ends in .toml, such as 'review.toml'")
    return value


def some_problems(value: object) -> tuple[str, ...]:
    names = value if isinstance(value, list) else []
    if not names or not all(isinstance(n, str) and PROBLEM_NAME.fullmatch(n) for n in names):
        raise ValueError("a list of problems, such as ['serving.scheduler']")
    return tuple(names)


def a_points(value: object) -> Fraction:
    points = _number(value)
    if (points * 100).denominator != 1:
        raise ValueError("at most two decimals")
    return points


def a_weights(value: object) -> dict[str, Fraction]:
    if not a_dict(value):
        raise ValueError("at least one entry, such as { ragged = 2 }")
    for name in value:
        if not NAME.fullmatch(name):
            raise ValueError(f"names such as 'ragged', and not {name!r}")
    try:
        return {name: _number(weight) for name, weight in value.items()}
    except ValueError as error:
        raise ValueError(f"{error} for each name") from None


def _show(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {_show(v)}" for k, v in value.items()) + " }"
    return str(value) if isinstance(value, Decimal) else repr(value)
