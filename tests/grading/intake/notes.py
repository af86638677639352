"""Lines about a submission: by importance, safe to show, not too many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum

from tests.grading.intake.limits import LONGEST_NOTE, MOST_NOTES
from tests.grading.wording import clean, one_line

LONGEST_SHOWN = 60  # characters of a path in a note, so that the reason still has room


class About(IntEnum):
    """What a note is about; the first ones stand first."""

    WHOLE = 0
    MISSING = 1
    RENAMED = 2
    CONTENTS = 3
    LEFT_OUT = 4


Note = tuple[About, str]


def in_order(notes: Iterable[Note]) -> tuple[str, ...]:
    """The lines by importance, each once, at most MOST_NOTES and a count of the rest."""
    lines = [one_line(line, LONGEST_NOTE) for _, line in sorted(notes, key=lambda note: note[0])]
    lines = list(dict.fromkeys(lines))
    rest = len(lines) - MOST_NOTES
    return (*lines[:MOST_NOTES], f"and {rest} more") if rest > 0 else tuple(lines)


def show(path: str | Sequence[str], longest: int = LONGEST_SHOWN) -> str:
    """A path, or its parts, in one line without control characters; a long one keeps its end."""
    text = path if isinstance(path, str) else "/".join(path)
    text = text if len(text) <= longest else "…" + text[1 - longest :]
    return clean(text, longest).replace("\n", "�").replace("\t", "�")


def listed(names: Sequence[str], most: int = 4) -> str:
    """a, b and c; from the fifth on a count: a, b, c and 7 more."""
    names = list(names)
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def told(names: Sequence[str], predicate: str) -> str:
    """The predicate of one name, or of each of several."""
    return f"{listed(names)}{' ' if len(names) == 1 else ': each '}{predicate}"
