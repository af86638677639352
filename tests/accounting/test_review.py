"""accounting.review: the ten questions, answered in review.toml for the student's own numbers."""

from __future__ import annotations

import pytest

from tests.accounting.review import sheet
from tests.accounting.review.judge import judge

QUESTIONS = [pytest.param(name, marks=pytest.mark.group(name)) for name in sheet.QUESTIONS]


@pytest.mark.parametrize("question", QUESTIONS)
def test_question(submitted_file, student, question):
    judge(sheet.read(submitted_file()), question, student)
