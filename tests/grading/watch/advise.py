"""What the hint key shows: first what the docstrings advise, then what to read and to run."""

from __future__ import annotations

from collections.abc import Iterator

from tests.grading.report import Failure
from tests.grading.watch.hints import advice, fitting
from tests.grading.watch.problem_page import Advised
from tests.grading.watch.session import Result, Session, first_failure

MOST = 4  # functions: more are no hint


def advise(session: Session, source: str | None) -> list[Advised]:
    """What is shown at the hint's step that the session is at; never an answer.

    Args:
        source: of the current problem's file; None where it cannot be read.
    """
    if not session.hint or session.problem is None:
        return []
    result = session.result
    if result and result.score.status == "full":
        return [Advised("Hint", "Nothing is left to do here.")]
    failure = first_failure(result.score) if result else None
    if session.hint == 1 and not session.problem.file:  # answers have no docstrings
        return list(_from_docstrings(source, failure, result))
    return list(_next_actions(session, failure))


def _from_docstrings(
    source: str | None, failure: Failure | None, result: Result | None
) -> Iterator[Advised]:
    try:
        found = advice(source or "")
    except SyntaxError as error:
        yield Advised("Hint", f"The file does not load: see line {error.lineno or '?'} first.")
        return
    shown = fitting(found, failure, _at_work(failure, result))
    for one in shown[:MOST]:
        told = one.text or "No hint here: the docstring says all that it must do."
        yield Advised(f"Hint  {one.function}", told)
    if not shown:
        yield Advised("Hint", "No docstring in the file gives one.")


def _at_work(failure: Failure | None, result: Result | None) -> str:
    """The function that was running when the test failed, if that is known."""
    if failure is None or result is None:
        return ""
    finding = next(r.finding for r in result.score.records if r.test == failure.tests[0])
    return finding.place.function if finding and finding.place else ""


def _next_actions(session: Session, failure: Failure | None) -> Iterator[Advised]:
    problem, result = session.problem, session.result
    yield Advised("Read", f"handout/handout.pdf, {problem.unit}, “{problem.handout}”")
    if failure and result:
        test, run = failure.tests[0].partition("[")[0], result.run  # all its parameters: short
        command = (".venv/bin/pytest", test, run.options, f"--seed {run.seed}")
        title = "Stop in the test that fails, where it fails"
        yield Advised(title, command=(*filter(None, command), "--pdb"))
