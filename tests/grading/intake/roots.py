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
    files = [parts for parts in files if is_python(parts[-1]) and is_theirs(parts[:-1])]
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
    return [p.unit for p in course.problems.values() if p.module == module]


def _with_units(files: list[Parts], course: Course) -> dict[Parts, set[str]]:
    """Each folder that holds a unit folder with modules in it, and the problems among these.

    Those without any are there only if none has some.
    """
    found = defaultdict(set)
    for parts in files:
        unit = parts[-2].lower() if len(parts) > 1 else None
        if unit in course.units:
            problem = f"{unit}.{stem(parts[-1]).lower()}"
            found[parts[:-2]] |= {problem} & course.problems.keys()
    return {folder: problems for folder, problems in found.items() if problems} or dict(found)


def _with_flat(files: list[Parts], course: Course) -> dict[Parts, set[str]]:
    found = defaultdict(set)
    for parts in files:
        module = stem(parts[-1]).lower()
        units = unit_of(module, course)
        if len(units) == 1:
            found[parts[:-1]].add(f"{units[0]}.{module}")
    return dict(found)
