"""README.md shows what is true: the points, the commands, the files it names."""

from __future__ import annotations

import re

import pytest

from tests.grading.course import load_course
from tests.grading.submission import REPOSITORY
from tests.staff.authoring import readme
from tests.staff.authoring.readme import points_table, with_block
from tests.staff.samples import COURSE, small_course

TEXT = (REPOSITORY / "README.md").read_text(encoding="utf-8")
BLOCKS = "".join(
    f"<!-- BEGIN {name} -->\nold\n<!-- END {name} -->\n"
    for name in ("points", "stubs", "reference")
)


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


@pytest.fixture
def root(tmp_path):
    (tmp_path / "tests").mkdir()
    small_course(tmp_path / "tests", COURSE)
    (tmp_path / "README.md").write_text(BLOCKS, encoding="utf-8")
    return tmp_path


def test_it_is_written_then_current(root, monkeypatch, capsys):
    monkeypatch.setattr(readme, "grade", lambda submission, root: f"a grade of {submission}")
    assert readme.main(["--check"], root) == 1
    assert "run `make readme`" in capsys.readouterr().out
    assert (root / "README.md").read_text(encoding="utf-8") == BLOCKS
    assert readme.main([], root) == 0
    text = (root / "README.md").read_text(encoding="utf-8")
    assert "| Attention | A cache | `attention.cache` | 4 |" in text
    assert "```\na grade of assignment\n```" in text and "a grade of solutions" in text
    assert readme.main(["--check"], root) == 0


@pytest.mark.parametrize("arguments", [[], ["--check"]])
@pytest.mark.parametrize(
    "name, content, said",
    [
        ("tests/course.toml", b"x = [", "not valid TOML"),
        ("README.md", b"no blocks", "README.md: expected one block 'points', found 0"),
        ("README.md", b"\xff", "README.md: byte 0 is 0xff"),
    ],
)
def test_what_it_cannot_read_is_one_line(root, capsys, arguments, name, content, said):
    (root / name).write_bytes(content)
    assert readme.main(arguments, root) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert said in line and line.endswith("; nothing was written")
    assert (root / name).read_bytes() == content
