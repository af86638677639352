"""`make watch`: show the next problem, and run its tests again at every save.

Exit status: 0 when the student quits, 2 for a wrong call or no terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

from tests.grading.course import Course, load_course
from tests.grading.submission import REPOSITORY, find_tree

WRONG_CALL = 2


def main() -> int:
    options = _parse()
    if not (os.isatty(0) and os.isatty(1)):
        return _refuse("needs a terminal; to grade once: make grade")
    course = load_course(REPOSITORY / "tests" / "course.toml")
    tree = find_tree(options.submission)
    if fault := call_fault(options, course, tree):
        return _refuse(fault)
    print("make watch: starting", end="\r", flush=True)
    try:
        return _watch(options, course, tree)
    except KeyboardInterrupt:  # before the keys are ours
        return 0


def _watch(options: argparse.Namespace, course: Course, tree: Path) -> int:
    from tests.grading.watch.app import App, read
    from tests.grading.watch.hints import has_stub
    from tests.grading.watch.plan import in_order
    from tests.grading.watch.screen import open_screen
    from tests.grading.watch.session import Session, new_seed

    session = Session(
        course=course,
        order=in_order(course, options.unit),
        seed=new_seed(),
        submission=options.submission.rstrip("/"),
        current=options.problem,
        has_stub=lambda name: has_stub(read(tree / course.problems[name].target) or ""),
    )
    return asyncio.run(App(session, open_screen(), tree).run())


def call_fault(options: argparse.Namespace, course: Course, tree: Path) -> str:
    """What is wrong with the call, in a line; empty if nothing is."""
    if options.problem and options.problem not in course.problems:
        return f"no problem {options.problem!r}; there are {', '.join(course.problems)}"
    if options.unit and options.unit not in course.units:
        return f"no unit {options.unit!r}; there are {', '.join(course.units)}"
    return "" if tree.is_dir() else f"no folder {tree}"


def _refuse(fault: str) -> int:
    print(f"make watch: {fault}", file=sys.stderr)
    return WRONG_CALL


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.grading.watch", description=__doc__)
    parser.add_argument(
        "--submission", default="assignment", help="solutions, assignment or a path"
    )
    parser.add_argument("--unit", help="start with this unit, such as attention")
    parser.add_argument("--problem", help="start with this problem, such as attention.kv_cache")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
