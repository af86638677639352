"""Print the ten questions of a student: `python -m assignment.provided.review [ID]`."""

import argparse
import sys
import tomllib
from pathlib import Path

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from .question import Question
from .questions import questions
from .sheet import FILE, keep
from .student import normalised

WIDEST = 100


def main(arguments: list[str] | None = None, file: Path = FILE) -> int:
    parser = argparse.ArgumentParser(prog="python -m assignment.provided.review")
    parser.add_argument("student", nargs="?", help="your student id (default: the file's)")
    asked = parser.parse_args(arguments).student
    try:
        written = _written(file)
        student = normalised(asked or written)
        changed = keep(student, file)
    except (ValueError, OSError) as error:
        print(f"review: {error}", file=sys.stderr)
        return 2
    console = Console()
    console.width = min(console.width, WIDEST)
    for question in questions(student):
        console.print(_panel(question))
    where = _shown(file)
    console.print(Text(f"The questions of {student}. Answers go to {where}", "bold"))
    console.print(Text("Check them with  make grade PROBLEM=accounting.review", "bold"))
    if not changed and written and normalised(written) != student:
        told = f"But {where} counts as that of {written}: if you are {student}, change its line"
        console.print(Text(f'{told}  student = "{written}"  to  student = "{student}"', "red"))
    return 0


def _written(file: Path) -> str:
    """The id in the answers file; "" where there is none."""
    if not file.exists():
        return ""
    try:
        return str(tomllib.loads(file.read_text(encoding="utf-8-sig")).get("student", ""))
    except ValueError:  # while it is being written, anything may be wrong in it
        return ""


def _panel(question: Question) -> Panel:
    asks = Table(box=None, show_header=False, padding=(0, 2, 0, 0), expand=True)
    asks.add_column(style="bold cyan", no_wrap=True)
    asks.add_column(ratio=1)
    asks.add_column(style="dim", justify="right")
    for ask in question.asks:
        asks.add_row(Text(ask.key), Text(ask.text), Text(ask.unit))
    body = Group(Text(question.text), Padding(asks, (1, 0, 0, 0)))
    return Panel(
        body,
        title=Text(f"{question.name}  {question.title}", "bold"),
        title_align="left",
        subtitle=Text(str(question.source), "dim"),
        subtitle_align="right",
        padding=(1, 2),
    )


def _shown(file: Path) -> str:
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)


if __name__ == "__main__":
    sys.exit(main())
