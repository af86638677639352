"""A folder as entries: no link is followed, nothing but plain files is opened."""

from __future__ import annotations

import os
import stat
from collections import deque
from itertools import islice
from pathlib import Path

from tests.grading.intake.entries import FILE, FOLDER, LESS, Entry, Refused, Unreadable
from tests.grading.intake.limits import MOST_ENTRIES, MOST_IN_FOLDER
from tests.grading.intake.names import ENVIRONMENT, Parts, is_noise

KINDS = {
    stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket",
}  # fmt: skip


class _Closed(Exception):
    """A folder that is not looked into; the text says what it is."""


def read_folder(top: Path) -> list[Entry]:
    """Everything below `top` but noise and virtual environments. `top` itself may be a link."""
    entries, waiting = [], deque([()])
    while waiting:
        folder = waiting.popleft()
        try:
            inside = _inside(top.joinpath(*folder))
        except _Closed as why:
            if not folder:
                raise Refused(f"is {why}") from None
            inside = []
            entries.append(Entry("/".join(folder), str(why)))
        if folder and any(name == ENVIRONMENT for name, _, _ in inside):
            continue
        if len(entries) + len(inside) > MOST_ENTRIES:
            raise Refused(f"holds more than {MOST_ENTRIES:,} entries; {LESS}")
        for name, kind, size in inside:
            entries.append(_entry(top, (*folder, name), kind, size))
            if kind == FOLDER:
                waiting.append((*folder, name))
    return entries


def read_file(path: Path, most: int) -> bytes:
    """A plain file's bytes, at most `most`. Unreadable for anything else; waits for nothing."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(number, "rb") as file:
            if not stat.S_ISREG(os.fstat(number).st_mode):
                raise Unreadable("is no plain file")
            return file.read(most)
    except OSError as error:
        raise Unreadable(f"cannot be read: {os.strerror(error.errno)}") from None


def _inside(folder: Path) -> list[tuple[str, str, int]]:
    """Name, kind and size of what is in one folder, by name."""
    try:
        with os.scandir(folder) as listing:
            found = list(islice(listing, MOST_IN_FOLDER + 1))
        if len(found) > MOST_IN_FOLDER:
            raise _Closed(f"a folder of more than {MOST_IN_FOLDER:,} entries")
        about = [(e.name, e.stat(follow_symlinks=False)) for e in found if not is_noise(e.name)]
    except OSError as error:
        raise _Closed(f"a folder that cannot be read: {os.strerror(error.errno)}") from None
    return sorted((n, KINDS.get(stat.S_IFMT(s.st_mode), "a device"), s.st_size) for n, s in about)


def _entry(top: Path, parts: Parts, kind: str, size: int) -> Entry:
    return Entry("/".join(parts), kind, size, lambda: read_file(top.joinpath(*parts), size))
