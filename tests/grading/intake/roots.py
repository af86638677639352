"""Where in a submission the unit folders are, however it was packed. Pure, on names alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tests.grading.course import Course
from tests.grading.intake.names import Parts, is_python, is_theirs, stem

RULE = "first a folder named assignment, then the most course files, then the name"


@dataclass(frozen=True)
class Root:
    """The folder that holds the unit folders, or else the course files themselves."""

    parts: Parts = ()
    flat: bool = False
    home: str | None = None  # the one unit that all flat files are of
    others: frozenset[Parts] = frozenset()  # folders as deep as this one, not taken


def find_root(files: Iterable[Parts], course: Course) -> Root | None:
    """The shallowest folder with unit folders, of several by RULE; else one with flat files."""
    files = [parts for parts in files if _is_wanted(parts[-1], course) and is_theirs(parts[:-1])]
    found = _with_units(files, course)
    flat = not found
    found = found or _with_flat(files, course)
    if not found:
        return None

    def rank(folder: Parts):
        named = bool(folder) and folder[-1].lower() == "assignment"
        return len(folder), not named, -len(found[folder]), folder

    best, *rest = sorted(found, key=rank)
    units = {problem.split(".")[0] for problem in found[best]}
    home = units.pop() if flat and len(units) == 1 else None
    return Root(best, flat, home, frozenset(f for f in rest if len(f) == len(best)))


def unit_of(module: str, course: Course) -> list[str]:
    """The units that have a course file of this name: one, unless two chose the same name."""
    return [p.unit for p in course.problems.values() if p.module == module and not p.file]


def _is_wanted(name: str, course: Course) -> bool:
    return is_python(name) or name.lower() in course.answers


def _problems_of(name: str, course: Course) -> set[str]:
    """The problems whose file has this name, in whichever folder."""
    if name.lower() in course.answers:
        return {course.answers[name.lower()].name}
    module = stem(name).lower()
    return {f"{unit}.{module}" for unit in unit_of(module, course)}


def _with_units(files: list[Parts], course: Course) -> dict[Parts, set[str]]:
    """Each folder that holds a unit folder with modules in it, and the problems among these.

    Those without any are there only if none has some.
    """
    found = defaultdict(set)
    for parts in files:
        unit = parts[-2].lower() if len(parts) > 1 else None
        if unit in course.units:
            problems = _problems_of(parts[-1], course)
            found[parts[:-2]] |= {name for name in problems if name.startswith(f"{unit}.")}
    return {folder: problems for folder, problems in found.items() if problems} or dict(found)


def _with_flat(files: list[Parts], course: Course) -> dict[Parts, set[str]]:
    found = defaultdict(set)
    for parts in files:
        problems = _problems_of(parts[-1], course)
        if len(problems) == 1:
            found[parts[:-1]] |= problems
    return dict(found)
