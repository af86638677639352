"""The part of the page that shows one problem: its parts, what fails first, and advice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from tests.grading.course import Problem
from tests.grading.questions import left_to_answer
from tests.grading.records import TestRecord
from tests.grading.report import CostScore, Failure, ProblemScore
from tests.grading.terminal import STATUS_STYLES
from tests.grading.watch.paint import Paint
from tests.grading.watch.session import Session, first_failure
from tests.grading.wording import multiple, one_line, plural, points


@dataclass(frozen=True)
class Advised:
    """A paragraph of advice, or a command to copy."""

    title: str
    text: str = ""
    command: tuple[str, ...] = ()


def blocks(
    session: Session, advice: Sequence[Advised], paint: Paint
) -> Iterator[tuple[int, list[Text]]]:
    """The blocks of lines, from the top, each with its rank: which to keep where room is short."""
    problem, result = session.problem, session.result
    score = result.score if result else None
    yield 9, _title(session, problem, score, paint)
    yield 3, _where(session, problem, paint)
    yield 5, _dated(session, _parts(problem, score, paint))
    yield 9, _faults(session, score, paint)
    yield 4, _notes(result.run.notes if result else (), paint)
    if score:
        yield 7, _dated(session, _verdict(session, score, paint))
    yield 8, [line for part in advice for line in _advised(part, paint)]


def _dated(session: Session, lines: list[Text]) -> list[Text]:
    """What an earlier save came to is dim while the last one's result is on its way."""
    for line in lines:
        line.stylize("dim" if session.busy else "")
    return lines


def _title(
    session: Session, problem: Problem, score: ProblemScore | None, paint: Paint
) -> list[Text]:
    earned = points(score.points) if score else "?"
    style = STATUS_STYLES[score.status] if score else "dim"
    number = Text(f"{earned} / {points(problem.points)}", f"bold {style}")
    file = f"{session.submission}/{problem.target}"
    return [paint.spread(Text(problem.title, "bold"), number), paint.line(file)]


def _where(session: Session, problem: Problem, paint: Paint) -> list[Text]:
    unit = session.course.units[problem.unit]
    inside = [name for name in session.course.problems if name.startswith(f"{problem.unit}.")]
    place = f"problem {inside.index(problem.name) + 1} of {len(inside)}"
    return [
        paint.line((f"{unit.title} · {place}", "dim")),
        paint.line((f"handout {problem.unit}, “{problem.handout}”", "dim")),
    ]


def _parts(problem: Problem, score: ProblemScore | None, paint: Paint) -> list[Text]:
    """Groups and costs; nothing where one reason broke them all."""
    if score is None:
        return paint.flow(Text(name, "dim") for name in (*problem.groups, *problem.costs))
    if score.broken and score.status != "not started":
        return []
    without_figure = [cost for cost in score.costs if cost.figure is None]
    names = [(part.state, part.name) for part in (*score.groups, *without_figure)]
    lines = paint.flow(Text.assemble(paint.mark(state), f" {name}") for state, name in names)
    for cost in score.costs:
        lines += paint.flow(_cost(cost, paint)) if cost.figure else []
    others = (*score.groups[1:], *score.costs)
    shut = score.gate is not None and score.gate.state != "passed"
    if shut and any(part.state == "passed" for part in others):
        lines += paint.paragraph(f"nothing counts until {score.gate.name} passes", 0, "dim")
    return lines


def _cost(cost: CostScore, paint: Paint) -> list[Text]:
    first = Text.assemble(paint.mark(cost.result), f" {cost.name} {cost.verdict}")
    beside = (f"{name} {multiple(times)}" for name, times in cost.beside.items())
    return [first, *(Text(words, "dim") for words in beside)]


def _faults(session: Session, score: ProblemScore | None, paint: Paint) -> list[Text]:
    faults = (*session.faults, *(score.faults if score else ()))
    if not faults:
        return []
    told = "The grader's own fault, not yours: tell the course's staff"
    return [*paint.paragraph(told, 0, "bold magenta"), *paint.paragraph(faults[0], 2)]


def _notes(notes: Sequence[str], paint: Paint) -> list[Text]:
    return [paint.line((one_line(note, 200), "yellow")) for note in notes[:2]]


def _verdict(session: Session, score: ProblemScore, paint: Paint) -> list[Text]:
    if score.status == "full":
        return _full(session, score, paint)
    failure = first_failure(score)
    if failure is None:
        return []
    if failure.unwritten:
        return [paint.line(f"{_message(failure, score)}", ("   h for a hint", "dim"))]
    return [*_failed(failure, score, paint), *_others(score, failure, paint)]


def _full(session: Session, score: ProblemScore, paint: Paint) -> list[Text]:
    done = f"{paint.symbols['passed']} Solved: all {points(score.possible)} points"
    left = [n for n in session.order if n not in session.scores or _open(session.scores[n])]
    if left:
        following = session.course.problems[session.next()]
        go_on = Text.assemble("Press ", ("n", "bold"), f" for the next: {following.title}")
    else:
        go_on = Text("Every problem is full. Hand it in, and be proud.", "bold")
    return [paint.line((done, "bold green")), paint.line(go_on)]


def _open(score: ProblemScore) -> bool:
    return score.status != "full"


def _message(failure: Failure, score: ProblemScore) -> str:
    return failure.message.removeprefix(f"{score.problem.name}: ")


def _failed(failure: Failure, score: ProblemScore, paint: Paint) -> list[Text]:
    """The failing test, then what was expected, what came, and where."""
    record = next(record for record in score.records if record.test == failure.tests[0])
    message = _message(failure, score)
    mark = paint.mark("failed")
    if len(failure.tests) == len(score.records) and message:  # then the test says nothing
        first, *rest = paint.paragraph(message, 2)
        return [Text.assemble(mark, first[1:]), *rest]
    count = f"  and {len(failure.tests) - 1} more" if len(failure.tests) > 1 else ""
    name = record.test.rpartition("::")[2]
    title = paint.line(mark, (f" {name}", "bold"), (count, "dim"))
    return [title, *_finding(record, message, paint)]


def _finding(record: TestRecord, message: str, paint: Paint) -> list[Text]:
    found = record.finding
    lines: list[Text] = []
    if found and found.expected and found.got:
        about = ", ".join(filter(None, (found.what, found.where)))
        lines += paint.paragraph(about, 2) if about else []
        lines += paint.paragraph(f"expected  {found.expected}", 4)
        lines += paint.paragraph(f"got       {found.got}", 4)
        lines += paint.paragraph(found.note, 4, "dim") if found.note else []
    else:
        lines += paint.paragraph(message or record.test, 2)
    if found and found.place and found.place.function:
        place = found.place
        lines += paint.paragraph(f"{place.file}, line {place.line}, in {place.function}", 2, "dim")
        lines += paint.paragraph(place.source, 4) if place.source else []
    return lines


def _others(score: ProblemScore, first: Failure, paint: Paint) -> list[Text]:
    others = len(score.failures) - 1
    if not others:
        return []
    answers = score.problem.file is not None
    told = left_to_answer(score) if answers else f"then {plural(others, 'other failure')}"
    return [paint.line((f"  {told}", "dim"))]


def _advised(part: Advised, paint: Paint) -> list[Text]:
    lines = [paint.line((part.title, "bold cyan"))]
    lines += paint.paragraph(part.text, 2) if part.text else []
    return lines + (paint.command(list(part.command), 2) if part.command else [])
