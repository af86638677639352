"""Failures that differ in numbers only: one mistake, seen on inputs of many sizes."""

from __future__ import annotations

import re

from tests.grading.records import Finding
from tests.grading.report import Failure, ProblemScore

NUMBER = re.compile(r"\b[a-z]+\d+(?=\[)|[-+]?\d+(?:[.,]\d+)*(?:e[-+]?\d+)?")  # f32[…], -0.5
COMPARED = 300  # characters of a message


def alike(score: ProblemScore) -> list[list[Failure]]:
    """A problem's failures, those together that are alike, in the order in which they came.

    Wrong values are alike within a group only: what is wrong in another may have its own reason.
    """
    part_of = {record.test: record.group or record.cost for record in score.records}
    found: dict[tuple, list[Failure]] = {}
    for failure in score.failures:
        finding = failure.finding or Finding()
        place = finding.place and (finding.place.file, finding.place.line)
        part = part_of.get(failure.tests[0]) if finding.where else None
        message = failure.message[:COMPARED]
        message = message if failure.unwritten else NUMBER.sub("0", message)  # q1 is not q2
        key = (message, place, part)
        found.setdefault(key, []).append(failure)
    return list(found.values())
