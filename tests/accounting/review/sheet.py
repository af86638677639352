"""The student's review.toml: one table a question, each readable whatever is wrong elsewhere."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass, field

from tests.grading.intake.limits import LARGEST_ANSWERS

TABLE = re.compile(r"^[ \t]*\[[ \t]*[\"']?([^\[\]\"'\n]{0,40}?)[\"']?[ \t]*\]", re.MULTILINE)
QUOTES = 'a text stands in quotes, also a number with a unit or commas: "0.4 s"'


LONGEST_LINE = 500  # characters; one that is filled in has 60


class BadSheet(AssertionError):
    """Answers cannot be had; the text says why."""


@dataclass(frozen=True)
class Sheet:
    """Tables by question, and what is wrong with those that cannot be read ("" is the head)."""

    tables: dict[str, dict] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    @property
    def student(self) -> str:
        """The id as it stands there. Raises BadSheet."""
        if "" in self.faults:
            raise BadSheet(self.faults[""])
        student = self.tables.get("", {}).get("student", "")
        if isinstance(student, bool) or not isinstance(student, str | int):
            raise BadSheet('`student` must be your id in quotes, such as student = "s012345"')
        return str(student)

    def answers(self, question: str) -> dict:
        """The answers to "q1", unread. Raises BadSheet."""
        if question in self.faults:
            raise BadSheet(self.faults[question])
        if question in self.tables:
            return self.tables[question]
        near = [name for name in self.tables if _digits(name) == question[1:]]
        hint = f"; is [{near[0][:20]}] meant to be it?" if near else ""
        raise BadSheet(f"there is no table [{question}]{hint}")


def _digits(name: str) -> str:
    return "" if name in QUESTIONS else re.sub(r"\D", "", name)


QUESTIONS = tuple(f"q{number}" for number in range(1, 11))


def read(data: bytes) -> Sheet:
    """The sheet in a file's bytes; nothing in them raises anything but BadSheet.

    Raises:
        BadSheet: the file is no text, or far too large.
    """
    if len(data) > LARGEST_ANSWERS:
        raise BadSheet(f"the file has {len(data):,} bytes; an answers file has about 5,000")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise BadSheet(f"line {line} is not UTF-8: save the file anew as UTF-8 text") from None
    try:
        return _whole(_parsed(text))
    except (ValueError, RecursionError):  # TOMLDecodeError is a ValueError
        return _by_tables(text)


def _parsed(text: str) -> dict:
    """As TOML; an error names its line at its end, as the parser's do."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > LONGEST_LINE:  # the parser takes quadratic time for some
            raise ValueError(f"It has {len(line):,} characters (at line {number}, column 1)")
    return tomllib.loads(text)


def _whole(data: dict) -> Sheet:
    head = {name: value for name, value in data.items() if not isinstance(value, dict)}
    tables = {name: value for name, value in data.items() if isinstance(value, dict)}
    faults = {
        name: f"[{name}] is no table: write the line [{name}] once, and its answers below it"
        for name in QUESTIONS
        if name in data and name not in tables
    }
    return Sheet({"": head, **tables}, faults)


def _by_tables(text: str) -> Sheet:
    """Where the whole is not TOML: each part from one [name] to the next by itself."""
    starts = list(TABLE.finditer(text))
    ends = [match.start() for match in starts] + [len(text)]
    tables: dict[str, dict] = {}
    faults: dict[str, str] = {}
    for name, start, end in zip(
        ["", *(match[1] for match in starts)], [0, *ends], ends, strict=False
    ):
        if name in tables or name in faults:
            faults[name] = f"[{name}] is there more than once"
            continue
        try:
            part = _parsed(text[start:end])
            tables[name] = part.get(name, {}) if name else part
        except (ValueError, RecursionError) as error:
            first = text[:start].count("\n")
            faults[name] = f"{_where(error, first)}; {QUOTES}"
    return Sheet(tables, faults)


def _where(error: Exception, lines_before: int) -> str:
    """The parser's words, with the line counted in the whole file."""
    if isinstance(error, RecursionError):
        return "not valid TOML: brackets without end"
    text = str(error)[:200]
    line = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", text)
    if not line:
        return f"not valid TOML: {text}"
    place = f"line {lines_before + int(line[1])}: " if line[1] else ""
    return f"{place}not valid TOML: {text[: line.start()].lower()}"
