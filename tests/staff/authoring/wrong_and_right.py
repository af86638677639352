"""The files under tests/staff/mutants and tests/staff/variants, read and checked.

A mutant is the reference with one misconception in it: `old` text replaced by `new`. A variant is
a whole other file that is right. For one module both stand in mutants/<unit>/<module>.toml and
variants/<unit>/<module>/*.py. A file of answers has the same: wrong sheets as mutants, and as
variants right ones, with its own ending.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tests.grading.course import Course, load_course
from tests.grading.course_file import CourseError

from . import killers
from .source import BadFile, read, relative

KEYS = ("name", "idea", "loses", "old", "new")
LOSSES = ("correctness", "cost")


@dataclass(frozen=True)
class Candidate:
    """A file to stand in for the reference's, and what the suite has to make of it."""

    problem: str
    name: str
    kind: str  # "reference", "mutant" or "variant"
    idea: str  # the misconception, or what is different in a right variant
    loses: str  # "correctness", "cost", or "" where everything must pass
    source: str
    target: str  # where a tree has the file: "attention/kv_cache.py", "review.toml"
    killer: str = ""  # the test that caught it the last time, if it is worth to run it first

    @property
    def label(self) -> str:
        return f"{self.problem} {self.kind} {self.name}"


def choose(root: Path, unit: str | None = None, problem: str | None = None) -> list[str]:
    """Problems of the course that were asked for; BadFile when there is none."""
    course = _course(root)
    names = [
        each.name
        for each in course.problems.values()
        if unit in (None, each.unit) and problem in (None, each.name)
    ]
    if not names:
        known = ", ".join(course.problems) or "none"
        raise BadFile(f"tests/course.toml: no problem in {problem or unit!r}; there are: {known}")
    return names


def load(root: Path, problem: str) -> tuple[list[Candidate], list[str]]:
    """A problem's reference, mutants and variants, and what is wrong with its files."""
    try:
        reference = _reference(root, problem)
    except BadFile as error:
        return [], [str(error)]
    candidates, faults = [reference], []
    for each in [*_mutants(root, reference), *_variants(root, reference)]:
        if isinstance(each, BadFile):
            faults.append(str(each))
        else:
            candidates.append(each)
    return candidates, faults


def strays(root: Path) -> list[str]:
    """Files of mutants or variants that belong to no problem of the course: a typo in a path."""
    problems = set(_course(root).problems)
    staff = root / "tests" / "staff"
    tables = [path for path in staff.glob("mutants/*/*") if path.name != "__pycache__"]
    folders = [path for path in staff.glob("variants/*/*") if path.name != "__pycache__"]
    found = [
        path
        for path in [*tables, *folders]
        if f"{path.parent.name}.{path.stem}" not in problems and path.name != "__init__.py"
    ]
    return [f"{relative(path, root)}: belongs to no problem of tests/course.toml" for path in found]


def _course(root: Path) -> Course:
    try:
        return load_course(root / "tests" / "course.toml")
    except CourseError as error:
        raise BadFile(str(error)) from None


def _reference(root: Path, problem: str) -> Candidate:
    unit, module = problem.split(".")
    target = _course(root).problems[problem].target
    for name in (f"solutions/{target}", f"tests/{unit}/test_{module}.py"):
        if not (root / name).is_file():
            raise BadFile(f"{name}: missing; {problem} is in tests/course.toml")
    source = read(root / "solutions" / target, root)
    return Candidate(problem, "as it is", "reference", "must pass", "", source, target)


def _mutants(root: Path, reference: Candidate) -> Iterator[Candidate | BadFile]:
    path = root / "tests/staff/mutants" / f"{reference.problem.replace('.', '/')}.toml"
    where = relative(path, root)
    if not path.is_file():
        yield BadFile(f"{where}: missing; a problem needs at least one mutant")
        return
    try:
        data = tomllib.loads(read(path, root))
    except tomllib.TOMLDecodeError as error:
        yield BadFile(f"{where}: not valid TOML: {error}")
        return
    except BadFile as error:
        yield error
        return
    tables = data.pop("mutant", [])
    if data or not isinstance(tables, list) or not tables:
        yield BadFile(f"{where}: must hold [[mutant]] tables, at least one, and nothing else")
        return
    seen: set[str] = set()
    caught_by = killers.load(root).get(reference.problem, {})
    for number, table in enumerate(tables, start=1):
        try:
            mutant = _mutant(table, number, reference)
            if mutant.name in seen:
                raise BadFile(f"mutant {mutant.name!r}: the name is taken")
            seen.add(mutant.name)
            yield replace(mutant, killer=caught_by.get(mutant.name, ""))
        except BadFile as error:
            yield BadFile(f"{where}: {error}")


def _mutant(table: object, number: int, reference: Candidate) -> Candidate:
    if not isinstance(table, dict):
        raise BadFile(f"mutant {number} is {table!r}; expected a table with {', '.join(KEYS)}")
    name = f"mutant {table.get('name') or number!r}"
    if missing := [key for key in KEYS if key not in table]:
        raise BadFile(f"{name}: no {', '.join(missing)}; a mutant has {', '.join(KEYS)}")
    if unknown := sorted(set(table) - set(KEYS)):
        raise BadFile(f"{name}: unknown key {', '.join(unknown)}; a mutant has {', '.join(KEYS)}")
    for key in KEYS:
        text = table[key]
        if not isinstance(text, str) or not (text.strip() or key == "new"):
            raise BadFile(f"{name}: {key} is {text!r}; expected a text that is not empty")
    if table["loses"] not in LOSSES:
        raise BadFile(f"{name}: loses is {table['loses']!r}; expected one of {', '.join(LOSSES)}")
    if table["old"] == table["new"]:
        raise BadFile(f"{name}: new is equal to old")
    matches = reference.source.count(table["old"])
    if matches != 1:
        raise BadFile(f"{name}: old matches {matches} times in the reference; expected once")
    source = reference.source.replace(table["old"], table["new"])
    _must_compile(source, name, reference.target)
    return Candidate(
        reference.problem, table["name"], "mutant", table["idea"], table["loses"], source,
        reference.target,
    )  # fmt: skip


def _variants(root: Path, reference: Candidate) -> Iterator[Candidate | BadFile]:
    problem, target = reference.problem, reference.target
    folder = root / "tests/staff/variants" / problem.replace(".", "/")
    for path in sorted(folder.glob(f"*{Path(target).suffix}")):
        if path.name == "__init__.py":
            continue
        try:
            source = read(path, root)
            _must_compile(source, relative(path, root), target)
            yield Candidate(problem, path.stem, "variant", _first_line(source), "", source, target)
        except BadFile as error:
            yield error


def _must_compile(source: str, name: str, target: str) -> None:
    if not target.endswith(".py"):  # of a file of answers, one that cannot be read is a wrong one
        return
    try:
        compile(source, name, "exec")
    except (SyntaxError, ValueError) as error:
        raise BadFile(f"{name}: does not compile: {error}") from None


def _first_line(source: str) -> str:
    lines = (line.strip().strip('"# ') for line in source.splitlines())
    return next((line for line in lines if line), "")
