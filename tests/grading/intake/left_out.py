"""What is said about the files that were not taken: only what a student may have counted on."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection

from tests.grading.course import Course
from tests.grading.intake.entries import FILE, FOLDER, Entry
from tests.grading.intake.names import Parts, importable, is_python, is_theirs, stem
from tests.grading.intake.notes import About, Note, listed, show, told
from tests.grading.intake.roots import Root, unit_of

MOST_HELPERS = 5  # lines on files at the top; the others are counted
OUTSIDE = "is left out: it is outside the unit folders taken"
QUIET = {"__init__", "conftest", "setup"}
QUIET_FILES = ("readme", "license", "thumbs.db", "desktop.ini")
QUIET_ENDINGS = (".md", ".rst")


def left_out(
    rest: list[tuple[Parts, Entry]], root: Root, course: Course, files: Collection[str]
) -> list[Note]:
    """Lines on `rest`, the files that have no place in the tree; `files` are those that have."""
    same, helpers = defaultdict(list), []
    for parts, entry in rest:
        inside = parts[: len(root.parts)] == root.parts
        relative = parts[len(root.parts) :] if inside else ()
        in_unit = len(relative) > 1 and relative[0].lower() in course.units
        if meant := _meant_answers(parts, course):
            same[f"is left out: rename it to {meant} if it is meant to be that"].append(show(parts))
        elif entry.kind != FILE:
            wanted = in_unit or not files or _is_wanted(parts[-1], course)
            if why := _why_not_plain(entry, in_unit, wanted, course):
                same[why].append(show(relative or parts))
        elif in_unit:
            if why := _why_not_in_unit(relative, course):
                same[why].append(show(relative))
        elif len(relative) == 1 and relative[0].lower() in course.units:
            same["is a file where the unit's folder should be"].append(show(relative))
        elif _might_matter(parts, root, course):
            if len(relative) == 1:
                helpers.append(relative[0])
            else:
                same[OUTSIDE].append(show(parts))
    lines = [told(names, why) for why, names in same.items()]
    lines += [_on_helper(name, course, files) for name in helpers[:MOST_HELPERS]]
    if len(helpers) > MOST_HELPERS:
        lines.append(f"{len(helpers) - MOST_HELPERS} more .py files are outside the unit folders")
    return [(About.LEFT_OUT, line) for line in lines]


def _is_wanted(name: str, course: Course) -> bool:
    return is_python(name) or name.lower() in ("assignment", *course.units, *course.answers)


def _meant_answers(parts: Parts, course: Course) -> str:
    """The file of answers that "review (1).toml" may be meant to be; "" for none."""
    name = parts[-1].lower()
    if not name.endswith(".toml") or name in course.answers or not is_theirs(parts[:-1]):
        return ""
    stems = {file.removesuffix(".toml"): file for file in course.answers}
    return next((f for stem, f in stems.items() if re.match(rf"{stem}(\W|_|\d)", name)), "")


def _why_not_plain(entry: Entry, in_unit: bool, wanted: bool, course: Course) -> str:
    if entry.kind == FOLDER:
        name = entry.name.rstrip("/").rpartition("/")[2]
        is_file = (in_unit and is_python(name)) or name.lower() in course.answers
        return "is a folder where a file should be" if is_file else ""
    return f"is left out: it is {entry.kind}" if wanted else ""


def _why_not_in_unit(relative: Parts, course: Course) -> str:
    unit, file = relative[0].lower(), relative[-1]
    if not is_python(file):
        quiet = file.lower().startswith(QUIET_FILES) or file.lower().endswith(QUIET_ENDINGS)
        return "" if quiet else "is left out: only .py files are taken"
    if file.lower() == "conftest.py":
        return "is left out: a submission needs none"
    if importable(stem(file)) is not None:
        return "is in a folder whose name cannot be imported"
    return _on_name(file, _modules(course, unit))


def _modules(course: Course, unit: str | None = None) -> list[str]:
    problems = [problem for problem in course.problems.values() if not problem.file]
    return [problem.module for problem in problems if unit in (None, problem.unit)]


def _on_name(file: str, modules: list[str]) -> str:
    """A name such as "kv_cache (1).py": what a browser or an upload form makes of kv_cache.py."""
    name = re.sub(r"\W+", "_", stem(file).lower())
    meant = max((m for m in modules if name.startswith(m)), key=len, default=None)
    hint = f": rename it to {meant}.py if it is meant to be that" if meant else ""
    return f"has a name that cannot be imported{hint}"


def _might_matter(parts: Parts, root: Root, course: Course) -> bool:
    name = parts[-1].lower()
    noted = parts[: len(root.parts)] in root.others
    if name in course.answers:
        return is_theirs(parts[:-1])
    if not is_python(name) or noted or not is_theirs(parts[:-1]):
        return False
    return stem(name) not in QUIET and not name.startswith("test_")


def _on_helper(name: str, course: Course, files: Collection[str]) -> str:
    shown, module = show(name), stem(name)
    if units := unit_of(module.lower(), course):
        places = listed([f"{unit}/" for unit in units])
        return f"{shown} may be of {places}: put it into the folder that it is of"
    if importable(module) is None:
        return f"{shown} {_on_name(name, _modules(course))}"
    own = {file.partition("/")[0] for file in files if "/" in file}
    unit = f"{own.pop()}/" if len(own) == 1 else "the folder of its unit"
    how = f"move it to {unit} and import it as `from .{show(module)} import …`"
    return f"{shown} is outside the unit folders: {how}"
