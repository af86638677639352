"""The review from the file handed in to its points: in one process, and as students are graded."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assignment.provided.review.__main__ import main
from assignment.provided.review.sheet import keep, template
from tests.grading.course import load_course
from tests.grading.errors import SubmissionError
from tests.grading.intake.limits import LARGEST_ANSWERS
from tests.grading.records import TestRecord
from tests.grading.scoring import score
from tests.grading.submitted import read_submitted
from tests.staff.authoring.unanswered import without_answers
from tests.staff.review_sheets import failures, right_answers, text_of

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = "accounting.review"
COURSE = load_course(ROOT / "tests" / "course.toml")
GROUPS = list(COURSE.problems[PROBLEM].groups)


def grade(submission: Path | str, output: Path, *options: str) -> dict:
    """The problem, as the grader's results have it."""
    command = [sys.executable, "-m", "tests.grading", "--submission", str(submission)]
    command += ["--problem", PROBLEM, "--output", str(output), *options]
    environment = {k: v for k, v in os.environ.items() if k != "GRADING_SECRET"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads((output / "results.json").read_text())
    [problem] = results["problems"]
    return problem | {"notes": results["notes"], "next": results["next_step"]}


def in_process(submission: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "tests/accounting/test_review.py"]
    command += ["--submission", str(submission), "-o", f"cache_dir={submission}/cache", *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    return done.stdout


def passed(problem: dict) -> list[str]:
    return [group["name"] for group in problem["groups"] if group["state"] == "passed"]


def sheet_in(folder: Path, text: str | bytes) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "review.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


# ---- the whole way


def test_each_question_counts_for_itself(tmp_path):
    """Also without the first one: a sheet has no gate."""
    right = right_answers("t9")
    right["q1"]["ttft"], right["q7"]["fp8"] = 99, "raw:4 4 8"
    right["q4"] = dict.fromkeys(right["q4"], "")
    sheet_in(tmp_path / "hw", text_of("T 9", right))
    problem = grade(tmp_path / "hw", tmp_path / "out", "--student", "t9")
    assert passed(problem) == [name for name in GROUPS if name not in ("q1", "q4", "q7")]
    assert problem["points"] == 1.4 and problem["status"] == "partial"
    assert not any(group["gate"] for group in problem["groups"])
    assert problem["next"]["file"].endswith("hw/review.toml")
    page = (tmp_path / "out/report.html").read_text()
    assert (
        "review.toml" in page
        and "review.py" not in page.replace("test_review.py", "")
        and "is the gate" not in page
    )
    assert "q1 ttft: read 99 as 99 s" in page
    told = (tmp_path / "out/results.json").read_text() + page
    assert "Number(" not in told and "judge.py" not in told  # a traceback would show the key
    found = in_process(tmp_path / "hw", "--student", "t9")
    assert "3 failed, 7 passed" in found and "Number(" not in found


def test_a_sheet_of_another_student_earns_nothing(tmp_path):
    file = sheet_in(tmp_path / "hw", text_of("t9", right_answers("t9")))
    assert grade(file, tmp_path / "out", "--student", "T 9")["points"] == 2
    problem = grade(file, tmp_path / "out", "--student", "t10")
    assert problem["points"] == 0
    [failure] = problem["failures"]
    assert failure["message"] == "the sheet is of student t9, and t10 is graded"
    assert len(failure["tests"]) == 10
    assert "10 failed" in in_process(tmp_path / "hw", "--student", "t10")


def test_what_is_no_id_is_a_wrong_call(tmp_path):
    command = [sys.executable, "-m", "tests.grading", "--student", "a/b", "--output", tmp_path]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2 and "'a/b': a student id has" in done.stderr
    command = [sys.executable, "-m", "pytest", "-q", "tests/accounting/test_review.py"]
    done = subprocess.run([*command, "--student="], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 4 and "--student: a student id has" in done.stderr


def test_the_reference_is_full_and_the_stub_not_started(tmp_path):
    if not (ROOT / "solutions").is_dir():
        pytest.skip("a students' bundle has no solutions")
    assert grade("solutions", tmp_path)["status"] == "full"
    problem = grade("assignment", tmp_path)
    assert (problem["status"], problem["points"]) == ("not started", 0)
    assert problem["next"]["file"] == "assignment/review.toml"
    assert problem["next"]["look_at"] == "q1 is not answered yet"


MAKE = {
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "it is a symbolic link"),
    "a link to a sheet": (lambda path: path.symlink_to(ROOT / "solutions/review.toml"), "link"),
    "a folder": (lambda path: path.mkdir(), "is no plain file"),
    "a pipe": (os.mkfifo, "is no plain file"),
    "a large file": (lambda path: path.write_bytes(b"#" * 2**20), "is larger than 64 KB"),
    "nothing": (lambda path: None, "no file "),
    "noise": (lambda path: path.write_bytes(bytes(range(256))), "line 1 is not UTF-8"),
}


@pytest.mark.parametrize("what", MAKE)
def test_whatever_is_in_its_place_is_a_line_and_no_more(tmp_path, what):
    make, said = MAKE[what]
    (tmp_path / "hw").mkdir()
    make(tmp_path / "hw/review.toml")
    assert "10 failed" in in_process(tmp_path / "hw")
    if what != "noise":
        with pytest.raises(SubmissionError, match=said):
            read_submitted(tmp_path / "hw/review.toml", "hw/review.toml")
    if what in ("a link to a sheet", "a pipe"):  # two are enough: a grade takes seconds
        problem = grade(tmp_path / "hw", tmp_path / "out")
        assert problem["points"] == 0 and len(problem["failures"]) == 1
        assert problem["failures"][0]["message"].startswith("no file ")
        assert any("review.toml is left out" in note for note in problem["notes"])


def test_a_file_of_the_largest_size_is_read(tmp_path):
    file = sheet_in(tmp_path, b"#" * LARGEST_ANSWERS)
    assert len(read_submitted(file, "x")) == LARGEST_ANSWERS


def test_points_do_not_need_the_first_question():
    records = [
        TestRecord(f"tests/accounting/test_review.py::test_question[{name}]", PROBLEM, name, None,
                   "passed" if name == "q3" else "failed", "" if name == "q3" else "wrong", "",
                   False, 0.0)
        for name in GROUPS
    ]  # fmt: skip
    [found] = score(COURSE, records, problems=[PROBLEM]).problems
    assert found.gate is None and found.points == found.possible / 10 == found.at_most


# ---- the sheet that a student gets


def test_template_stub_and_reference_are_one_sheet():
    assert (ROOT / "assignment/review.toml").read_text(encoding="utf-8") == template()
    solved = ROOT / "solutions/review.toml"
    if solved.exists():
        assert without_answers(solved.read_bytes()) == (template(), [])


@pytest.mark.parametrize("student", ["s1", "s2", "s3"])
def test_a_sheet_that_is_filled_in_counts(tmp_path, student):
    file = tmp_path / "review.toml"
    assert keep(student, file)
    text = file.read_text()
    for table, answers in right_answers(student).items():
        start = text.index(f"[{table}]")
        for sub, value in answers.items():
            before, line, after = text[start:].partition(f"\n{sub} ")
            text = text[:start] + before + line + after.replace('""', json.dumps(value), 1)
    assert failures(text, student) == {}


def test_printing_keeps_the_answers(tmp_path, capsys):
    file = tmp_path / "review.toml"
    assert main(["S 1"], file) == 0
    first = file.read_text()
    assert 'student = "s1"' in first and first.count('""') == template().count('""') - 1
    written = first.replace('ttft       = ""', 'ttft       = "0.4 s"') + "\n# mine\nbroken ="
    file.write_text(written)
    capsys.readouterr()
    assert main(["s2"], file) == 0 and file.read_text() == written
    file.write_text(first)
    assert main([], file) == 0 and "The questions of s1." in capsys.readouterr().out
    assert main(["s2"], file) == 0 and file.read_text() == first
    told = " ".join(capsys.readouterr().out.split())
    assert 'counts as that of s1: if you are s2, change its line student = "s1" to' in told
    assert told.endswith('student = "s2"')


def test_an_id_is_put_into_a_sheet_without_one(tmp_path):
    file = sheet_in(tmp_path, template().replace('ttft       = ""', 'ttft       = "0.4 s"'))
    before = file.read_text()
    assert main(["s1"], file) == 0
    assert file.read_text() == before.replace('student = ""', 'student = "s1"')


@pytest.mark.parametrize("arguments", [[], ["a/b"], [""], ["x" * 100]])
def test_without_a_good_id_nothing_is_printed_or_made(tmp_path, capsys, arguments):
    file = tmp_path / "review.toml"
    assert main(arguments, file) == 2 and not file.exists()
    captured = capsys.readouterr()
    assert captured.out == "" and "a student id has" in captured.err


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_the_sheet_is_readable_in_any_terminal(tmp_path, capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    assert main(["s1"], tmp_path / "review.toml") == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines()[:-3])) <= int(columns)
    for name in GROUPS:
        assert f"{name}  " in out
    assert "attention_from" in out and "padded_scores" in out


def test_make_review_prints_the_sheet(tmp_path):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    command = ["make", "-n", "--no-print-directory", "review", "STUDENT=S 1"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True)
    assert '-m assignment.provided.review "S 1"' in done.stdout
