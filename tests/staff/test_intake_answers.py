"""A file of answers in what is handed in: found where it may sensibly lie, taken as data."""

from __future__ import annotations

import os

import pytest

from tests.grading.intake.limits import LARGEST_ANSWERS
from tests.staff.intake_samples import COMPLETE, COURSE, PROBLEM, Desk, chosen, tarred, zipped
from tests.staff.samples import small_course

ANSWERS = PROBLEM.format("serving.review") + 'file = "review.toml"\n'
SHEET = b'student = "s1"\n'
KV = "attention/kv_cache.py"


@pytest.fixture
def course(tmp_path):
    return small_course(tmp_path, COURSE + ANSWERS)


@pytest.fixture
def desk(tmp_path, course):
    desk = Desk(tmp_path)
    desk.course = course
    return desk


PLACES = [  # where it lies in "hw/assignment", and how the note calls it
    ("hw/assignment/review.toml", None),
    ("hw/assignment/serving/review.toml", "serving/review.toml"),
    ("hw/assignment/Serving/review.toml", "Serving/review.toml"),
    ("hw/assignment/Review.TOML", "Review.TOML"),
    ("hw/review.toml", "../review.toml"),
    ("review.toml", "../../review.toml"),
]


@pytest.mark.parametrize(("place", "noted"), PLACES)
def test_it_is_found_beside_in_or_above_the_unit_folders(course, place, noted):
    modules = {name: f"hw/assignment/{name}" for name in COMPLETE}
    _, files, notes = chosen(course, *modules.values(), place)
    assert files == modules | {"review.toml": place}
    assert notes == ((f"{noted} is taken as review.toml",) if noted else ())


@pytest.mark.parametrize(
    "place",
    ["review.toml", "hw/review.toml", "assignment/review.toml", "assignment/serving/review.toml",
     "serving/review.toml", "a/b/serving/review.toml"],
)  # fmt: skip
def test_it_may_be_all_that_is_handed_in(course, place):
    assert chosen(course, place, "notes.txt")[1] == {"review.toml": place}


def test_it_lies_beside_modules_without_a_folder(course):
    _, files, _ = chosen(course, "hw/kv_cache.py", "hw/review.toml", "hw/pyproject.toml")
    assert files == {KV: "hw/kv_cache.py", "review.toml": "hw/review.toml"}


def test_of_several_the_one_beside_the_unit_folders_is_taken(course):
    places = ["hw/review.toml", "hw/serving/review.toml", "review.toml"]
    _, files, notes = chosen(course, *(f"hw/{name}" for name in COMPLETE), *places)
    assert files["review.toml"] == places[0]
    [line] = notes
    assert line.startswith("review.toml is taken, not serving/review.toml and ../review.toml")


@pytest.mark.parametrize(
    "place",
    ["attention/review.toml", "old/review.toml", "provided/review.toml", "tests/review.toml"],
)
def test_elsewhere_it_is_not_taken(course, place):
    _, files, notes = chosen(course, *COMPLETE, place)
    assert "review.toml" not in files
    assert "review.toml is missing" in notes
    theirs = place.split("/")[0] not in ("provided", "tests")
    assert any(note.startswith(f"{place} is left out") for note in notes) == theirs


@pytest.mark.parametrize("name", ["review (1).toml", "review-2.toml", "Review copy.toml"])
def test_a_name_that_a_browser_made_is_told(course, name):
    _, files, notes = chosen(course, *COMPLETE, name)
    assert set(files) == set(COMPLETE)
    line = f"{name} is left out: rename it to review.toml if it is meant to be that"
    assert notes == ("review.toml is missing", line)


def test_no_module_is_expected_of_a_problem_with_a_file_of_answers(course):
    _, files, notes = chosen(course, *COMPLETE, "review.toml", "review.py", "serving/review.py")
    assert files == {
        **{name: name for name in COMPLETE},
        "review.toml": "review.toml",
        "serving/review.py": "serving/review.py",  # a helper of the student's own
    }
    assert "review.py is outside the unit folders" in notes[0]


def test_without_it_only_it_is_missing(course):
    assert chosen(course, *COMPLETE)[2] == ("review.toml is missing",)
    others = [name for name in COMPLETE if not name.startswith("serving/")]
    assert chosen(course, *others)[2] == ("no course file is there for serving/",)
    assert chosen(course, *others, "review.toml")[2] == (
        "serving/engine.py and serving/cache.py are missing",
    )


@pytest.mark.parametrize("name", ["review.toml", "Review.toml"])
def test_a_lone_file_may_be_handed_in(desk, name):
    desk.hand_in(desk.file(name, SHEET))
    assert desk.taken == {"review.toml": SHEET}


def test_another_lone_file_of_that_kind_may_not(desk):
    staged = desk.hand_in(desk.file("pyproject.toml", SHEET))
    assert desk.taken == {} and "is no archive" in staged.notes[0]


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_it_comes_out_of_an_archive(desk, pack):
    desk.hand_in(desk.file("hw.bin", pack({f"a/{n}": d for n, d in COMPLETE.items()}
                                         | {"a/review.toml": SHEET})))  # fmt: skip
    assert desk.taken == {**COMPLETE, "review.toml": SHEET}
    assert not (desk.tree / "review.toml").stat().st_mode & 0o111


@pytest.mark.parametrize("kind", ["a symbolic link", "a hard link", "a named pipe", "a device"])
def test_what_is_no_plain_file_is_told_and_not_taken(course, kind):
    _, files, notes = chosen(course, *COMPLETE, kinds={"review.toml": kind})
    assert set(files) == set(COMPLETE)
    assert f"review.toml is left out: it is {kind}" in notes


def test_links_pipes_and_folders_on_disk_do_no_harm(desk):
    secret = desk.file("secret.toml", b"SECRET")
    top = desk.files("hw", COMPLETE)
    for make in (
        lambda path: path.symlink_to(secret),
        lambda path: os.mkfifo(path),
        lambda path: path.mkdir(),
    ):
        make(top / "review.toml")
        desk.hand_in(top)
        assert desk.taken == COMPLETE
        for path in [*desk.tree.rglob("*")][::-1]:
            path.rmdir() if path.is_dir() else path.unlink()
        desk.tree.rmdir()
        found = top / "review.toml"
        found.rmdir() if found.is_dir() and not found.is_symlink() else found.unlink()


def test_a_large_one_is_left_out(desk):
    staged = desk.zip({**COMPLETE, "review.toml": b"#" * (LARGEST_ANSWERS + 1)})
    assert desk.taken == COMPLETE
    assert staged.notes == ("review.toml is left out: it is larger than 64 KB",)


def test_a_large_one_does_not_take_the_room_of_others(desk):
    desk.zip({**COMPLETE, "review.toml": b"#" * LARGEST_ANSWERS})
    assert set(desk.taken) == {*COMPLETE, "review.toml"}


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"", "review.toml is empty"),
        ('student = "s1"'.encode("utf-16"), "review.toml is UTF-16 and was read as that: save it"),
        (b'student = "J\xf6rg"', "review.toml is not UTF-8 in line 1: save it as UTF-8"),
        (b'a = "\0"', "review.toml holds a NUL byte in line 1: save it anew as UTF-8 text"),
    ],
)
def test_what_is_wrong_with_its_text_is_told(desk, data, line):
    [note] = desk.zip({**COMPLETE, "review.toml": data}).notes
    assert note.startswith(line)
