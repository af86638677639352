"""Make every place a problem needs: `python -m tests.staff.authoring.new_problem unit.name`.

What it makes is a small problem that works (`make check-problem unit.name` is content with it), to
be replaced piece by piece. All of it or, when anything stands in the way, nothing.
"""

from __future__ import annotations

import argparse
import keyword
import re
import shutil
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from string import Template

from tests.grading.course import load_course
from tests.grading.course_file import CourseError

from .handout import headings, whole
from .source import ROOT, BadFile, read
from .stubs import make_stub

TEMPLATES = Path(__file__).with_name("templates")
NAME = re.compile(r"[a-z][a-z0-9_]*")
# Folders of solutions/, assignment/ or tests/ that are no units.
RESERVED_UNITS = {"provided", "staff", "grading", "hidden"}
COURSE = "tests/course.toml"


class Refused(Exception):
    """The problem cannot be made; the text says why. Nothing has changed."""


def new_problem(problem: str, title: str | None = None, root: Path = ROOT) -> list[str]:
    """Make the files of `problem` ("unit.name") and return their paths."""
    unit, module = _names(problem)
    title = title or _title(module)
    if not title.strip() or not title.isprintable() or set(title) & set('"\\#$*_<>@[]`'):
        raise Refused(f"title {title!r}: expected a line without quotes or markup")
    words = {"problem": problem, "unit": unit, "module": module, "title": title}
    words |= {"unit_title": _title(unit)}
    files = _plan(words, root)
    _write(files, root)
    return sorted(files)


def _names(problem: str) -> tuple[str, str]:
    parts = problem.split(".")
    if len(parts) != 2 or not all(NAME.fullmatch(part) for part in parts):
        raise Refused(f"{problem!r}: expected unit.name in small letters, as attention.kv_cache")
    if taken := [part for part in parts if keyword.iskeyword(part)]:
        raise Refused(f"{problem!r}: {taken[0]!r} is a keyword of Python")
    if parts[0] in RESERVED_UNITS:
        raise Refused(f"{problem!r}: {parts[0]!r} cannot be a unit; the name has another meaning")
    return parts[0], parts[1]


def _title(name: str) -> str:
    return name.replace("_", " ").capitalize()


def _plan(words: dict[str, str], root: Path) -> dict[str, str]:
    """The text of every file, by path from the root."""
    unit, module = words["unit"], words["module"]
    fresh = {
        f"solutions/{unit}/{module}.py": _fill("solution.py", words),
        f"tests/{unit}/test_{module}.py": _fill("test.py", words),
        f"tests/staff/mutants/{unit}/{module}.toml": _fill("mutants.toml", words),
        f"tests/staff/variants/{unit}/{module}/by_sum.py": _fill("variant.py", words),
    }
    stub, faults = make_stub(fresh[f"solutions/{unit}/{module}.py"].encode())
    assert not faults, faults
    fresh[f"assignment/{unit}/{module}.py"] = stub
    if existing := [path for path in fresh if (root / path).exists()]:
        raise Refused(f"{words['problem']}: {', '.join(existing)} is there already")
    package = {
        f"solutions/{unit}/__init__.py": _fill("unit.py", words),
        f"assignment/{unit}/__init__.py": _fill("unit.py", words),
        f"tests/{unit}/__init__.py": "",
    }
    fresh |= {path: text for path, text in package.items() if not (root / path).exists()}
    return fresh | {COURSE: _course(words, root), **_handout(words, root)}


def _fill(name: str, words: dict[str, str]) -> str:
    return Template((TEMPLATES / f"{name}.txt").read_text(encoding="utf-8")).substitute(words)


def _course(words: dict[str, str], root: Path) -> str:
    try:
        course = load_course(root / COURSE)
    except CourseError as error:
        raise Refused(str(error)) from None
    if words["problem"] in course.problems:
        raise Refused(f"{words['problem']}: {COURSE} has it already")
    text = read(root / COURSE, root).rstrip("\n") + "\n"
    if words["unit"] not in course.units:
        _check_unit(words["unit"], root)
        text += _fill("course_unit.toml", words)
    text += _fill("course_problem.toml", words)
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / "course.toml"
        draft.write_text(text, encoding="utf-8")
        try:
            load_course(draft)
        except CourseError as error:
            raise Refused(f"{COURSE} cannot be extended: {error}") from None
    return text


def _check_unit(unit: str, root: Path) -> None:
    """A new unit must not take over a file that the handout or the tests have for themselves."""
    taken = [name for name in (f"handout/{unit}.typ", f"tests/{unit}.py") if (root / name).exists()]
    if taken:
        raise Refused(
            f"{taken[0]} is there already, and the course has no unit {unit!r}: choose another "
            f"name, or, if it is a chapter, put [units.{unit}] into {COURSE} first"
        )


def _handout(words: dict[str, str], root: Path) -> dict[str, str]:
    path = f"handout/{words['unit']}.typ"
    file = root / path
    text = read(file, root) if file.exists() else _fill("unit.typ", words)
    chapter = whole(file, root) if file.exists() else text
    if words["title"] in headings(chapter):
        raise Refused(f"{path} has a section {words['title']!r} already; choose another --title")
    if f"<{words['problem']}>" in chapter:
        raise Refused(f"{path} has a label <{words['problem']}> already")
    return {path: text.rstrip("\n") + "\n" + _fill("section.typ", words)}


def _write(files: dict[str, str], root: Path) -> None:
    """All files or none: written aside, where a full disk harms nothing, then moved into place."""
    with (
        tempfile.TemporaryDirectory(dir=root, prefix=".new-problem-") as aside,
        ExitStack() as undo,
    ):
        moves = [(Path(aside) / f"{n}.new", root / path) for n, path in enumerate(files)]
        for (draft, target), text in zip(moves, files.values(), strict=True):
            draft.write_text(text, encoding="utf-8")
            if target.exists():
                shutil.copy2(target, draft.with_suffix(".old"))
        for draft, target in moves:
            for folder in _missing_folders(target.parent):
                folder.mkdir()
                undo.callback(folder.rmdir)
            old = draft.with_suffix(".old")
            if old.exists():
                undo.callback(old.replace, target)
            else:
                undo.callback(target.unlink, missing_ok=True)
            draft.replace(target)
        undo.pop_all()


def _missing_folders(folder: Path) -> list[Path]:
    """The folders that mkdir would make, outermost first."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    return missing[::-1]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.staff.authoring.new_problem")
    parser.add_argument("problem", help="unit.name, such as attention.latent")
    parser.add_argument("--title", help="in report and handout (default: from the name)")
    options = parser.parse_args(arguments)
    try:
        files = new_problem(options.problem, options.title, root)
    except (Refused, BadFile, OSError) as error:
        print(f"new-problem: {error}; nothing was written", file=sys.stderr)
        return 1
    print(*(f"made or extended {file}" for file in files), sep="\n")
    print(f"Now write it; `make check-problem {options.problem}` says what is left.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
