"""One question of a sheet, judged: silence is right, everything else says where it is not."""

from __future__ import annotations

import difflib

from assignment.provided.review import normalised, questions
from tests.accounting.review.key import key
from tests.accounting.review.quantities import Unreadable
from tests.accounting.review.sheet import BadSheet, Sheet
from tests.grading.errors import UNANSWERED

LONGEST_SHOWN = 60
__tracebackhide__ = True  # pytest's word: a traceback ends in the test, and does not show the key


def judge(sheet: Sheet, question: str, student: str | None = None) -> None:
    """Raise unless all answers to `question` are right.

    Args:
        question: "q1".
        student: whose numbers count; the sheet's own id when None.
    Raises:
        NotImplementedError: it is not answered yet, or not in full and nothing is wrong so far.
        AssertionError: the first answer that is wrong or unreadable; never says the right one.
    """
    try:
        answers = sheet.answers(question)
        given = {name: value for name, value in answers.items() if not _is_empty(value)}
        if not given:
            raise NotImplementedError(f"{question} {UNANSWERED}")
    except BadSheet as error:
        raise AssertionError(f"{question}: {error}") from None
    judged = _student(sheet, student)
    right = key(judged, question)
    if unknown := [name for name in answers if name not in right]:
        raise AssertionError(f"{question}: {_on_unknown(unknown[0], list(right))}")
    told = f"not right for student {judged}; {_source(question)}"
    for name in right:
        if name in given:
            _check(f"{question} {name}", given[name], right[name], told)
    if missing := [name for name in right if name not in given]:
        raise NotImplementedError(f"{question} {missing[0]} {UNANSWERED}")


def _student(sheet: Sheet, graded: str | None) -> str:
    """The id whose numbers count; AssertionError when the sheet is somebody else's, or nobody's."""
    try:
        written = sheet.student
        own = normalised(written)
    except BadSheet as error:
        raise AssertionError(f"the sheet's head: {error}") from None
    except ValueError as error:
        said = _cut(written) if written.strip() else "empty"
        raise AssertionError(f"whose sheet is it? `student` is {said}: {error}") from None
    if graded is not None and own != normalised(graded):
        raise AssertionError(f"the sheet is of student {own}, and {normalised(graded)} is graded")
    return own


def _check(name: str, answer: object, right, told: str) -> None:
    try:
        read = right.read(answer)
    except Unreadable as why:
        raise AssertionError(f"{name}: cannot read {_cut(answer)}: {why}") from None
    if not right.is_right(read):
        said = f"{name}: read {_cut(answer)} as {_cut(right.say(read), 120)}"
        raise AssertionError(f"{said}, and that is {told}")


def _is_empty(value: object) -> bool:
    return value == [] or (isinstance(value, str) and not value.strip())


def _on_unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name[:40], known, 1)
    hint = f"; is it meant to be {near[0]}?" if near else f", only {', '.join(known)}"
    return f"there is no answer {_cut(name)}{hint}"


def _source(question: str) -> str:
    """What to read."""
    return next(str(q.source) for q in questions("anyone") if q.name == question)


def _cut(value: object, longest: int = LONGEST_SHOWN) -> str:
    """What stands in the sheet, short and in one line."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 10**20:
        return "a number of more than 20 digits"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list):
        value = (
            f"[{', '.join('a list' if isinstance(v, list) else _cut(v, 20) for v in value[:12])}]"
        )
    text = " ".join(str(value)[:1000].split())
    return text if len(text) <= longest else text[: longest - 1] + "…"
