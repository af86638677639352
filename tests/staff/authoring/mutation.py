"""Try the suite on wrong and on right code: `python -m tests.staff.authoring.mutation`.

Every mutant must be caught, every variant accepted; `make mutants`, `UNIT=attention` for one unit.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from . import killers, trial, wrong_and_right
from .source import ROOT, BadFile
from .verdict import Verdict, judge
from .workers import Outcome, Settings, run_all
from .wrong_and_right import Candidate

OUTPUT_LINES = 25


@dataclass
class Result:
    verdicts: list[Verdict] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def count(self, kind: str, good: bool) -> int:
        return sum(v.candidate.kind == kind and v.good is good for v in self.verdicts)

    @property
    def bad(self) -> list[Verdict]:
        return [verdict for verdict in self.verdicts if not verdict.good]

    @property
    def good(self) -> bool:
        return not self.faults and not self.bad

    @property
    def last_line(self) -> str:
        return (
            f"mutants: {self.count('mutant', True)} killed, "
            f"{self.count('mutant', False)} survived; "
            f"variants: {self.count('variant', True)} accepted, "
            f"{self.count('variant', False)} rejected"
        )


def try_out(
    problems: list[str],
    settings: Settings,
    part: tuple[int, int] = (1, 1),
    on_start: Callable[[int], None] = lambda total: None,
    on_done: Callable[[Candidate], None] = lambda candidate: None,
) -> Result:
    """Mutants and variants of the problems. Those of a problem whose reference fails do not run.

    part: (2, 3): of the mutants and variants every third, from the second on.
    """
    result = Result()
    candidates: list[Candidate] = []
    for problem in problems:
        found, faults = wrong_and_right.load(settings.root, problem)
        candidates += found
        result.faults += faults
    references = [c for c in candidates if c.kind == "reference"]
    others = [c for c in candidates if c.kind != "reference"][part[0] - 1 :: part[1]]
    on_start(len(references) + len(others))

    def run(chosen: list[Candidate]) -> list[Verdict]:
        def done(candidate: Candidate, outcome: Outcome) -> None:
            on_done(candidate)

        outcomes = run_all(chosen, settings, done)
        trial.warm_up(name for outcome in outcomes for name in outcome.imported)
        return [judge(*pair) for pair in zip(chosen, outcomes, strict=True)]

    trial.warm_up()

    result.verdicts += run(references)
    sound = {verdict.candidate.problem for verdict in result.verdicts if verdict.good}
    result.verdicts += run([c for c in others if c.problem in sound])
    return result


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    options = _parse(arguments)
    console = Console(soft_wrap=True)
    if not console.is_terminal:
        console.width = 120  # a log has no edge to fold at
    settings = Settings(root, options.seed, options.jobs, options.limit)
    try:
        problems = wrong_and_right.choose(root, options.unit, options.problem)
    except BadFile as error:
        console.print(Text(str(error)))
        return 1
    result = _with_progress(problems, settings, options.part)
    if not (options.unit or options.problem):
        result.faults += wrong_and_right.strays(root)
    if options.remember and options.part == (1, 1):
        killers.remember(root, problems, dict(_caught(result.verdicts)))
    report(result, console, options.verbose)
    return 0 if result.good else 1


def _caught(verdicts: list[Verdict]) -> Iterator[tuple[tuple[str, str], str]]:
    """What caught each mutant, where that is not one of the first tests anyhow."""
    for verdict in verdicts:
        mutant, records = verdict.candidate, verdict.outcome.records
        if mutant.loses != "correctness" or not verdict.good or not records:
            continue
        test = killers.test_of(records[-1].test)
        if len(records) > killers.EARLY or test == mutant.killer:
            yield (mutant.problem, mutant.name), test


def report(result: Result, console: Console, verbose: bool = False) -> None:
    """What went wrong, with the tail of its output; the count on the last line."""
    for verdict in result.verdicts if verbose else ():
        mark = "✓" if verdict.good else "✗"
        seconds = f"{verdict.outcome.seconds:.1f} s"
        console.print(Text(f"{mark} {verdict.candidate.label} ({seconds}): {verdict.reason}"))
    for verdict in result.bad:
        tail = verdict.outcome.output.splitlines()[-OUTPUT_LINES:]
        console.rule(Text(verdict.candidate.label), align="left")
        console.print(Text("\n".join(tail)), style="dim")
    if result.bad:
        console.print(_table(result.bad))
    for fault in result.faults:
        console.print(Text(fault, style="red"))
    console.print(Text(result.last_line))


def _table(verdicts: list[Verdict]) -> Table:
    said = {"mutant": "survived", "variant": "rejected", "reference": "fails its own tests"}
    table = Table(title="Not as it should be", title_justify="left", show_lines=True)
    table.add_column("file", max_width=36)
    table.add_column("idea", max_width=36)
    table.add_column("verdict", min_width=40)
    for verdict in verdicts:
        candidate = verdict.candidate
        verdict_text = f"{said[candidate.kind]}: {verdict.reason}"
        table.add_row(Text(candidate.label), Text(candidate.idea), Text(verdict_text))
    return table


def _with_progress(problems: list[str], settings: Settings, part: tuple[int, int]) -> Result:
    columns = (
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("starting", total=None)
        return try_out(
            problems,
            settings,
            part,
            on_start=lambda total: progress.update(task, total=total),
            on_done=lambda candidate: progress.update(task, advance=1, description=candidate.label),
        )


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.staff.authoring.mutation")
    parser.add_argument("--unit", help="this unit only, such as attention")
    parser.add_argument("--problem", help="this problem only, such as attention.kv_cache")
    jobs, seconds = _above_zero(int, "a whole number"), _above_zero(float, "a number")
    parser.add_argument("--jobs", type=jobs, default=2, help="trials at a time (default: 2)")
    parser.add_argument("--seed", type=int, default=0, help="of the tests' inputs (default: 0)")
    parser.add_argument("--limit", type=seconds, default=60, help="seconds for one (default: 60)")
    parser.add_argument(
        "--part", type=_part, default=(1, 1), help="1/4: every fourth mutant or variant"
    )
    parser.add_argument(
        "--remember", action="store_true", help="note which test caught each, to run it first"
    )
    parser.add_argument("--verbose", action="store_true", help="say what killed each mutant")
    return parser.parse_args(arguments)


def _part(text: str) -> tuple[int, int]:
    which, _, parts = text.partition("/")
    if not (which.isdecimal() and parts.isdecimal() and 1 <= int(which) <= int(parts)):
        raise argparse.ArgumentTypeError(f"got {text!r}, expected a part such as 1/2")
    return int(which), int(parts)


def _above_zero(kind: type, expected: str) -> Callable[[str], float]:
    def read(text: str) -> float:
        try:
            number = kind(text)
        except ValueError:
            number = 0
        if not 0 < number < math.inf:
            raise argparse.ArgumentTypeError(f"got {text!r}, expected {expected} above 0")
        return number

    return read


if __name__ == "__main__":
    sys.exit(main())
