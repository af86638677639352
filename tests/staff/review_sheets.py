"""Sheets of answers for the tests of the review, right ones made from the key."""

from __future__ import annotations

import json

from tests.accounting.review import sheet
from tests.accounting.review.expected import Numbers, Word
from tests.accounting.review.judge import judge
from tests.accounting.review.key import key


def right_answers(student: str) -> dict[str, dict]:
    """A full set of answers, rounded as a person would."""
    return {
        name: {sub: _written(right) for sub, right in key(student, name).items()}
        for name in sheet.QUESTIONS
    }


def _written(right) -> object:
    if isinstance(right, Word):
        return right.value
    if isinstance(right, Numbers):
        return [_rounded(value) for value in right.values]
    return _rounded(right.value)


def _rounded(value: float) -> float | int:
    return int(value) if value == int(value) else float(f"{value:.4g}")


def text_of(student: object, answers: dict[str, dict]) -> str:
    """The file. A str that begins with "raw:" goes in as it is."""
    lines = [f"student = {_toml(student)}"]
    for name, table in answers.items():
        lines += ["", f"[{name}]", *(f"{sub} = {_toml(value)}" for sub, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml(value: object) -> str:
    if isinstance(value, str) and value.startswith("raw:"):
        return value.removeprefix("raw:")
    return json.dumps(value, ensure_ascii=False)


def failures(text: str | bytes, student: str | None = None) -> dict[str, BaseException]:
    """What goes wrong with each question that is not right."""
    data = text.encode() if isinstance(text, str) else text
    found = {}
    for name in sheet.QUESTIONS:
        try:
            judge(sheet.read(data), name, student)
        except (AssertionError, NotImplementedError) as error:
            found[name] = error
    return found
