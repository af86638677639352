"""A grade from beginning to end: run, score, report."""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from platform import python_version

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tests.grading.course import Course, load_course
from tests.grading.html import write_html
from tests.grading.plugin import TESTS
from tests.grading.report import Run
from tests.grading.results import write_json
from tests.grading.runner import Outcome, run
from tests.grading.scoring import score
from tests.grading.submission import default_tree, find_tree
from tests.grading.terminal import print_report
from tests.grading.transport.forkserver import ForkServer

GRADER_AT_FAULT = 3


def grade(options: argparse.Namespace, server: ForkServer, clock: float) -> int:
    """Grade as the command line says, since time.monotonic() was `clock`; the exit status."""
    course = load_course(TESTS / "course.toml")
    problems = _choose(course, options)
    _make_writable(options.output)
    started = datetime.now(UTC)
    outcome = _run_with_progress(options, problems, server)
    about = Run(
        submission=options.submission,
        mode="isolated",
        seed=outcome.seed,
        started=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - clock, 1),
        versions={
            "python": python_version(),
            "torch": _version("torch"),
            "triton": _version("triton"),
        },
        options=_pytest_options(options.submission),
        notes=outcome.notes,
        walls=outcome.walls,
    )
    report = score(course, outcome.records, about, problems=problems, faults=outcome.faults)
    write_json(report, options.output / "results.json")
    write_html(report, options.output / "report.html")
    print_report(report, Console())
    return GRADER_AT_FAULT if report.provisional else 0


def _choose(course: Course, options: argparse.Namespace) -> list[str]:
    names = [
        name
        for name, problem in course.problems.items()
        if options.unit in (None, problem.unit) and name in (options.problem or [name])
    ]
    strangers = [f"problem {name!r}" for name in set(options.problem or []) - set(names)]
    if strangers or not names:
        unit = [f"unit {options.unit!r}"] if options.unit else []
        print(f"no {' with '.join(strangers + unit)}; the problems are:", file=sys.stderr)
        print(*(f"  {name}" for name in course.problems), sep="\n", file=sys.stderr)
        sys.exit(2)
    return names


def _make_writable(output: Path) -> None:
    """Told before the work, not after it."""
    try:
        output.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=output):
            pass
    except OSError as error:
        print(f"--output: {output} cannot be written to: {error.strerror}", file=sys.stderr)
        sys.exit(2)


def _run_with_progress(
    options: argparse.Namespace, problems: list[str], server: ForkServer
) -> Outcome:
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def show(test: str) -> None:
            file = Path(test.partition("::")[0]).stem.removeprefix("test_")
            progress.update(task, advance=1, description=file)

        return run(
            options.submission,
            problems=problems,
            server=server,
            seed=options.seed,
            student=options.student,
            on_start=lambda number: progress.update(task, total=number),
            on_test=show,
        )


def _pytest_options(submission: str) -> str:
    return (
        "" if find_tree(submission) == default_tree() else f"--submission {shlex.quote(submission)}"
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
