"""What is said of the files that are not taken, and how it is told: on names alone."""

from __future__ import annotations

import pytest

from tests.grading.intake.limits import LONGEST_NOTE, MOST_NOTES
from tests.grading.intake.notes import About, in_order, show
from tests.staff.intake_samples import COMPLETE, chosen, course_of_three


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return course_of_three(tmp_path_factory.mktemp("course"))


QUIET = [
    ".git/config",
    ".venv/lib/attention/kv_cache.py",
    "venv/x.py",
    "__pycache__/utils.py",
    ".DS_Store",
    "attention/.DS_Store",
    "attention/._kv_cache.py",
    "__MACOSX/attention/._kv_cache.py",
    ".vscode/launch.json",
    "attention/__pycache__/kv_cache.cpython-311.pyc",
    "attention/kv_cache.pyc",
    "attention/kv_cache.py~",
    "attention/.ipynb_checkpoints/kv_cache-checkpoint.py",
    "node_modules/a.py",
    "build/attention/kv_cache.py",
    "README.md",
    "attention/README.md",
    "Makefile",
    "pyproject.toml",
    "uv.lock",
    "report.pdf",
    "__init__.py",
    "conftest.py",
    "setup.py",
    "test_mine.py",
    "provided/models/llama.py",
    "tests/attention/test_kv_cache.py",
    "tests/conftest.py",
    "handout/attention.typ",
    "notebooks/attention.ipynb",
    "env/pyvenv.cfg",
    "env/lib/attention/kv_cache.py",
    "course.egg-info/PKG-INFO",
    "tox.ini",
    "data/corpus.txt",
    "Thumbs.db",
]


@pytest.mark.parametrize("name", QUIET)
def test_what_tools_make_and_what_is_given_is_left_out_without_a_word(course, name):
    environment = ["env/pyvenv.cfg"] if name.startswith("env/") else []
    _, files, notes = chosen(course, *COMPLETE, name, *environment)
    assert files == {name: name for name in COMPLETE}
    assert notes == ()


ONLY_PY = "is left out: only .py files are taken"
NO_IMPORT = "has a name that cannot be imported"
LEFT_OUT = [
    ("my-utils.py", NO_IMPORT),
    ("scripts/run.py", "is left out: it is outside the unit folders taken"),
    ("cache.py", "may be of serving/ and extra/: put it into the folder that it is of"),
    ("attention/conftest.py", "is left out: a submission needs none"),
    ("attention/sub/CONFTEST.py", "is left out: a submission needs none"),
    ("attention/pytest.ini", ONLY_PY),
    ("attention/pyproject.toml", ONLY_PY),
    ("attention/x.pth", ONLY_PY),
    ("attention/fast.so", ONLY_PY),
    ("attention/table.json", ONLY_PY),
    ("serving/a.ipynb", ONLY_PY),
    ("attention/my-x.py", NO_IMPORT),
    (
        "attention/kv_cache (1).py",
        f"{NO_IMPORT}: rename it to kv_cache.py if it is meant to be that",
    ),
    ("KV-Cache-2.py", f"{NO_IMPORT}: rename it to kv_cache.py if it is meant to be that"),
    ("attention/my parts/x.py", "is in a folder whose name cannot be imported"),
    ("../x.py", "leads out of its folder"),
    ("attention/../../x.py", "leads out of its folder"),
    ("..\\x.py", "leads out of its folder"),
]
LONGER = "\ufdf2" * 32 + ".py"  # 96 bytes, which Python reads as 256
SHOWN = [  # names that cannot be shown as they are
    ("attention/x.py\0.txt", "attention/x.py�.txt has a NUL character in its name"),
    ("attention/\x1b[31mred\n.py", f"attention/�[31mred�.py {NO_IMPORT}"),
    ("attention/\u202egpj.py", f"attention/�gpj.py {NO_IMPORT}"),
    ("attention/\udc80.py", f"attention/�.py {NO_IMPORT}"),
    (f"attention/{LONGER}", f"attention/{LONGER} {NO_IMPORT}"),
    (f"attention/{'a' * 101}.py", f"…{'a' * 56}.py {NO_IMPORT}"),
    ("a/" * 20 + "x.py", f"{'a/' * 20}x.py has too long a path"),
    ("a" * 1001 + ".py", f"…{'a' * 56}.py has too long a path"),
    ("attention/x.py/", "attention/x.py is a folder where a file should be"),
    (
        "utils.py",
        "utils.py is outside the unit folders: move it to the folder of its unit and import it as "
        "`from .utils import …`",
    ),
]


@pytest.mark.parametrize(
    ("name", "line"),
    [*((name, f"{name} {why}") for name, why in LEFT_OUT), *SHOWN],
    ids=[ascii(name)[:40] for name, _ in [*LEFT_OUT, *SHOWN]],
)
def test_a_file_with_no_place_in_the_tree_is_left_out_and_told(course, name, line):
    _, files, notes = chosen(course, *COMPLETE, name)
    assert files == {name: name for name in COMPLETE}
    assert notes == (line,)


def test_several_files_with_the_same_fault_share_a_line(course):
    data = [f"attention/{n}.pt" for n in range(9)]
    scripts = ["a/1.py", "a/2.py", "b/3.py"]
    _, _, notes = chosen(course, *COMPLETE, *data, *scripts)
    assert notes == (
        "attention/0.pt, attention/1.pt, attention/2.pt and 6 more: each is left out: only .py "
        "files are taken",
        "a/1.py, a/2.py and b/3.py: each is left out: it is outside the unit folders taken",
    )


def test_a_file_above_the_unit_folders_is_named_by_its_whole_path(course):
    _, _, notes = chosen(course, *(f"hw/assignment/{name}" for name in COMPLETE), "utils.py")
    assert notes == ("utils.py is left out: it is outside the unit folders taken",)


def test_many_files_outside_are_counted(course):
    _, _, notes = chosen(course, *COMPLETE, *(f"h{n}.py" for n in range(8)))
    assert len(notes) == 6 and notes[-1] == "3 more .py files are outside the unit folders"


def test_a_helper_is_sent_to_the_one_unit_that_is_there(course):
    _, _, notes = chosen(course, "attention/kv_cache.py", "attention/generate.py", "utils.py")
    assert "move it to attention/ and import it as `from .utils import …`" in notes[-1]


@pytest.mark.parametrize("kind", ["a symbolic link", "a hard link", "a device", "a named pipe"])
def test_what_is_no_plain_file_is_left_out_and_told_where_it_matters(course, kind):
    kinds = {"attention/x.py": kind, "serving": kind, "data/corpus": kind, "latest": kind}
    _, files, notes = chosen(course, *COMPLETE, kinds=kinds)
    assert files == {name: name for name in COMPLETE}
    assert notes == (f"attention/x.py and serving: each is left out: it is {kind}",)


def test_any_link_is_told_where_nothing_else_is_found(course):
    _, _, notes = chosen(course, kinds={"latest": "a symbolic link"})
    assert notes == ("latest is left out: it is a symbolic link",)


def test_a_file_in_the_place_of_a_unit_folder_is_told(course):
    _, files, notes = chosen(course, "attention", "serving/engine.py", "serving/cache.py")
    assert "attention is a file where the unit's folder should be" in notes
    assert set(files) == {"serving/engine.py", "serving/cache.py"}


def test_notes_are_in_order_each_once_short_clean_and_not_too_many():
    lines = [(About.LEFT_OUT, f"line {n} \x1b[1m {'x' * 300}") for n in range(40)]
    notes = in_order([*lines, *lines, (About.WHOLE, "first"), (About.MISSING, "second")])
    assert notes[:2] == ("first", "second")
    assert len(notes) == MOST_NOTES + 1 and notes[-1] == "and 12 more"
    assert all(len(note) <= LONGEST_NOTE and note.isprintable() for note in notes)


def test_a_long_path_is_shown_by_its_end():
    assert show("a" * 100 + "/kv_cache.py").endswith("a/kv_cache.py")
    assert len(show("a" * 100)) == 60 and show(("a", "b")) == "a/b"
