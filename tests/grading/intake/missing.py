"""Course files that a submission lacks. Pure."""

from __future__ import annotations

import difflib
from collections import defaultdict
from collections.abc import Collection

from tests.grading.course import Course
from tests.grading.intake.notes import About, Note, listed, show

MOST_COMPARED = 50  # of a student's own files with the names of missing ones


def missing(files: Collection[str], course: Course) -> list[Note]:
    """A line for each unit that lacks some of its files, and one for units that lack all."""
    lacking, whole = defaultdict(list), set(course.units)
    for problem in course.problems.values():
        if problem.target in files:
            whole.discard(problem.unit)
        else:
            lacking[problem.unit].append(problem.target)
    lines = [
        _line(unit, targets, files, course)
        for unit, targets in lacking.items()
        if unit not in whole
    ]
    if empty := [f"{unit}/" for unit in lacking if unit in whole]:
        lines.append(f"no course file is there for {listed(empty, most=8)}")
    return [(About.MISSING, line) for line in lines]


def _line(unit: str, targets: list[str], files: Collection[str], course: Course) -> str:
    verb = "is" if len(targets) == 1 else "are"
    return f"{listed(targets)} {verb} missing{_meant(unit, targets, files, course)}"


def _meant(unit: str, targets: list[str], files: Collection[str], course: Course) -> str:
    """A file of the student's own with nearly the name of a missing one."""
    known = {problem.target for problem in course.problems.values()}
    own = sorted(file for file in files if file.startswith(f"{unit}/") and file not in known)
    for target in targets:
        if close := difflib.get_close_matches(target, own[:MOST_COMPARED], 1, cutoff=0.9):
            return f"; is {show(close[0])} meant to be {target}?"
    return ""
