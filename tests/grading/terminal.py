"""The report in a terminal: a table, what fails first, the next step, and at last the score."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from tests.grading.alike import alike
from tests.grading.questions import left_to_answer
from tests.grading.report import CostScore, Failure, GroupScore, ProblemScore, Report, Total
from tests.grading.wording import day, multiple, one_line, plural, points

WIDEST = 96  # a table wider than this is hard to read across
NARROWEST = 20  # a terminal that claims less breaks the lines itself
BAR = 16
PICTURE = 64  # a narrower terminal has no pictures
PICTURED = 2  # problems: a longer report has no pictures
NOTES = 5  # lines about the files handed in; the page has the rest
MESSAGE = 240  # characters of a failure that are worth reading here; the page has the rest

STATUS_STYLES = {
    "full": "green",
    "partial": "yellow",
    "failing": "red",
    "not started": "dim",
    "grader error": "magenta",
}
STATE_STYLES = {"passed": "green", "partial": "yellow", "failed": "red", "unwritten": "dim"}
SYMBOLS = {"passed": "✓", "failed": "✗", "unwritten": "·", "partial": "~", "bar": "━", "rest": "╌"}
PLAIN = {"passed": "+", "failed": "x", "unwritten": ".", "partial": "~", "bar": "#", "rest": "-"}
PLAIN_TEXT = str.maketrans({"×": "x", "·": "-", "…": "...", "—": "-", "“": '"', "”": '"'})


def print_report(report: Report, console: Console) -> None:
    """Print the report. The last line is `score: X / Y`: the core track's points, or those of the
    electives where these alone were graded."""
    page = _Page(console, pictures=len(report.problems) <= PICTURED)
    page.head(report)
    for name, unit in report.course.units.items():
        scores = [score for score in report.problems if score.problem.unit == name]
        if scores:
            page.unit(unit.title, f"due {day(unit.due)}" if unit.due else "")
            page.problems(scores, report.shown)
    page.failures(report.problems)
    page.faults(report)
    page.next_step(report)
    if report.beside:
        page.line(f"electives: +{_of(report.beside)}")
    page.score(f"score: {_of(report.score)}")


class _Page:
    """Knows the console: how wide it is, and which characters it can show."""

    def __init__(self, console: Console, *, pictures: bool = False):
        self._console = console
        console.width = max(console.width, NARROWEST)
        self._width = min(console.width, WIDEST)
        self._encoding = console.encoding or "ascii"
        self._symbols = SYMBOLS if _can_show(self._encoding) else PLAIN
        self._pictures = pictures and self._symbols is SYMBOLS and self._width >= PICTURE

    def head(self, report: Report) -> None:
        run = report.run
        facts = [run.submission, run.mode]
        facts += [] if run.seed is None else [f"seed {run.seed}"]
        facts += [f"{run.seconds:.1f} s"] if run.seconds else []
        self.line(report.course.title, "bold")
        self.line(" · ".join(one_line(fact, 60) for fact in facts), "dim")
        for note in run.notes[:NOTES]:
            self._paragraph(one_line(note, MESSAGE), 2, "yellow")
        if len(run.notes) > NOTES:
            self.line(f"  and {plural(len(run.notes) - NOTES, 'more note')}", "yellow")
        if missing := [name for name, why in run.walls.items() if why]:
            self.line(f"without walls: {one_line(', '.join(missing), MESSAGE)}", "dim")

    def unit(self, title: str, due: str) -> None:
        self.line()
        room = self._width - cell_len(due)
        self._print(Text.assemble((self._fit(title, room), "bold"), (due, "dim")))

    def problems(self, scores: list[ProblemScore], shown: dict[str, Fraction]) -> None:
        apart = True
        for score in scores:
            detailed = bool(score.records) and not score.broken and score.status != "not started"
            if apart or detailed:
                self.line()
            self._row(score, shown[score.problem.name])
            if detailed:
                self._detail(score)
            apart = detailed

    def _row(self, score: ProblemScore, shown: Fraction) -> None:
        style = STATUS_STYLES[score.status]
        number = f"{points(shown):>6} / {points(score.possible):<5}"
        status = "" if score.status in ("full", "partial") else f"{score.status:<12}"
        title = self._fit(f"  {score.problem.title}", self._width - BAR - len(number) - 15)
        self._print(Text.assemble(title, " ", *self._bar(score), (f" {number} {status}", style)))

    def _detail(self, score: ProblemScore) -> None:
        self._flow(self._group(group) for group in score.groups)
        for cost in score.costs:
            self._flow(self._cost(cost))
            self._roofline(cost)
        others = [part for part in (*score.groups[1:], *score.costs) if part.state == "passed"]
        if others and score.gate and score.gate.state in ("failed", "unwritten"):
            self.line(f"    nothing counts until {score.gate.name} passes", "dim")

    def _roofline(self, cost: CostScore) -> None:
        """Where a predicted time stands: a line, and a picture where it is not one of many."""
        if cost.figure is None or cost.figure.roofline is None:
            return
        from tests.grading.roofline import in_a_line, in_lines  # slow: torch

        lines = in_lines(cost.figure) if self._pictures else in_a_line(cost.figure)
        for line in lines:
            self.line(f"    {line}", "dim")

    def failures(self, scores: Iterable[ProblemScore]) -> None:
        """The first failure of every problem that was started."""
        failing = [s for s in scores if s.failures and s.status != "not started"]
        if failing:
            self.line()
            self.line("What fails first", "bold")
        for score in failing:
            groups = alike(score)
            same = next((s for s in groups if not s[0].unwritten), groups[0])
            first, count = same[0], _count(score, same)
            self._print(Text.assemble(f"  {score.problem.name}  ", (count, "dim")))
            if score.needs:
                self._paragraph(score.needs, 4, "yellow")
            message = first.message.removeprefix(f"{score.problem.name}: ")
            if message and len(first.tests) < len(score.records):
                self._paragraph(first.tests[0].partition("::")[2], 4, "dim")
            self._paragraph(one_line(message, MESSAGE) or first.tests[0], 4)

    def faults(self, report: Report) -> None:
        """What the grader did wrong, and what it leaves open."""
        if report.provisional:
            self.line()
            self.line("The grader's own fault, not yours: tell the course's staff", "bold magenta")
        for score in report.problems:
            if score.faults:
                span = f"{points(score.points)} to {points(score.at_most)}"
                fault = one_line(score.faults[0], MESSAGE)
                self._paragraph(f"{score.problem.name}: provisional, {span} points: {fault}", 2)
        for fault in report.faults:
            self._paragraph(one_line(fault, MESSAGE), 2)

    def next_step(self, report: Report) -> None:
        step = report.next_step
        self.line()
        if step is None:
            done = report.problems and not report.provisional
            every = len(report.problems) == len(report.course.problems)
            full = "Every problem is full." if every else "What was graded is full."
            self.line(full if done else "Nothing left for you to do here.")
        else:
            line = "" if step.line is None else f":{step.line}"
            self._print(Text.assemble(("Next  ", "bold"), one_line(step.file, 200), line))
            self._paragraph(one_line(step.look_at, MESSAGE), 6)
            self._paragraph(f"handout {step.handout}", 6)
            self._paragraph(one_line(step.command, 200), 6, "bold")
        self.line()

    def line(self, text: str = "", style: str = "") -> None:
        self._print(Text(text, style))

    def score(self, text: str) -> None:
        """The last line, for programs too: whole, however narrow the terminal."""
        self._console.print(Text(text, "bold"), soft_wrap=True, highlight=False)

    def _print(self, text: Text) -> None:
        text.rstrip()
        text.plain = self._showable(text.plain)
        self._console.print(text, width=self._width, highlight=False, overflow="fold")

    def _paragraph(self, text: str, indent: int, style: str = "") -> None:
        whole = Text(self._showable(text), style)
        for line in whole.wrap(self._console, max(self._width - indent, 10)):
            self._print(Text(" " * indent) + line)

    def _flow(self, items: Iterable[Text], indent: int = 4) -> None:
        """Items side by side, on as many lines as they need, none broken."""
        line = Text(" " * indent)
        for item in items:
            gap = 3 if len(line.plain) > indent else 0
            if gap and line.cell_len + gap + item.cell_len > self._width:
                self._print(line)
                line, gap = Text(" " * indent), 0
            line = Text.assemble(line, " " * gap, item)
        self._print(line)

    def _bar(self, score: ProblemScore) -> list[tuple[str, str]]:
        filled = int(score.points / score.possible * BAR)  # a full bar only for full points
        rest = self._symbols["rest"] * (BAR - filled)
        return [(self._symbols["bar"] * filled, STATUS_STYLES[score.status]), (rest, "dim")]

    def _group(self, group: GroupScore) -> Text:
        return Text.assemble(self._mark(group.state), f" {group.name}")

    def _mark(self, state: str) -> tuple[str, str]:
        return self._symbols.get(state, "!"), STATE_STYLES.get(state, "magenta")

    def _cost(self, cost: CostScore) -> list[Text]:
        mark = self._mark(cost.result)
        first = Text.assemble(mark, f" {cost.name} {cost.verdict}")
        beside = (f"{name} {multiple(times)}" for name, times in cost.beside.items())
        return [first, *(Text(words, "dim") for words in beside)]

    def _fit(self, text: str, cells: int) -> str:
        shown, cells = self._showable(text), max(cells, 10)
        if cell_len(shown) > cells:
            shown = set_cell_size(shown, cells - 1).rstrip() + self._showable("…")[:1]
        return set_cell_size(shown, cells)

    def _showable(self, text: str) -> str:
        if self._symbols is PLAIN:
            text = text.translate(PLAIN_TEXT)
        return text.encode(self._encoding, "replace").decode(self._encoding, "replace")


def _count(score: ProblemScore, same: list[Failure]) -> str:
    """How many tests fail like the first one, and how many in other ways."""
    if score.problem.file:
        return left_to_answer(score)
    alike, every = (_tests(failures) for failures in (same, score.failures))
    if alike == every:
        return plural(alike, "test")
    verb = "fails" if alike == 1 else "fail"
    return f"{plural(alike, 'test')} {verb} like this, {every - alike} otherwise"


def _tests(failures: Iterable[Failure]) -> int:
    return sum(len(failure.tests) for failure in failures)


def _can_show(encoding: str) -> bool:
    try:
        "".join(SYMBOLS.values()).encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _of(total: Total) -> str:
    return f"{points(total.points)} / {points(total.possible)}"
