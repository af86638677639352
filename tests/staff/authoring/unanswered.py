"""A file of answers with every answer empty: the stub of `solutions/review.toml`."""

from __future__ import annotations

import re
import tomllib

from .source import Fault, decode

ANSWER = re.compile(r"^(\w+ *= )(.+?)((?: +# .*)?)$", re.MULTILINE)


def without_answers(data: bytes, path: str = "<source>") -> tuple[str, list[Fault]]:
    """The text with "" for every answer, and what is wrong with it (then the text is empty)."""
    try:
        text = decode(data)
        tomllib.loads(text)
    except UnicodeDecodeError as error:
        return "", [Fault(path, data[: error.start].count(b"\n") + 1, "not UTF-8")]
    except tomllib.TOMLDecodeError as error:
        return "", [Fault(path, 0, f"not valid TOML: {error}")]
    empty = ANSWER.sub(r'\1""\3', text)
    left = [f"{table} {key}" for table, key, value in _answers(empty) if value != ""]
    if left:
        return "", [Fault(path, 0, f"{left[0]}: an answer stands on one line: key = value  # unit")]
    return empty, []


def _answers(text: str) -> list[tuple[str, str, object]]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:  # an answer of several lines was cut
        return [("an answer", "", None)]
    head = [("", key, value) for key, value in data.items() if not isinstance(value, dict)]
    tables = [(name, table) for name, table in data.items() if isinstance(table, dict)]
    return head + [(name, key, value) for name, table in tables for key, value in table.items()]
