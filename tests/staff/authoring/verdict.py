"""Whether a candidate's outcome is what the suite owes it."""

from __future__ import annotations

from dataclasses import dataclass

from tests.grading.records import TestRecord
from tests.grading.tiers import Tier, tier

from .workers import Outcome
from .wrong_and_right import Candidate

# A mutant that dies of one of these is broken code, not a misconception: it proves nothing.
SLIPS = ("NameError", "UnboundLocalError", "ImportError", "ModuleNotFoundError")


@dataclass(frozen=True)
class Verdict:
    candidate: Candidate
    good: bool
    reason: str
    outcome: Outcome


def judge(candidate: Candidate, outcome: Outcome) -> Verdict:
    """A mutant has to lose what it says; the reference and variants have to lose nothing."""
    good, reason = _judge(candidate, outcome)
    return Verdict(candidate, good, reason, outcome)


def _judge(candidate: Candidate, outcome: Outcome) -> tuple[bool, str]:
    wrong = candidate.loses == "correctness"
    if outcome.trouble:
        return wrong and outcome.died, outcome.trouble
    for record in outcome.records:
        if record.outcome not in ("passed", "failed"):
            return False, f"{record.test}: {record.outcome}: {record.message}"
    if not outcome.records:
        return False, "no test ran"
    if wrong:
        return _loses_correctness(outcome)
    if candidate.loses == "cost":
        return _loses_cost_alone(outcome)
    failed = [record for record in outcome.records if record.outcome == "failed"]
    return (False, _failure(failed[0], len(failed))) if failed else (True, "passes everything")


def _loses_correctness(outcome: Outcome) -> tuple[bool, str]:
    failed = [r for r in outcome.records if r.outcome == "failed" and r.group]
    if not failed:
        return False, f"all {len(outcome.records)} correctness tests pass"
    if failed[0].message.startswith(SLIPS):
        return False, f"broken code, not a misconception: {_failure(failed[0])}"
    return True, _failure(failed[0])


def _loses_cost_alone(outcome: Outcome) -> tuple[bool, str]:
    below = []
    for record in outcome.records:
        figure = record.figure
        dear = record.cost and figure and tier(figure.got, figure.ideal) is not Tier.FULL
        if dear:
            below.append(record)
        elif record.outcome == "failed":
            return False, f"loses correctness, not cost alone: {_failure(record)}"
    return (True, _failure(below[0])) if below else (False, "every cost is within its full tier")


def _failure(record: TestRecord, count: int = 1) -> str:
    others = f" (and {count - 1} more)" if count > 1 else ""
    first = record.message.splitlines()[0] if record.message else "failed"
    return f"{record.test.rpartition('::')[2]}: {first}{others}"
