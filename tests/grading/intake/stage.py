"""A submission becomes a tree, from beginning to end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.grading.course import Course
from tests.grading.intake.archives import ACCEPTED, read_archive
from tests.grading.intake.choose import Choice, choose
from tests.grading.intake.contents import sources
from tests.grading.intake.entries import LESS, Budget, Entry, Refused, Unreadable, megabytes
from tests.grading.intake.folder import read_file, read_folder
from tests.grading.intake.limits import LARGEST_ARCHIVE
from tests.grading.intake.names import is_python
from tests.grading.intake.notes import About, Note, in_order, listed, show
from tests.grading.intake.write import write

LONGEST_PLACE = 80  # characters of `shown`


@dataclass(frozen=True)
class Staged:
    """The tree made from a submission."""

    tree: Path  # the folder given, now with the unit folders
    shown: str  # how paths of the submission begin in messages: "assignment", "hw1.zip/assignment"
    notes: tuple[str, ...]  # a line each: what was left out, renamed, is missing


def stage(submission: Path, folder: Path, course: Course) -> Staged:
    """Put what the whitelist allows into `folder`, which is empty.

    `submission` exists. Nothing in it raises: what cannot be used is a note.
    """
    name = (submission if submission.name.strip(".") else submission.resolve()).name or "root"
    try:
        place, choice = _open(submission, name, course)
        notes = [*_on_nothing(name, choice, course), *choice.notes]
        files = sources(choice.files, course, notes)
    except Refused as refused:
        return Staged(folder, show(name), in_order([(About.WHOLE, f"{show(name)} {refused}")]))
    write(files, folder)
    return Staged(folder, show((*place, *choice.root), LONGEST_PLACE), in_order(notes))


def _open(submission: Path, name: str, course: Course) -> tuple[list[str], Choice]:
    """What to take, and the names of the submission and of the archive inside, if one is."""
    budget = Budget()
    if submission.is_dir():
        place, entries = [name], read_folder(submission)
    else:
        place, entries = _open_file(submission, name, course, budget)
    choice = choose(entries, course)
    if not choice.archives:
        return place, choice
    if len(choice.archives) > 1:
        names = listed([show(archive.name) for archive in choice.archives])
        raise Refused(f"holds several archives, {names}: hand in one")
    inner = choice.archives[0]
    try:
        return [*place, inner.name], choose(_open_inner(inner, budget), course)
    except Refused as refused:
        raise Refused(f"holds {show(inner.name)}, which {refused}") from None


def _open_file(
    submission: Path, name: str, course: Course, budget: Budget
) -> tuple[list[str], list[Entry]]:
    try:
        data = read_file(submission, LARGEST_ARCHIVE + 1)
    except Unreadable as why:
        raise Refused(str(why)) from None
    entries = _archive(data, budget)
    if entries is not None:
        return [name], entries
    if is_python(name) or name.lower() in course.answers:
        return ["submission"], [Entry(name, size=len(data), read=lambda: data)]
    raise Refused(f"is no archive and no .py file: {ACCEPTED}")


def _open_inner(inner: Entry, budget: Budget) -> list[Entry]:
    if inner.size > LARGEST_ARCHIVE:
        raise _too_large(inner.size)
    try:
        entries = _archive(inner.read(), budget)
    except Unreadable as why:
        raise Refused(str(why)) from None
    if entries is None:
        raise Refused(f"is no archive: {ACCEPTED}")
    return entries


def _archive(data: bytes, budget: Budget) -> list[Entry] | None:
    if not data:
        raise Refused("is an empty file")
    if len(data) > LARGEST_ARCHIVE:
        raise _too_large(len(data))
    return read_archive(data, budget)


def _too_large(size: int) -> Refused:
    return Refused(f"is larger than {megabytes(LARGEST_ARCHIVE)}; {LESS}")


def _on_nothing(name: str, choice: Choice, course: Course) -> list[Note]:
    if choice.files:
        return []
    units = listed([f"{unit}/" for unit in course.units], most=8)
    found = f"it holds {listed(choice.top)}" if choice.top else "it holds no files"
    line = f"{show(name)} has no course file in a unit folder ({units}); {found}"
    return [(About.WHOLE, line)]
