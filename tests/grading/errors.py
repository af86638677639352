"""What can go wrong between the grader and a submission."""

from __future__ import annotations


class SubmissionError(Exception):
    """The submission is at fault: a file or name is missing, it crashed, hung, or answered nonsense."""


class GraderError(Exception):
    """The grader itself is at fault; a student is never charged for it."""
