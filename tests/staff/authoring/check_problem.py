"""Is a problem complete? `python -m tests.staff.authoring.check_problem unit.name`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.grading.course import Course, Problem, load_course
from tests.grading.course_file import CourseError
from tests.grading.report import ProblemScore
from tests.grading.runner import run
from tests.grading.scoring import score

from . import mutation, stubs
from .handout import has_box, headings, whole
from .source import ROOT, BadFile
from .workers import Settings

SEED = 0


@dataclass(frozen=True)
class Check:
    """One line of the answer: `✓ name: text`."""

    name: str
    good: bool
    text: str

    def __str__(self) -> str:
        return f"{'✓' if self.good else '✗'} {self.name}: {self.text}"


def check_problem(name: str, root: Path = ROOT) -> Iterator[Check]:
    """The checks of one problem, in an order in which the first failure says most."""
    try:
        course = load_course(root / "tests" / "course.toml")
    except CourseError as error:
        yield Check("points", False, str(error))
        return
    if name not in course.problems:
        known = ", ".join(course.problems) or "none"
        yield Check("points", False, f"tests/course.toml has no {name!r}; there are: {known}")
        return
    problem = course.problems[name]
    groups, costs = ", ".join(problem.groups), ", ".join(problem.costs)
    parts = f"groups {groups}" + (f"; costs {costs}" if costs else "")
    yield Check("points", True, f"{problem.points} ({problem.track}); {parts}")
    yield from check_texts(problem, root)
    # Mutants fork this process: they go first, while nothing has run in it yet.
    yield from check_mutants(problem, root)
    yield from check_points(course, problem, root, _grader(course, problem))


def check_texts(problem: Problem, root: Path) -> Iterator[Check]:
    """What shows without running anything: files, handout section, stub in step."""
    yield _files(problem, root)
    yield _handout(problem, root)
    yield _in_step(problem, root)


def _files(problem: Problem, root: Path) -> Check:
    unit, module = problem.unit, problem.module
    needed = [
        f"solutions/{problem.target}",
        f"assignment/{problem.target}",
        f"tests/{unit}/test_{module}.py",
        f"tests/staff/mutants/{unit}/{module}.toml",
        f"handout/{unit}.typ",
    ]
    missing = [path for path in needed if not (root / path).is_file()]
    return Check("files", not missing, f"missing: {', '.join(missing)}" if missing else "all there")


def _handout(problem: Problem, root: Path) -> Check:
    path = f"handout/{problem.unit}.typ"
    file = root / path
    try:
        text = whole(file, root) if file.exists() else ""
    except BadFile as error:
        return Check("handout", False, str(error))
    titles = headings(text)
    said = f"{path}, section {problem.handout!r}"
    if problem.handout not in titles:
        found = ", ".join(map(repr, titles)) or "none"
        return Check("handout", False, f"{said} is not there; headings: {found}")
    if not has_box(text, problem.name):
        return Check("handout", False, f'{path}: no box #problem("{problem.name}", …)')
    return Check("handout", True, said)


def _in_step(problem: Problem, root: Path) -> Check:
    file = problem.target
    changes, faults = stubs.plan(root)
    wrong = [str(fault) for fault in faults if fault.path == f"solutions/{file}"]
    wrong += [
        f"{change.path} is not the stub of its source; `make stubs`"
        for change in changes
        if change.path == f"assignment/{file}"
    ]
    return Check("stub", not wrong, "; ".join(wrong) or "in step with its source")


def check_mutants(problem: Problem, root: Path) -> Iterator[Check]:
    """At least one mutant and one variant, every mutant killed, every variant accepted."""
    result = mutation.try_out([problem.name], Settings(root, SEED))
    for fault in result.faults:
        yield Check("mutants", False, fault)
    for verdict in result.bad:
        yield Check(verdict.candidate.kind, False, f"{verdict.candidate.name}: {verdict.reason}")
    killed, accepted = result.count("mutant", True), result.count("variant", True)
    yield Check("mutants", killed > 0, f"{killed} killed")
    yield Check("variants", accepted > 0, f"{accepted} accepted")


def check_points(
    course: Course, problem: Problem, root: Path, grade: Callable[[Path], ProblemScore]
) -> Iterator[Check]:
    """What the stub, the reference, and the reference with stubs all around it earn.

    Around it, but for the problems whose answers it is made of.
    """
    yield _graded("stub's points", grade(root / "assignment"), _earns_nothing)
    yield _graded("reference's points", grade(root / "solutions"), _earns_everything)
    with tempfile.TemporaryDirectory(prefix="alone-") as folder:
        tree = Path(folder) / "tree"
        ignore = shutil.ignore_patterns("provided", "__pycache__")
        shutil.copytree(root / "assignment", tree, ignore=ignore)
        for name in (problem.name, *problem.needs):
            file = course.problems[name].target
            if (root / "solutions" / file).is_file():
                shutil.copyfile(root / "solutions" / file, tree / file)
        yield _graded("alone, all else stubs", grade(tree), _earns_everything)


def _grader(course: Course, problem: Problem) -> Callable[[Path], ProblemScore]:
    """Grades a tree as students are graded, in processes of its own."""

    def grade(tree: Path) -> ProblemScore:
        outcome = run(tree, problems=[problem.name], isolated=True, seed=SEED)
        report = score(course, outcome.records, problems=[problem.name], faults=outcome.faults)
        return report.problems[0]

    return grade


def _graded(name: str, got: ProblemScore, judge: Callable[[ProblemScore], str]) -> Check:
    points = f"{float(got.points):g} of {float(got.possible):g}"
    wrong = "; ".join(got.faults) or judge(got)
    return Check(name, not wrong, f"{points}; {wrong}" if wrong else points)


def _earns_nothing(got: ProblemScore) -> str:
    if got.status == "not started":
        return ""
    written = [failure for failure in got.failures if not failure.unwritten]
    why = f"{written[0].tests[0]}: {written[0].message}" if written else "some tests pass"
    return f"expected every test of the gate to stop at NotImplementedError; {why}"


def _earns_everything(got: ProblemScore) -> str:
    if got.status == "full":
        return ""
    return "; ".join(f"{f.tests[0]}: {f.message.splitlines()[0]}" for f in got.failures[:3])


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.staff.authoring.check_problem")
    parser.add_argument("problem", help="unit.name, such as attention.kv_cache")
    good = True
    for check in check_problem(parser.parse_args(arguments).problem, root):
        print(check, flush=True)
        good &= check.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
