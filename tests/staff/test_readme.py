"""README.md shows what is true: the points, the commands, the files it names."""

from __future__ import annotations

import re

import pytest

from tests.grading.course import load_course
from tests.grading.submission import REPOSITORY
from tests.staff.authoring.readme import README, points_table, with_block

TEXT = README.read_text()


def test_the_table_of_points_is_the_courses():
    table = points_table(load_course(REPOSITORY / "tests" / "course.toml"))
    assert with_block(TEXT, "points", table) == TEXT, "run `make readme`"


def test_every_make_target_it_names_exists():
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    calls = re.findall(r"(?:`|^ +)make ([a-z -]+)(?![a-z.-])", TEXT, re.MULTILINE)
    named = {target for call in calls for target in call.split()}
    assert {"grade", "test", "help"} <= named
    assert named - targets == set()


def test_every_path_it_names_exists():
    paths = re.findall(r"`((?:assignment|solutions|tests|handout|notebooks)/[\w./-]*)`", TEXT)
    assert paths
    assert [path for path in paths if not (REPOSITORY / path).exists()] == []


def test_the_pasted_scores_are_of_the_course_as_it_is():
    core = [p for p in load_course(REPOSITORY / "tests" / "course.toml").problems.values()]
    total = float(sum(p.points for p in core if p.track == "core"))
    assert re.findall(r"^score: (.*)$", TEXT, re.MULTILINE) == [
        f"0 / {total:g}",
        f"{total:g} / {total:g}",
    ]


@pytest.mark.parametrize("text", ["nothing", "<!-- BEGIN x -->\n<!-- END x -->\n" * 2])
def test_a_block_must_be_there_once(text):
    with pytest.raises(ValueError, match="expected one block 'x'"):
        with_block(text, "x", "new")


def test_a_block_is_replaced_whole():
    text = "a\n<!-- BEGIN x -->\nold\\1\n<!-- END x -->\nb"
    assert with_block(text, "x", r"new\2") == "a\n<!-- BEGIN x -->\nnew\\2\n<!-- END x -->\nb"
