"""`make watch` as a student uses it: in a terminal, with keys, saves and ways to leave."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.grading.course import load_course
from tests.grading.submission import REPOSITORY
from tests.grading.watch.__main__ import call_fault

COURSE = load_course(REPOSITORY / "tests" / "course.toml")
FIRST, SECOND, *OTHERS = COURSE.problems.values()
PATIENCE = 120.0  # seconds for what should take one or two
HANG = "while True:\n    pass\n"

in_a_terminal = pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")


class Terminal:
    """A shell in a tmux of its own."""

    def __init__(self, name: str, folder: Path):
        self._tmux, self.folder = ["tmux", "-L", name, "-f", os.devnull], folder

    def open(self) -> None:
        shell = (
            "env PS1='$ ' LANG=C.UTF-8 LC_ALL=C.UTF-8 TERM=screen-256color bash --norc --noprofile"
        )
        self._do("new-session", "-d", "-x", "80", "-y", "24", "-c", str(REPOSITORY), shell)
        self.shell = int(self._do("display-message", "-p", "#{pane_pid}"))
        self.type("PS1='ready> '; clear", "Enter")
        self.wait_for_prompt()

    def _do(self, *command: str) -> str:
        done = subprocess.run([*self._tmux, *command], capture_output=True, text=True, check=True)
        return done.stdout

    def type(self, *keys: str) -> None:
        """Keys as tmux names them; a longer word is typed."""
        self._do("send-keys", *keys)

    def screen(self) -> str:
        return self._do("capture-pane", "-p")

    def wait_for(self, text: str) -> str:
        wait(lambda: text in self.screen(), lambda: f"no {text!r} in:\n{self.screen()}")
        return self.screen()

    def wait_for_prompt(self) -> str:
        """The screen, when the shell has the terminal: what is typed before may be lost."""

        def waits() -> bool:
            return f"\n{self.screen()}".rstrip().endswith("\nready>")

        wait(waits, lambda: f"no prompt in:\n{self.screen()}")
        return self.screen()

    def tell(self, command: str) -> str:
        """What a command prints."""
        self.wait_for_prompt()
        file = self.folder / f"told-{time.monotonic_ns()}"
        self.type(f"{command} > {file}.new; mv {file}.new {file}; clear", "Enter")
        wait(file.exists, lambda: f"no shell in:\n{self.screen()}")
        return file.read_text()

    def stty(self) -> str:
        """The terminal's settings."""
        return self.tell("stty -a")

    def status(self) -> int:
        """Of the last command."""
        return int(self.tell("echo $?"))

    def watch(self, tree: Path, *options: str) -> None:
        call = f"{sys.executable} -m tests.grading.watch --submission {tree}"
        self.type(" ".join([call, *options]), "Enter")

    def children(self) -> set[int]:
        """All processes that come from the shell."""
        table = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True)
        pairs = [tuple(map(int, line.split())) for line in table.stdout.splitlines()]
        found = {self.shell}
        while more := {pid for pid, parent in pairs if parent in found} - found:
            found |= more
        return found - {self.shell}

    def close(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], capture_output=True)


def wait(happens: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.05)


def assert_gone(processes: set[int]) -> None:
    assert processes
    wait(lambda: not any(map(_runs, processes)), lambda: f"left: {processes}")


def _runs(process: int) -> bool:
    ps = subprocess.run(["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True)
    return ps.stdout.strip()[:1] not in ("", "Z")


@pytest.fixture
def terminal(tmp_path) -> Iterator[Terminal]:
    pytest.importorskip("watchfiles", reason="make setup EXTRAS=watch has not run")
    terminal = Terminal(f"watch-{os.getpid()}-{time.monotonic_ns()}", tmp_path)
    try:
        terminal.open()
        yield terminal
    finally:
        terminal.close()


@pytest.fixture
def tree(tmp_path) -> Path:
    """A copy of the stubs; all but the first two problems are solved, which is counted sooner."""
    ours = shutil.ignore_patterns("provided", "__pycache__")
    tree = Path(shutil.copytree(REPOSITORY / "assignment", tmp_path / "tree", ignore=ours))
    for problem in OTHERS:
        solve(problem, tree)
    return tree


def file_of(problem, tree: Path) -> Path:
    return tree / problem.target


def solve(problem, tree: Path) -> None:
    """As an editor saves: a new file beside it, renamed."""
    file = file_of(problem, tree)
    new = file.with_suffix(".new")
    shutil.copy(REPOSITORY / "solutions" / file.relative_to(tree), new)
    os.replace(new, file)


@in_a_terminal
def test_a_student_solves_a_problem_and_goes_home(terminal, tree):
    before = terminal.stty()
    terminal.watch(tree)
    shown = terminal.wait_for("is not written yet")
    assert FIRST.title in shown and f"0 / {float(FIRST.points):g}" in shown
    solve(FIRST, tree)
    shown = terminal.wait_for("Solved: all")
    assert FIRST.title in shown and f"n for the next: {SECOND.title}" in shown
    terminal.type("h")
    terminal.type("n")
    shown = terminal.wait_for("2 of")
    assert FIRST.title not in shown
    terminal.type("h")
    terminal.wait_for("Hint")
    processes = terminal.children()
    terminal.type("q")
    assert SECOND.title not in terminal.wait_for_prompt()  # the screen is as it was
    assert terminal.status() == 0
    assert_gone(processes)
    assert terminal.stty() == before


@in_a_terminal
def test_a_save_ends_a_hang_and_ctrl_z_and_ctrl_c_work(terminal, tree):
    before = terminal.stty()
    solve(SECOND, tree)
    file_of(FIRST, tree).write_text(HANG)
    terminal.watch(tree, "--problem", FIRST.name)
    terminal.wait_for("0 of")
    terminal.type("l")
    terminal.wait_for("enter open")  # keys answer meanwhile
    terminal.type("l")
    solve(FIRST, tree)
    terminal.wait_for("Solved: all")
    terminal.type("C-z")
    terminal.wait_for("Stopped")
    assert terminal.stty() == before
    terminal.type("fg", "Enter")
    terminal.wait_for("Solved: all")
    file_of(FIRST, tree).write_text(HANG)
    terminal.wait_for("0 of")
    processes = terminal.children()
    terminal.type("C-c")
    assert terminal.status() == 0
    assert_gone(processes)
    assert terminal.stty() == before


@in_a_terminal
def test_nothing_is_left_when_the_terminal_is_closed(terminal, tree):
    file_of(FIRST, tree).write_text(HANG)
    terminal.watch(tree, "--problem", FIRST.name)
    terminal.wait_for("0 of")
    processes = terminal.children()
    terminal.close()
    assert_gone(processes)


def test_without_a_terminal_it_says_so():
    done = subprocess.run(
        [sys.executable, "-m", "tests.grading.watch"],
        cwd=REPOSITORY, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "make watch: needs a terminal; to grade once: make grade\n"


@pytest.mark.parametrize(
    ("problem", "unit", "folder", "told"),
    [
        ("attention.cash", None, ".", FIRST.name),
        (None, "attencion", ".", FIRST.unit),
        (None, None, "nowhere", "no folder"),
        (FIRST.name, None, ".", ""),
    ],
)
def test_a_wrong_call_is_told_with_the_choices(tmp_path, problem, unit, folder, told):
    fault = call_fault(Namespace(problem=problem, unit=unit), COURSE, tmp_path / folder)
    assert told in fault and bool(fault) == bool(told)
