"""`make readme`: what README.md shows of the course and of a run is put there by the code itself.

A block is what stands between `<!-- BEGIN name -->` and `<!-- END name -->`. `--check` rebuilds the
table of points only; a run's output has a seed and seconds in it, and CI compares its scores.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

from tests.grading.course import Course, load_course
from tests.grading.course_file import CourseError
from tests.grading.wording import points

from .source import ROOT, BadFile, read

RUNS = {"stubs": "assignment", "reference": "solutions"}


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.staff.authoring.readme")
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    check = parser.parse_args(arguments).check
    file = root / "README.md"
    try:
        text = read(file, root)
        table = points_table(load_course(root / "tests" / "course.toml"))
        current = with_block(text, "points", table)
        for name, submission in RUNS.items() if not check else ():
            current = with_block(current, name, f"```\n{grade(submission, root)}\n```")
    except (BadFile, CourseError, ValueError, subprocess.CalledProcessError) as error:
        print(f"readme: {error}; nothing was written", file=sys.stderr)
        return 1
    if check:
        if current != text:
            print("README.md: the table of points is not tests/course.toml's: run `make readme`")
        return int(current != text)
    file.write_text(current, encoding="utf-8")
    return 0


def points_table(course: Course) -> str:
    """A row a problem, in the order to solve them, and the core track's sum."""
    rows = [
        f"| {course.units[p.unit].title} | {p.title} | `{p.file or p.name}` "
        f"| {points(p.points)}{'' if p.track == 'core' else ' (elective)'} |"
        for p in course.problems.values()
    ]
    total = points(sum(p.points for p in course.problems.values() if p.track == "core"))
    head = ["| unit | problem | file | points |", "|---|---|---|---|"]
    return "\n".join([*head, *rows, f"| | core track | | {total} |"])


def grade(submission: str, root: Path) -> str:
    """What `make grade` prints, at 80 columns."""
    command = [sys.executable, "-m", "tests.grading", "--submission", submission, "--seed", "1"]
    environment = os.environ | {"COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        command, cwd=root, env=environment, stdout=subprocess.PIPE, encoding="utf-8", check=True
    )
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def with_block(text: str, name: str, content: str) -> str:
    """`text` with the block's content replaced.

    Raises:
        ValueError: `text` has no such block, or more than one.
    """
    block = re.compile(rf"(<!-- BEGIN {name} -->\n).*?(<!-- END {name} -->)", re.DOTALL)
    if len(block.findall(text)) != 1:
        found = len(block.findall(text))
        raise ValueError(f"README.md: expected one block {name!r}, found {found}")
    return block.sub(lambda found: f"{found[1]}{content}\n{found[2]}", text)


if __name__ == "__main__":
    sys.exit(main())
