"""What fails in a problem, as the page shows it: alike failures as one, each with its parts."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from fractions import Fraction

from markupsafe import escape

from tests.grading.alike import alike
from tests.grading.errors import UNANSWERED, UNWRITTEN
from tests.grading.recording import PRINTED_BELOW
from tests.grading.records import Finding, Place
from tests.grading.report import Failure, ProblemScore, Run
from tests.grading.wording import clean, one_line, plural, points

HEADLINE, VALUE, DETAILS = 240, 600, 4_000  # characters
LISTED = 12  # tests named per failure


class Allowance:
    """How many more bytes of other people's text the page may hold."""

    def __init__(self, size: int):
        self.left = size

    def spend(self, *texts: str) -> None:
        self.left -= sum(len(str(escape(text)).encode()) for text in texts)


@dataclass(frozen=True)
class FailureView:
    """Alike failures: what the first one says, and what all of them cost."""

    headline: str
    unwritten: bool
    where: tuple[str, ...]  # by axis: ("row 0", "token 3")
    expected: str
    got: str
    note: str
    place: Place | None
    message: str  # what the headline does not show of it
    checks: str  # the first test's name, as words; "" where the headline is just that
    count: str  # "5 tests"
    tests: tuple[str, ...]
    more_tests: int  # that are not named
    parts: str  # groups and costs that it keeps from passing
    at_stake: str  # points, "" if none
    command: str  # "" where the student does not have the test
    traceback: str
    printed: str


@dataclass(frozen=True)
class Failures:
    shown: tuple[FailureView, ...]
    left_out: int  # for which the page has no room


def view_failures(
    score: ProblemScore, lost: dict[str, Fraction], run: Run, allowance: Allowance
) -> Failures:
    """The failures of a problem, what is not written yet first, until the page is full.

    Args:
        lost: points that each group and cost does not earn, by name.
        allowance: of the whole page; what is shown is taken off.
    """
    part_of = {record.test: record.group or record.cost or "" for record in score.records}
    shown: list[FailureView] = []
    groups = sorted(alike(score), key=lambda same: not same[0].unwritten)  # stable
    for same in groups:
        view = _view(score, same, part_of, lost, run)
        allowance.spend(*_texts(view))
        if allowance.left < 0:
            break
        shown.append(view)
    return Failures(tuple(shown), len(groups) - len(shown))


def _view(
    score: ProblemScore,
    same: list[Failure],
    part_of: dict[str, str],
    lost: dict[str, Fraction],
    run: Run,
) -> FailureView:
    first, tests = same[0], [test for failure in same for test in failure.tests]
    finding = first.finding or Finding()
    traceback, _, printed = first.details.partition(PRINTED_BELOW)
    parts = list(dict.fromkeys(part_of.get(test, "") for test in tests))
    headline, checks = _headline(score, first), in_words(first.tests[0])
    return FailureView(
        headline=headline,
        unwritten=first.unwritten,
        where=tuple(one_line(step, 80) for step in finding.where.split(", ") if step)[:12],
        expected=clean(finding.expected, VALUE),
        got=clean(finding.got, VALUE),
        note=one_line(finding.note, HEADLINE),
        place=_shown_place(finding.place),
        message="" if finding.expected else _more_lines(first.message, headline),
        checks="" if checks == headline else checks,
        count=plural(len(tests), "test"),
        tests=tuple(one_line(_own_name(test), HEADLINE) for test in tests[:LISTED]),
        more_tests=max(len(tests) - LISTED, 0),
        parts=_listed(parts),
        at_stake=_at_stake(score, parts, lost),
        command=_command(first.tests[0], run),
        traceback=_last(traceback.strip("\n"), DETAILS),
        printed=_last(printed.strip("\n"), DETAILS),
    )


def _headline(score: ProblemScore, failure: Failure) -> str:
    """The shortest line that says what is wrong; expected and got stand below it."""
    finding = failure.finding
    if finding and (finding.expected or finding.got):
        what = f"{finding.what}: wrong values" if finding.what and finding.where else finding.what
        return one_line(what, HEADLINE) or in_words(failure.tests[0])
    message = failure.message[: 10 * HEADLINE].removeprefix(f"{score.problem.name}: ")
    if failure.unwritten:
        name = message.removesuffix(f" {UNWRITTEN}").removesuffix(f" {UNANSWERED}")
        return one_line(name, HEADLINE)
    if finding and finding.place:  # a file that does not load: "FILE, line 3: SyntaxError: …"
        message = re.sub(r"^\S.*?\.py, line \d+: ", "", message, count=1)
    return one_line(message, HEADLINE) or in_words(failure.tests[0])


def _more_lines(message: str, headline: str) -> str:
    """What follows the first line; with the first, where the headline had to cut it."""
    rest = message.strip() if headline.endswith("…") else message.strip().partition("\n")[2]
    return clean(rest, VALUE)


def in_words(test: str) -> str:
    """tests/a/test_b.py::TestC::test_rows_stay_apart[6-2]: "rows stay apart [6-2]"."""
    name, bracket, case = test.rpartition("::")[2].partition("[")
    words = name.removeprefix("test_").replace("_", " ")
    return one_line(f"{words} {bracket}{case}", HEADLINE)


def _own_name(test: str) -> str:
    return test.partition("::")[2] or test


def _at_stake(score: ProblemScore, parts: list[str], lost: dict[str, Fraction]) -> str:
    """What the parts it is in could still earn; all of it where one is the gate."""
    shut = score.gate is not None and score.gate.name in parts
    total = sum(lost.values() if shut else (lost.get(part, 0) for part in parts), Fraction(0))
    return points(total) if total else ""


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _command(test: str, run: Run) -> str:
    """How to see it again, with the same inputs where their seed is known."""
    if test.startswith("tests/hidden/"):
        return ""
    seed = "" if run.seed is None else f"--seed {run.seed}"
    words = (".venv/bin/pytest", shlex.quote(test), run.options, seed)
    return one_line(" ".join(word for word in words if word), 2 * HEADLINE)


def _shown_place(place: Place | None) -> Place | None:
    if place is None:
        return None
    texts = (one_line(text, 200) for text in (place.function, place.source))
    return Place(one_line(place.file, 200), place.line, *texts)


def _last(text: str, limit: int) -> str:
    """The end of a text, from the start of a line: there the error stands."""
    if len(text) <= limit:
        return clean(text, limit)
    return "[…]\n" + clean(text[-limit:].partition("\n")[2] or text[-limit:], limit)


def _texts(view: FailureView) -> list[str]:
    place = view.place
    texts = [value for value in vars(view).values() if isinstance(value, str)]
    texts += [
        *view.where,
        *view.tests,
        *((place.file, place.function, place.source) if place else ()),
    ]
    return texts
