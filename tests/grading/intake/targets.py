"""The whitelist: what a path in a submission becomes in the tree. Pure, on names alone."""

from __future__ import annotations

from tests.grading.course import Course
from tests.grading.intake.names import Parts, importable, is_python, stem
from tests.grading.intake.roots import Root, unit_of

NOT_MODULES = {"conftest", "setup"}  # pytest would run the first in its own process if it met it


def target_of(parts: Parts, root: Root, course: Course) -> str | None:
    """The path in the tree, None if the file has no place there."""
    if parts[-1].lower() in course.answers:
        return _answers(parts, root, course)
    relative = parts[len(root.parts) :]
    if parts[: len(root.parts)] != root.parts or not relative:
        return None
    if len(relative) == 1:
        return _flat(relative[0], root, course)
    return _in_unit(relative, course)


def _answers(parts: Parts, root: Root, course: Course) -> str | None:
    """A file of answers: beside the unit folders, in its own one, or in a folder above them."""
    *folder, name = (part.lower() for part in parts)
    top = [part.lower() for part in root.parts]
    own = [*top, course.answers[name].unit]
    return name if folder in (top[: len(folder)], own) else None


def _in_unit(relative: Parts, course: Course) -> str | None:
    unit, *folders, file = relative
    unit, folders = unit.lower(), [importable(folder) for folder in folders]
    if unit not in course.units or None in folders or not is_python(file):
        return None
    module = importable(stem(file))
    if module is None or module.lower() == "conftest":
        return None
    if not folders and f"{unit}.{module.lower()}" in course.problems:
        module = module.lower()  # as the tests spell it
    return "/".join([unit, *folders, f"{module}.py"])


def _flat(file: str, root: Root, course: Course) -> str | None:
    """A course file beside the unit folders, or instead of them; with its helpers if all those
    course files are of one unit.
    """
    module = importable(stem(file)) if is_python(file) else None
    if module is None:
        return None
    units = unit_of(module.lower(), course)
    if len(units) == 1:
        return f"{units[0]}/{module.lower()}.py"
    if root.home is None or module.lower() in NOT_MODULES:
        return None
    return f"{root.home}/{module.lower() if root.home in units else module}.py"
