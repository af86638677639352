"""Lines that a submission executes: the same count in one process and in a child."""

from __future__ import annotations

import sys

import pytest

from tests.grading import submission
from tests.grading.boundary import call_then_spoil, count_lines
from tests.grading.errors import SubmissionError
from tests.grading.transport import proxy
from tests.grading.transport.forkserver import ForkServer
from tests.grading.transport.proxy import Name

SUBMISSION = """
import json

def loop(n):
    total = 0
    for i in range(n):
        total += i
    return total

def comprehension(n):
    return [i + 1 for i in range(n)]

def inside_python(n):
    return sum(list(range(n)))

def in_a_library(n):
    return json.dumps({str(i): i for i in [n]}, indent=1)

def through_a_library(n):
    return sorted(range(n), key=lambda i: -i)

def deeper(n):
    return loop(n) if n else 0

def fails(n):
    raise ValueError("at the second line")

class Kept:
    def keep(self, items):
        self.items = items
    def held(self):
        return self.items
"""


@pytest.fixture(scope="module")
def server():
    server = ForkServer()
    (server.tree / "toy").mkdir()
    (server.tree / "toy" / "loops.py").write_text(SUBMISSION)
    yield server
    server.close()


@pytest.fixture(params=["in a child", "in this process"])
def thing(request, server):
    """Looks up a name of the submission on one side or the other."""
    if request.param == "in a child":
        proxy.begin(server, time_limit=20)
        yield lambda name: Name("toy.loops", name)
        proxy.end()
    else:
        submission.install(server.tree)
        yield lambda name: submission.resolve("toy.loops", name)
        submission.uninstall()


@pytest.mark.parametrize(
    ("name", "n", "lines"),
    [
        ("loop", 0, 3),
        ("loop", 5, 3 + 2 * 5),
        ("inside_python", 1000, 1),
        ("through_a_library", 7, 1 + 7),
        ("deeper", 5, 1 + 3 + 2 * 5),
    ],
)
def test_each_executed_line_counts(thing, name, n, lines):
    assert count_lines(thing(name), n).count == lines


def test_a_comprehension_counts_once_for_each_item(thing):
    seen = [count_lines(thing("comprehension"), n).count for n in (10, 110)]
    assert seen[1] - seen[0] == 100


def test_a_librarys_own_lines_do_not_count(thing):
    assert count_lines(thing("in_a_library"), 3).count <= 4


def test_the_value_comes_too(thing):
    assert count_lines(thing("loop"), 5).value == 10


def test_an_error_comes_through_and_the_tracer_goes(thing):
    before = sys.gettrace()
    with pytest.raises(ValueError, match="second line"):
        count_lines(thing("fails"), 3)
    assert sys.gettrace() is before
    assert count_lines(thing("loop"), 5).count == 13


def test_another_tracer_is_there_again_afterwards(server):
    submission.install(server.tree)
    before = sys.gettrace()
    mine = lambda frame, event, arg: None  # noqa: E731
    sys.settrace(mine)
    try:
        count_lines(submission.resolve("toy.loops", "loop"), 5)
        assert sys.gettrace() is mine
    finally:
        sys.settrace(before)
        submission.uninstall()


def test_an_impossible_count_is_the_submissions_fault(thing, monkeypatch):
    answer = lambda *_, **__: (None, -1)  # noqa: E731
    monkeypatch.setattr("tests.grading.transport.sides.count_lines", answer)
    monkeypatch.setattr("tests.grading.transport.proxy.request", answer)
    with pytest.raises(SubmissionError, match="nonsense"):
        count_lines(thing("loop"), 5)


def test_a_list_is_emptied_after_the_call(thing):
    kept = thing("Kept")()
    call_then_spoil(kept.keep, [1, 2])
    assert kept.held() == []
