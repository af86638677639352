"""What a folder or an archive holds, whichever of them it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.grading.intake.limits import MB, MOST_UNPACKED

LESS = "hand in only the unit folders"
FILE, FOLDER = "a file", "a folder"  # other kinds: "a symbolic link", "a device", …


@dataclass(frozen=True)
class Entry:
    """One thing inside. `read` gives all of a file, at most `size` bytes, or raises Unreadable."""

    name: str  # as the archive or the file system has it
    kind: str = FILE
    size: int = 0
    read: Callable[[], bytes] = bytes


class Refused(Exception):
    """Nothing of the submission can be taken; the text says why, without its name."""


class Unreadable(Exception):
    """One file cannot be read; the text says why, without its name."""


class Budget:
    """What may still be unpacked, over all streams and both levels of an archive in an archive."""

    def __init__(self, most: int = MOST_UNPACKED):
        self._most = self._left = most

    def spend(self, number: int, effort: int = 1) -> None:
        self._left -= number * effort
        if self._left < 0:
            raise Refused(f"unpacks to more than {megabytes(self._most // effort)}; {LESS}")


def megabytes(number: int) -> str:
    if number < MB / 10:
        return f"{number / 1024:,.0f} KB"
    return f"{number / MB:,.1f}".removesuffix(".0") + " MB"
