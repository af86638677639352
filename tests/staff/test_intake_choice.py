"""Which entries of a submission become which files of the tree: on names alone."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.grading.intake.choose import choose
from tests.grading.intake.entries import FILE, FOLDER, Entry
from tests.grading.intake.notes import in_order, listed
from tests.staff.intake_samples import COMPLETE, COURSE, chosen, course_of_three
from tests.staff.samples import small_course

KV = "attention/kv_cache.py"


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    return course_of_three(tmp_path_factory.mktemp("course"))


def test_a_complete_tree_is_taken_as_it_is_without_a_word(course):
    helpers = ["attention/__init__.py", "attention/utils.py", "serving/parts/queue.py"]
    choice, files, notes = chosen(course, *COMPLETE, *helpers, "attention/", "serving/parts/")
    assert files == {name: name for name in [*COMPLETE, *helpers]}
    assert (choice.root, notes) == ((), ())


@pytest.mark.parametrize(
    ("names", "root"),
    [
        (["assignment/attention/kv_cache.py"], "assignment"),
        (["hw1/assignment/attention/kv_cache.py"], "hw1/assignment"),
        (["Ann Example (late)/fast-inference/assignment/attention/kv_cache.py"],
         "Ann Example (late)/fast-inference/assignment"),
        (["/home/ann/hw1/attention/kv_cache.py"], "home/ann/hw1"),
        (["C:\\Users\\ann\\hw1\\attention\\kv_cache.py"], "C:/Users/ann/hw1"),
        (["./././attention//kv_cache.py"], ""),
        (["attention/attention/kv_cache.py"], "attention"),
        (["old/attention/kv_cache.py", "attention/kv_cache.py"], ""),
        (["a/b/assignment/attention/kv_cache.py", "a/attention/generate.py"], "a"),
        (["hw/assignment/attention/kv_cache.py", "hw/tests/attention/test_kv_cache.py"],
         "hw/assignment"),
        (["tests/attention/kv_cache.py", "a/b/attention/kv_cache.py"], "a/b"),
        (["attention/notes.py", "hw/attention/kv_cache.py"], "hw"),
        (["hw/attention/notes.py"], "hw"),
        (["hw/attention/kv_cache.py", "hw/serving/engine.py", "serving.py"], "hw"),
    ],
)  # fmt: skip
def test_the_unit_folders_are_found_wherever_they_are(course, names, root):
    choice, files, _ = chosen(course, *names)
    assert "/".join(choice.root) == root
    assert files and all(target.split("/")[0] in course.units for target in files)


@pytest.mark.parametrize(
    ("names", "root"),
    [
        (["b/attention/kv_cache.py", "a/attention/kv_cache.py"], "a"),
        (["a/attention/kv_cache.py", "assignment/attention/kv_cache.py"], "assignment"),
        (["a/attention/kv_cache.py", "b/attention/kv_cache.py", "b/attention/generate.py"], "b"),
    ],
)
def test_of_two_places_one_is_taken_by_a_rule_that_is_told(course, names, root):
    choice, files, notes = chosen(course, *names)
    other = next(name.split("/")[0] for name in names if not name.startswith(f"{root}/"))
    assert choice.root == (root,)
    assert all(name.startswith(f"{root}/") for name in files.values())
    assert notes[0] == (
        f"unit folders are in {root}/ and {other}/: those in {root}/ are taken (first a folder "
        "named assignment, then the most course files, then the name)"
    )
    assert not any("outside the unit folders" in note for note in notes)


def test_flat_course_files_go_to_their_units(course):
    _, files, notes = chosen(course, "kv_cache.py", "engine.py", "cache.py", "utils.py")
    assert files == {"attention/kv_cache.py": "kv_cache.py", "serving/engine.py": "engine.py"}
    assert "kv_cache.py is taken into attention/" in notes
    assert "engine.py is taken into serving/" in notes
    assert "cache.py may be of serving/ and extra/: put it into the folder that it is of" in notes
    assert any(note.startswith("utils.py is outside") for note in notes)


def test_flat_helpers_come_along_if_all_course_files_are_of_one_unit(course):
    names = ["hw/engine.py", "hw/cache.py", "hw/Utils.py", "hw/__init__.py", "hw/conftest.py"]
    choice, files, notes = chosen(course, *names, "hw/a/b.py")
    assert choice.root == ("hw",)
    assert files == {
        "serving/engine.py": "hw/engine.py", "serving/cache.py": "hw/cache.py",
        "serving/Utils.py": "hw/Utils.py", "serving/__init__.py": "hw/__init__.py",
    }  # fmt: skip
    assert "engine.py, cache.py, Utils.py and __init__.py are taken into serving/" in notes
    assert "hw/a/b.py is left out: it is outside the unit folders taken" in notes


def test_a_flat_course_file_fills_a_gap_but_never_replaces_one_in_its_folder(course):
    names = ["attention/kv_cache.py", "kv_cache.py", "generate.py", "cache.py"]
    _, files, notes = chosen(course, *names)
    assert files == {
        "attention/kv_cache.py": "attention/kv_cache.py", "attention/generate.py": "generate.py"
    }  # fmt: skip
    line = "attention/kv_cache.py is taken, not kv_cache.py, which would become the same file"
    assert line in notes and "generate.py is taken into attention/" in notes


def test_names_in_other_capitals_are_taken_if_only_one_file_has_them(course):
    names = ["Attention/KV_Cache.py", "Attention/Utils.py", "attention/GENERATE.PY"]
    _, files, notes = chosen(course, *names)
    assert files == {
        "attention/kv_cache.py": "Attention/KV_Cache.py",
        "attention/Utils.py": "Attention/Utils.py",
        "attention/generate.py": "attention/GENERATE.PY",
    }
    assert "Attention/KV_Cache.py is taken as attention/kv_cache.py" in notes
    assert "Attention/ is taken as attention/" in notes


def test_of_names_that_differ_in_capitals_only_the_course_s_own_is_sure(course):
    _, files, notes = chosen(course, "attention/kv_cache.py", "attention/KV_CACHE.py")
    assert files == {"attention/kv_cache.py": "attention/kv_cache.py"}
    other = "attention/KV_CACHE.py"
    line = f"attention/kv_cache.py is taken, not {other}, which would become the same file"
    assert line in notes
    both = ["attention/Kv_cache.py", "Attention/kv_cache.py"]
    _, files, notes = chosen(course, *both, "attention/generate.py")
    assert files == {"attention/generate.py": "attention/generate.py"}
    assert "attention/kv_cache.py is missing" in notes
    assert f"{listed(both)} would become the same file: none is taken" in notes


def test_of_a_name_that_is_there_twice_the_last_counts(course):
    entries = [Entry("attention/kv_cache.py", size=n) for n in (1, 2, 3)]
    choice = choose(entries, course)
    assert choice.files["attention/kv_cache.py"].size == 3
    line = "attention/kv_cache.py is there more than once: the last one is taken"
    assert line in in_order(choice.notes)


def test_a_name_in_decomposed_letters_is_taken_as_python_spells_it(course):
    composed = "attention/größe.py"
    decomposed = unicodedata.normalize("NFD", composed)
    assert decomposed != composed
    _, files, notes = chosen(course, *COMPLETE, decomposed)
    assert files[composed] == decomposed and notes == ()


def test_a_file_in_the_place_of_the_folder_above_does_no_harm(course):
    _, files, _ = chosen(course, "hw", "hw/kv_cache.py")
    assert files == {KV: "hw/kv_cache.py"}


def test_what_is_missing_is_told_once_a_unit(course):
    _, _, notes = chosen(course, "attention/kvcache.py", "attention/generate.py")
    assert notes == (
        "attention/kv_cache.py is missing; is attention/kvcache.py meant to be "
        "attention/kv_cache.py?",
        "no course file is there for serving/ and extra/",
    )
    _, _, notes = chosen(course, "serving/engine.py", *list(COMPLETE)[:2])
    assert notes == ("serving/cache.py is missing", "no course file is there for extra/")


def test_a_course_file_is_never_meant_to_be_another(tmp_path):
    text = COURSE.replace("attention.kv_cache", "attention.step_1")
    course = small_course(tmp_path, text.replace("attention.generate", "attention.step_2"))
    assert chosen(course, "attention/step_1.py")[2][0] == "attention/step_2.py is missing"


def test_where_nothing_is_found_the_archives_inside_and_the_top_are_told(course):
    choice, files, _ = chosen(course, "Ann/hw1.zip", "Ann/a.txt", "b.pdf", ".x", "c/")
    assert (files, choice.top) == ({}, ["Ann/", "b.pdf", "c/"])
    assert [entry.name for entry in choice.archives] == ["Ann/hw1.zip"]


PART = st.one_of(
    st.sampled_from([
        "attention", "Attention", "serving", "kv_cache.py", "KV_CACHE.PY", "cache.py", "engine.py",
        "utils.py", "assignment", "tests", "..", ".", "", "conftest.py", "C:", "x", "a b",
    ]),
    st.text(max_size=8),
)  # fmt: skip
NAME = st.builds(str.join, st.sampled_from(["/", "\\"]), st.lists(PART, max_size=5))
KIND = st.sampled_from([FILE, FILE, FILE, FOLDER, "a symbolic link"])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(NAME, KIND), max_size=12))
def test_any_names_give_whitelisted_targets_of_plain_entries_and_printable_notes(course, names):
    entries = [Entry(name, kind, size) for size, (name, kind) in enumerate(names)]
    choice = choose(entries, course)
    for target, entry in choice.files.items():
        unit, *folders, file = target.split("/")
        assert unit in course.units and file.endswith(".py") and file != "conftest.py"
        assert all(part.isidentifier() for part in [*folders, file.removesuffix(".py")])
        assert entry.kind == FILE and ".." not in entry.name.replace("\\", "/").split("/")
    assert len({target.casefold() for target in choice.files}) == len(choice.files)
    assert len({entry.size for entry in choice.files.values()}) == len(choice.files)
    assert all(note.isprintable() for note in in_order(choice.notes))
