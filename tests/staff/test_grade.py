"""`make grade` end to end, on whole trees: the reference, the stubs, and trees that are broken."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.grading.course import load_course
from tests.grading.submission import REPOSITORY

COURSE = load_course(REPOSITORY / "tests" / "course.toml")


class Grade:
    """One run of the grader as a user starts it."""

    def __init__(
        self, submission: str | Path, output: Path, *options: str, secret: str | None = None
    ):
        command = [sys.executable, "-m", "tests.grading", "--submission", str(submission)]
        command += ["--output", str(output), *options]
        environment = {k: v for k, v in os.environ.items() if k != "GRADING_SECRET"}
        environment |= {"GRADING_SECRET": secret} if secret else {}
        environment |= {"COLUMNS": "100", "PYTHONIOENCODING": "utf-8"}
        done = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True
        )
        self.status, self.printed, self.errors = done.returncode, done.stdout, done.stderr
        assert (output / "results.json").exists(), done.stdout + done.stderr
        self.results = json.loads((output / "results.json").read_text())
        self.page = (output / "report.html").read_text()
        self.problems = {problem["name"]: problem for problem in self.results["problems"]}

    def points(self, problem: str) -> float:
        return self.problems[problem]["points"]

    @property
    def last_line(self) -> str:
        return self.printed.strip().splitlines()[-1]


@pytest.fixture
def tree(tmp_path) -> Path:
    return stubs(tmp_path)


def stubs(folder: Path) -> Path:
    """A copy of the stubs, to be filled or broken."""
    ignore = shutil.ignore_patterns("provided")
    return Path(shutil.copytree(REPOSITORY / "assignment", folder / "tree", ignore=ignore))


def solve(tree: Path, problem: str) -> Path:
    file = tree / COURSE.problems[problem].target
    shutil.copy(REPOSITORY / "solutions" / file.relative_to(tree), file)
    return file


def test_the_stubs_have_none_and_the_next_step_is_named(tmp_path):
    grade = Grade("assignment", tmp_path)
    assert grade.status == 0
    assert set(grade.problems) == set(COURSE.problems)
    assert {p["status"] for p in grade.problems.values()} == {"not started"}
    assert grade.last_line.startswith("score: 0 / ")
    first = next(iter(COURSE.problems.values()))
    assert f"assignment/{first.target}" in grade.printed


def alone(problem: str, folder: Path) -> Grade:
    """The grade of a problem with stubs all around it, but for what it is made of."""
    tree = stubs(folder)
    for name in (problem, *COURSE.problems[problem].needs):
        solve(tree, name)
    return Grade(tree, folder / "out", "--problem", problem)


@pytest.fixture(scope="module")
def grades_alone(request, tmp_path_factory):
    """Those of the problems that are wanted, two at a time: begun at once, waited for singly."""
    mine = [item for item in request.session.items if "grades_alone" in item.fixturenames]
    with ThreadPoolExecutor(2) as pool:
        yield {
            problem: pool.submit(alone, problem, tmp_path_factory.mktemp(problem))
            for problem in (item.callspec.params["problem"] for item in mine)
        }


@pytest.mark.parametrize("problem", COURSE.problems)
def test_every_problem_is_gradable_alone(grades_alone, problem):
    grade = grades_alone[problem].result()
    assert grade.points(problem) == grade.problems[problem]["possible"], grade.printed


MADE_OF_OTHERS = [problem.name for problem in COURSE.problems.values() if problem.needs]


@pytest.mark.parametrize("problem", MADE_OF_OTHERS)
def test_a_problem_made_of_others_waits_for_their_stubs(tree, tmp_path, problem):
    file, needs = solve(tree, problem), list(COURSE.problems[problem].needs)
    options = [option for name in (problem, *needs) for option in ("--problem", name)]
    grade = Grade(tree, tmp_path / "out", *options)
    status = {name: p["status"] for name, p in grade.problems.items()}
    # A part of it may need no others: Medusa's trees.
    assert status.pop(problem) in ("failing", "partial")
    assert status == dict.fromkeys(needs, "not started")
    assert grade.problems[problem]["waits_for"] == needs
    are, them = ("is", "it") if len(needs) == 1 else ("are", "them")
    told = (
        f"needs {', '.join(needs)}; {' and '.join(needs)} {are} not right yet: solve {them} first"
    )
    assert told in " ".join(grade.printed.split()) and told in grade.page
    assert grade.results["next_step"]["problem"] == needs[0]

    alone = Grade(file, tmp_path / "alone", "--problem", problem)  # one file, and no other
    assert alone.problems[problem]["status"] in ("failing", "partial")
    assert "not right yet: solve" in " ".join(alone.printed.split())
    assert alone.results["next_step"]["problem"] in needs


BROKEN = {  # what the file holds, and what the line must say
    "syntax": ("def f(:\n", "SyntaxError"),
    "import": ("import no_such_module\n", "No module named 'no_such_module'"),
    "exit": ("raise SystemExit(0)\n", "SystemExit"),
    "death": ("import os\nos._exit(0)\n", "ended in the middle of the test"),
    "empty": ("", "has no `"),
    "absent": (None, "no file"),
}


@pytest.mark.parametrize("how", [("syntax", "death"), ("exit", "empty"), ("import", "absent")])
def test_a_broken_file_is_a_line_and_costs_only_its_problem(tree, tmp_path, how):
    broken = dict(zip(["attention.kv_cache", "attention.generate"], how, strict=True))
    whole = "attention.grouped_query"
    solve(tree, whole)
    for problem, kind in broken.items():
        file, text = solve(tree, problem), BROKEN[kind][0]
        file.unlink() if text is None else file.write_text(text)
    grade = Grade(tree, tmp_path / "out", "--unit", "attention")
    assert grade.status == 0
    assert grade.points(whole) == grade.problems[whole]["possible"]
    for problem, kind in broken.items():
        assert grade.points(problem) == 0
        told = " ".join(grade.printed.split()).count(BROKEN[kind][1])  # lines are wrapped
        names = 3 if kind == "empty" else 1  # an empty file lacks each name for itself
        assert 1 <= told <= names + 1, grade.printed  # the failures, and the next step


def test_a_submission_that_is_not_there_is_a_wrong_call(tmp_path):
    command = [sys.executable, "-m", "tests.grading", "--submission", str(tmp_path / "nowhere")]
    done = subprocess.run(
        [*command, "--output", str(tmp_path / "out")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2 and "there is no" in done.stderr and "nowhere" in done.stderr
    assert not (tmp_path / "out").exists()


def test_official_inputs_come_from_the_secret_and_do_not_tell_it(tree, tmp_path):
    problem = "attention.kv_cache"
    solve(tree, problem)
    grade = Grade(tree, tmp_path / "out", "--problem", problem, secret="term-secret-42")
    assert grade.results["seed"] is None
    everything = grade.printed + grade.errors + grade.page + json.dumps(grade.results)
    assert "term-secret-42" not in everything


def test_a_wrong_call_is_refused_with_the_choices(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.grading", "--problem", "attention.kv_cash"],
        cwd=REPOSITORY, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "attention.kv_cache" in done.stderr


def test_an_output_that_cannot_be_written_is_told_before_the_work(tmp_path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "tests.grading", "--output", str(tmp_path / "file" / "out")]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 2 and "--output" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
def test_ctrl_c_leaves_no_process_and_blames_nobody(tree, tmp_path):
    (solve(tree, "attention.kv_cache")).write_text("while True:\n    pass\n")
    run = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.grading",
            "--submission",
            str(tree),
            "--output",
            str(tmp_path),
        ],
        cwd=REPOSITORY,
        env=os.environ | {"TMPDIR": str(tmp_path)},  # the zygote's command line names its folder
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # a job in the background of a script ignores Ctrl-C, and its children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while len(_processes(tmp_path)) < 4 and run.poll() is None:  # grader, zygote twice, a child
        time.sleep(0.1)
    os.killpg(run.pid, signal.SIGINT)  # what a terminal sends
    printed, errors = run.communicate(timeout=60)
    assert run.returncode == 130 and "interrupted" in errors and "Traceback" not in errors
    assert "fault" not in printed
    deadline = time.monotonic() + 30
    while _processes(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _processes(tmp_path) == [] and not list(tmp_path.glob("fast-inference-*"))


def _processes(named: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(named).encode() in (process / "cmdline").read_bytes():
                found.append(process.name)
    return found
