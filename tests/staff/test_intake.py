"""What is handed in becomes a tree: this repository, folders, single files, damage at random."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.grading.course import load_course
from tests.grading.intake import stage
from tests.staff.intake_samples import (
    COMPLETE,
    PACK,
    Desk,
    course_of_three,
    inside,
    tarred,
    zipped,
)

REPOSITORY = Path(__file__).parents[2]
KV, GENERATE = "attention/kv_cache.py", "attention/generate.py"
ONLY_KV = {KV: b"pass\n"}


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize("name", ["assignment", "solutions"])
def test_this_repository_s_own_trees_are_taken_whole_and_without_a_word(tmp_path, name):
    tree = REPOSITORY / name
    if not tree.is_dir():
        pytest.skip("a students' bundle has no solutions")
    course = load_course(REPOSITORY / "tests" / "course.toml")
    staged = stage(tree, tmp_path, course)
    assert (staged.tree, staged.shown, staged.notes) == (tmp_path, name, ())
    expected = {}
    for unit in course.units:
        files = inside(tree / unit).items()
        expected |= {f"{unit}/{path}": data for path, data in files if path.endswith(".py")}
    expected |= {file: (tree / file).read_bytes() for file in course.answers}
    assert inside(tmp_path) == expected and expected


def test_a_whole_checkout_gives_its_assignment(tmp_path):
    staged = stage(REPOSITORY, tmp_path, load_course(REPOSITORY / "tests" / "course.toml"))
    assert staged.shown == f"{REPOSITORY.name}/assignment"
    assert (tmp_path / KV).read_bytes() == (REPOSITORY / "assignment" / KV).read_bytes()


def test_it_needs_nothing_but_the_standard_library():
    code = "import sys, tests.grading.intake; print(*sys.modules)"
    run = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr
    assert "torch" not in run.stdout.split()


@pytest.mark.parametrize(
    ("name", "shown"),
    [("assignment", "assignment"), ("Ann Example (late)", "Ann Example (late)"),
     ("a\x1b[31m\nb", "a�[31m�b"), ("x" * 90, "…" + "x" * 79)],
)  # fmt: skip
def test_messages_begin_with_the_folder_s_name(desk, name, shown):
    assert desk.hand_in(desk.files(name, COMPLETE)).shown == shown
    assert desk.taken == COMPLETE


def test_messages_go_on_with_the_way_to_the_unit_folders(desk):
    top = desk.files("Ann", {f"fast-inference/assignment/{n}": d for n, d in COMPLETE.items()})
    assert desk.hand_in(top).shown == "Ann/fast-inference/assignment"


def test_the_current_folder_has_a_name(desk, monkeypatch):
    monkeypatch.chdir(desk.files("assignment", COMPLETE))
    assert desk.hand_in(Path(".")).shown == "assignment"


@pytest.mark.parametrize("name", ["kv_cache.py", "KV_Cache.py"])
def test_one_file_of_the_course_is_enough(desk, name):
    staged = desk.hand_in(desk.file(name, b"pass\n"))
    assert (desk.taken, staged.shown) == (ONLY_KV, "submission")
    assert staged.notes == (
        "attention/generate.py is missing",
        "no course file is there for serving/ and extra/",
        f"{name} is taken into attention/",
    )


def test_one_file_that_may_be_of_two_units_or_of_none_is_told(desk):
    staged = desk.hand_in(desk.file("cache.py", b"pass\n"))
    line = "cache.py may be of serving/ and extra/: put it into the folder that it is of"
    assert line in staged.notes and desk.taken == {}
    desk.tree.rmdir()
    staged = desk.hand_in(desk.file("solution.py", b"pass\n"))
    assert staged.notes[0].endswith("; it holds solution.py") and desk.taken == {}


def test_files_are_ours_whatever_they_were(desk):
    top = desk.files("assignment", {KV: b"pass\n", "attention/sub/x.py": b""})
    (top / KV).chmod(0o6777)
    (top / "attention/sub").chmod(0o777)
    mask = os.umask(0o077)
    try:
        desk.hand_in(top)
    finally:
        os.umask(mask)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in desk.tree.rglob("*")}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o755}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o644}


DAMAGED = [zipped(COMPLETE), *(pack(tarred(COMPLETE)) for pack in PACK.values())]
CHANGES = st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return course_of_three(tmp_path_factory.mktemp("course"))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(DAMAGED), CHANGES, st.floats(0.2, 1))
def test_no_damage_raises_or_writes_anything_else(course, data, changes, kept):
    damaged = bytearray(data)
    for place, byte in changes:
        damaged[int(place * len(data))] = byte
    if kept < 0.9:
        del damaged[int(kept * len(data)) :]
    check(course, bytes(damaged))


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.lists(
            st.sampled_from(["..", ".", "", "attention", "kv_cache.py", "x.py", "C:", "a\\b"]),
            min_size=1,
            max_size=5,
        ).map("/".join),
        st.binary(max_size=30),
        max_size=6,
    ),
    st.sampled_from([zipped, tarred]),
)
def test_no_names_raise_or_write_anything_else(course, files, pack):
    check(course, pack(files))


def check(course, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        (top / "tree").mkdir()
        (top / "hw1").write_bytes(data)
        staged = stage(top / "hw1", top / "tree", course)
        assert sorted(os.listdir(top)) == ["hw1", "tree"]
        assert (top / "hw1").read_bytes() == data
        for path in (top / "tree").rglob("*"):
            assert not path.is_symlink() and (path.is_dir() or path.suffix == ".py")
            assert path.relative_to(top / "tree").parts[0] in course.units
        assert all(note.isprintable() for note in staged.notes)
        assert staged.notes or inside(top / "tree")
