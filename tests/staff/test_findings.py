"""A failure taken apart: what was expected, what came, which line of the student's was at work."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.grading.closeness import Mismatch
from tests.grading.errors import SubmissionError
from tests.grading.findings import LONGEST, find
from tests.grading.records import Finding, Place
from tests.grading.submission import REPOSITORY
from tests.grading.tiers import describe
from tests.staff.samples import figure

PROBLEM = "attention.kv_cache"
NOTE = """In the submission:
  File "/somewhere/attention/tree/attention/kv_cache.py", line 41, in append
    self._write(k, v)
  File "/somewhere/attention/tree/attention/kv_cache.py", line 57, in _write
    self.keys[:, start:] = k
    ~~~~~~~~~^^^^^^^^^^^"""


def found(error, message=None, measured=None):
    return find(error, str(error) if message is None else message, PROBLEM, measured)


def test_a_mismatch_brings_its_parts():
    error = Mismatch("differs", expected="2", got="3", what="keys", where="row 0", note="1 of 2")
    assert found(error) == Finding("keys", "row 0", "2", "3", "1 of 2")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "KVCache.append got k = f32[2,3], expected Float[Tensor, 'B K T H'] with B=2, K=3",
            ("k of KVCache.append", "Float[Tensor, 'B K T H'] with B=2, K=3", "f32[2,3]"),
        ),
        (
            "sample returned i64[3,1], expected Int[Tensor, 'B']",
            ("result of sample", "Int[Tensor, 'B']", "i64[3,1]"),
        ),
    ],
)
def test_a_shape_that_does_not_fit_is_taken_apart(line, expected):
    finding = found(SubmissionError(line))
    assert (finding.what, finding.expected, finding.got) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("keys: expected float32, got bfloat16", ("keys", "float32", "bfloat16")),
        ("row 1: expected the new tokens [1], got [2]", ("row 1", "the new tokens [1]", "[2]")),
        ("expected ValueError, got no error", ("", "ValueError", "no error")),
    ],
)
def test_a_test_that_says_expected_and_got_is_taken_apart(line, expected):
    for error in (AssertionError(line), pytest.fail.Exception(line)):
        finding = found(error)
        assert (finding.what, finding.expected, finding.got) == expected


@pytest.mark.parametrize("line", ["the weight was changed", "expected 1, not 2", ""])
def test_what_says_no_more_than_its_message_is_left_whole(line):
    assert found(AssertionError(line)) is None
    assert found(ValueError("expected 1, got 2")) is None  # the student's own words


def test_a_figure_that_costs_too_much_is_compared_with_the_ideal():
    measured = figure(1420, 1000)
    finding = found(AssertionError(describe(measured)), measured=measured)
    assert (finding.what, finding.got) == ("bytes", "1,420 bytes, 1.42× the ideal")
    assert finding.expected == "1,000 bytes, the ideal"
    assert found(AssertionError("wrong output"), measured=measured) is None
    too_few = figure(10, 1000)
    assert "not counted" in found(AssertionError(describe(too_few)), measured=too_few).note


def test_what_made_it_dear_is_told():
    measured = figure(1420, 1000, note="the most: loads of keys")
    line = describe(measured)
    assert line.endswith("two thirds of the points; the most: loads of keys")
    assert found(AssertionError(line), measured=measured).note == "the most: loads of keys"


def test_the_last_line_of_the_submission_is_the_place():
    error = IndexError("3")
    error.add_note(NOTE)
    place = Place("attention/kv_cache.py", 57, "_write", "self.keys[:, start:] = k")
    assert found(error, "IndexError: 3") == Finding(place=place)


def test_in_one_process_the_place_is_the_last_frame_of_the_submission():
    names = {"__name__": f"submission.{PROBLEM}"}
    code = "def outer(f):\n    inner(f)\ndef inner(f):\n    return f()\n"
    exec(compile(code, "/tree/attention/kv_cache.py", "exec"), names)
    with pytest.raises(ZeroDivisionError) as caught:
        names["outer"](lambda: 1 / 0)  # fails in the test's own callback
    assert found(caught.value).place == Place("attention/kv_cache.py", 4, "inner")


def test_a_file_that_does_not_load_is_a_place():
    line = f"{PROBLEM}: /tree/attention/kv_cache.py, line 3: SyntaxError: '(' was never closed"
    assert found(SubmissionError(line)).place == Place("attention/kv_cache.py", 3)


@pytest.mark.parametrize(
    "note",
    [
        "",
        "In the submission:\n",
        "In the submission:\n" + 'File "' * 20_000,
        'In the submission:\n  File "x", line 99999999999999999999, in ' + "y" * 30_000,
        'In the submission:\n  File "\x1b[2J</pre>", line ٣, in \u202e',
    ],
    ids=range(5),
)
def test_a_hostile_note_harms_nothing(note):
    error = ValueError()
    error.add_note(note)
    place = (found(error, "x") or Finding()).place
    assert place is None or max(map(len, (place.file, place.function, place.source))) <= 200
    long = found(Mismatch("", expected="e" * 10**6, got="g" * 10**6))
    assert len(long.expected) == len(long.got) == LONGEST + 1


CACHE = """
import torch
from jaxtyping import Int
from torch import Tensor

class KVCache:
    def __init__(self, batch_size, capacity, num_kv_heads, head_dim, dtype=torch.float32):
        self.capacity, self.rows = capacity, batch_size
        print("made a cache")
    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return torch.zeros(self.rows, dtype=torch.int64)
    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return torch.full((self.rows, num_new), 9)
    def append(self, k, v, num_tokens=None):
        pass
    def keys_values(self):
        return {}["keys"]
    def truncate(self, lengths):
        raise NotImplementedError
"""


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The findings of a wrong cache by test, as official grading reports them."""
    folder = tmp_path_factory.mktemp("graded")
    file = folder / "tree" / "attention" / "kv_cache.py"
    file.parent.mkdir(parents=True)
    file.write_text(CACHE)
    command = [sys.executable, "-m", "tests.grading", "--submission", str(folder / "tree")]
    command += ["--problem", PROBLEM, "--output", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True)
    [problem] = json.loads((folder / "results.json").read_text())["problems"]
    return {test["test"].rpartition("::")[2]: test for test in problem["tests"]}


def test_official_grading_finds_wrong_values(graded):
    finding = graded["test_empty_cache_starts_at_zero"]["finding"]
    assert (finding["what"], finding["where"]) == ("positions", "row 0, token 0")
    assert (finding["expected"], finding["got"]) == ("0", "9")


def test_official_grading_finds_the_line_of_an_error(graded):
    test = graded["test_an_empty_cache_is_read"]
    assert test["message"] == "KeyError: 'keys'"
    assert test["finding"]["place"] == {
        "file": "attention/kv_cache.py",
        "line": 1 + CACHE[: CACHE.index('return {}["keys"]')].count("\n"),
        "function": "keys_values",
        "source": 'return {}["keys"]',
    }
    assert "made a cache" in test["details"]


def test_official_grading_finds_what_is_not_written(graded):
    test = graded["test_roll_back_takes_positions_back"]
    assert test["unwritten"] and test["finding"]["place"]["source"] == "raise NotImplementedError"


def test_official_grading_tells_an_error_that_did_not_come(graded):
    test = graded["test_a_step_beyond_the_end"]
    assert test["message"].endswith(": expected ValueError, got no error")
    assert "append of 1 columns" in test["message"]
    assert (test["finding"]["expected"], test["finding"]["got"]) == ("ValueError", "no error")
