"""The session as lines of text for one window: a head, a body that fits what is left, the keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from rich.console import Console
from rich.text import Text

from tests.grading.report import ProblemScore
from tests.grading.terminal import STATUS_STYLES
from tests.grading.watch import problem_page
from tests.grading.watch.paint import Paint
from tests.grading.watch.session import Session, listed
from tests.grading.wording import plural, points

SILENT = 5.0  # seconds without a finished test: that is the student's code at work, or hanging
KEYS = (("h", "hint"), ("n", "next"), ("p", "previous"), ("l", "list"), ("r", "new inputs"))
LIST_KEYS = (("↑↓", "choose"), ("enter", "open"), ("l", "back"))


@dataclass(frozen=True)
class Block:
    """Lines that belong together. Where there is no room, those of the lowest rank go first."""

    rank: int
    lines: Sequence[Text]


def page(session: Session, advice: Sequence[problem_page.Advised], console: Console, now: float):
    """Exactly as many lines as the console has, none wider than it.

    Args:
        advice: what the hint key shows now.
        now: on the clock of the session's job.
    """
    paint = Paint(console)
    head, foot = _head(session, paint), _foot(session, paint, now)
    room = max(console.height - len(head) - len(foot) - 2, 1)
    if session.listing or session.current is None:
        body = _window(*_list(session, paint), room)
    else:
        blocks = problem_page.blocks(session, advice, paint)
        body = fit([Block(rank, lines) for rank, lines in blocks], room)
    body += [Text()] * (room - len(body))
    lines = [*head, Text(), *body, Text(), *foot][: console.height]
    return [paint.line(line) for line in lines]


def fit(blocks: Sequence[Block], room: int) -> list[Text]:
    """The blocks in this many lines: the least of them cut, or with blank lines between."""
    blocks = [block for block in blocks if block.lines]
    free = room - sum(len(block.lines) for block in blocks)
    by_rank = sorted(range(len(blocks)), key=lambda i: blocks[i].rank)
    kept = [len(block.lines) for block in blocks]
    for i in by_rank:
        cut = min(max(-free, 0), kept[i])
        kept[i], free = kept[i] - cut, free + cut
    spaced = [i for i in reversed(by_rank) if i > 0][: max(free, 0)]
    lines: list[Text] = []
    for i, block in enumerate(blocks):
        lines += [Text()] if i in spaced else []
        lines += _cut(block.lines, kept[i])
    return lines


def _cut(lines: Sequence[Text], most: int) -> list[Text]:
    if len(lines) <= most or most < 2:
        return list(lines[:most])
    return [*lines[: most - 1], Text("…", "dim")]


def _head(session: Session, paint: Paint) -> list[Text]:
    core, electives = session.total("core"), session.total("elective")
    tail = f"{points(core.points)} / {points(core.possible)} points"
    if electives.points:
        tail += f", electives +{points(electives.points)}"
    share = core.points / core.possible if core.possible else Fraction(0)
    return [
        paint.spread(Text(session.course.title, "bold"), Text(tail, "bold")),
        paint.bar(share, paint.width, "green"),
    ]


def _foot(session: Session, paint: Paint, now: float) -> list[Text]:
    keys = LIST_KEYS if session.listing else KEYS if session.current else ()
    texts = [Text.assemble((key, "bold"), f" {does}") for key, does in (*keys, ("q", "quit"))]
    return [_status(session, paint, now), *paint.flow(texts, gap=2)]


def _status(session: Session, paint: Paint, now: float) -> Text:
    """What is going on."""
    job, counted = session.job, len(session.results)
    if session.faults:
        return paint.line(("the grader's own fault; it tries again at your next save", "magenta"))
    if session.busy and job and not job.cancelled:
        return _progress(session, paint, now)
    if session.busy:
        return paint.line(("starting…", "yellow"))
    words = []
    if session.result:
        run = session.result.run
        words += [f"ran at {session.result.at} in {run.seconds:.1f} s", f"seed {run.seed}"]
    if counted < len(session.order):
        words.append(f"counting: {counted} of {plural(len(session.order), 'problem')}")
    return paint.line((" · ".join(words), "dim"))


def _progress(session: Session, paint: Paint, now: float) -> Text:
    job = session.job
    silent = now - job.heard
    if silent >= SILENT and job.tests:
        return paint.line(
            (f"waiting for your code… {silent:.0f} s", "yellow"), (" · a save starts anew", "dim")
        )
    share = Fraction(min(job.done, job.tests), job.tests) if job.tests else Fraction(0)
    tests = f" {job.done} of {plural(job.tests, 'test')}" if job.tests else ""
    verb = "running" if session.current else "finding where you are"
    return paint.line((f"{verb} ", "yellow"), paint.bar(share, 16, "yellow"), tests)


def _list(session: Session, paint: Paint) -> tuple[list[Text], int]:
    """All problems by unit, and which of the lines the cursor is on."""
    lines: list[Text] = []
    at = 0
    names = listed(session.course)
    for i, name in enumerate(names):
        unit = session.course.problems[name].unit
        if i == 0 or unit != session.course.problems[names[i - 1]].unit:
            lines += [Text()] if lines else []
            lines.append(paint.line((session.course.units[unit].title, "bold")))
        if chosen := session.listing and name == session.cursor:
            at = len(lines)
        lines.append(_row(session, name, paint, chosen))
    return lines, at


def _row(session: Session, name: str, paint: Paint, chosen: bool) -> Text:
    problem, score = session.course.problems[name], session.scores.get(name)
    earned = points(score.points) if score else "?"
    status = _word(score) if score else "waiting" if name in session.stale else "running"
    style = STATUS_STYLES[score.status] if score else "dim"
    tail = f"{earned:>5} / {points(problem.points):<4} {status:<12}"
    title = paint.fit(problem.title, max(paint.width - len(tail) - 4, 8))
    row = Text.assemble("> " if chosen else "  ", title, "  ", (tail, style))
    row.stylize("bold" if chosen else "")
    return row


def _word(score: ProblemScore) -> str:
    return "✓" if score.status == "full" else score.status


def _window(lines: list[Text], at: int, room: int) -> list[Text]:
    """As many lines as there is room for, line `at` among them."""
    start = min(max(at - room // 2, 0), max(len(lines) - room, 0))
    return lines[start : start + room]
