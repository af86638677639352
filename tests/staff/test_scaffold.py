"""`make new-problem` and `make check-problem`: a new problem is complete from the start."""

import errno
import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.grading.course import load_course
from tests.grading.scoring import score
from tests.staff.authoring import check_problem, stubs
from tests.staff.authoring import new_problem as scaffold
from tests.staff.authoring.new_problem import Refused, new_problem
from tests.staff.authoring.source import ROOT
from tests.staff.samples import record

COURSE = """
title = "Small"
[units.attention]
title = "Attention"
[problems."attention.mask"]
title = "A mask"
track = "core"
points = 1
handout = "Masks"
groups = { basic = 1 }
"""


@pytest.fixture
def root(tmp_path):
    for name, text in {
        "tests/course.toml": COURSE,
        "tests/attention/__init__.py": "",
        "solutions/attention/__init__.py": "# kept\n",
        "assignment/attention/__init__.py": "# kept\n",
        "handout/attention.typ": "== Masks <attention.mask>\n"
        'Text #problem(\n  "attention.mask",\n)[]',
    }.items():
        write(tmp_path, name, text)
    return tmp_path


def write(root, name, text):
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def snapshot(root):
    return {str(p.relative_to(root)): p.is_dir() or p.read_bytes() for p in root.rglob("*")}


def test_in_a_unit_that_exists(root):
    files = new_problem("attention.sliding_window", root=root)
    assert "solutions/attention/__init__.py" not in files
    assert (root / "solutions/attention/__init__.py").read_text() == "# kept\n"
    assert stubs.plan(root) == ([], [])
    course = load_course(root / "tests/course.toml")
    assert list(course.problems) == ["attention.mask", "attention.sliding_window"]
    problem = course.problems["attention.sliding_window"]
    assert (problem.title, problem.handout, problem.track, problem.points) == (
        *("Sliding window", "Sliding window", "elective"),
        1,
    )
    handout = (root / "handout/attention.typ").read_text()
    assert handout.startswith("== Masks <attention.mask>\nText")
    assert "\n== Sliding window <attention.sliding_window>\n" in handout


def test_in_a_new_unit_and_twice(root):
    new_problem("speculative.medusa", "Medusa heads", root)
    new_problem("speculative.eagle", root=root)
    course = load_course(root / "tests/course.toml")
    assert course.units["speculative"].title == "Speculative"
    assert course.problems["speculative.medusa"].title == "Medusa heads"
    assert stubs.plan(root) == ([], [])
    assert (root / "tests/speculative/__init__.py").exists()
    assert "$" not in (root / "solutions/speculative/eagle.py").read_text()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("attention", "expected unit.name"),
        ("attention.a.b", "expected unit.name"),
        ("attention.", "expected unit.name"),
        (".mask", "expected unit.name"),
        ("attention.Mask", "expected unit.name"),
        ("attention.2d", "expected unit.name"),
        ("attention.a-b", "expected unit.name"),
        ("attention.a b", "expected unit.name"),
        ("attention.ärger", "expected unit.name"),
        ("../attention.x", "expected unit.name"),
        ("attention._private", "expected unit.name"),
        ("attention.lambda", "keyword"),
        ("class.mask", "keyword"),
        ("provided.mask", "another meaning"),
        ("staff.mask", "another meaning"),
        ("grading.mask", "another meaning"),
        ("hidden.mask", "another meaning"),
        ("attention.mask", "has it already"),
    ],
)
def test_bad_names_change_nothing(root, name, reason):
    refused(root, name, reason)


def refused(root, name, reason, title=None):
    before = snapshot(root)
    with pytest.raises(Refused, match=reason):
        new_problem(name, title, root)
    assert snapshot(root) == before


OWN_CHAPTERS = sorted(
    path.stem
    for path in (ROOT / "handout").glob("*.typ")
    if path.stem not in load_course(ROOT / "tests/course.toml").units
)


@pytest.mark.parametrize("unit", OWN_CHAPTERS)
def test_a_unit_cannot_take_over_a_file_of_the_handout(root, unit):
    assert len(OWN_CHAPTERS) >= 8
    shutil.copytree(ROOT / "handout", root / "handout", dirs_exist_ok=True)
    refused(root, f"{unit}.x", re.escape(f"handout/{unit}.typ is there already, and the course"))


def test_a_unit_cannot_take_over_a_file_of_the_tests(root):
    write(root, "tests/conftest.py", "")
    refused(root, "conftest.x", re.escape("tests/conftest.py is there already, and the course"))


def test_a_chapter_that_came_first_needs_its_unit_in_the_course(root):
    write(root, "handout/speculative.typ", "First words.\n")
    refused(root, "speculative.medusa", re.escape("put [units.speculative] into tests/course.toml"))
    write(root, "tests/course.toml", COURSE + '[units.speculative]\ntitle = "Speculation"\n')
    new_problem("speculative.medusa", root=root)
    text = (root / "handout/speculative.typ").read_text()
    assert text.startswith("First words.\n\n== Medusa <speculative.medusa>\n")


def test_every_folder_of_the_trees_that_is_no_unit_is_reserved():
    units = load_course(ROOT / "tests/course.toml").units
    folders = {
        path.parent.name for tree in ("tests", "assignment") for path in (ROOT / tree).glob("*/*.*")
    }
    assert folders - {"__pycache__"} - set(units) == scaffold.RESERVED_UNITS


@pytest.mark.parametrize(
    "path",
    [
        "solutions/attention/latent.py",
        "assignment/attention/latent.py",
        "tests/attention/test_latent.py",
        "tests/staff/mutants/attention/latent.toml",
    ],
)
def test_a_file_in_the_way_changes_nothing(root, path):
    write(root, path, "mine")
    refused(root, "attention.latent", f"{path} is there already")


def test_a_section_in_the_way_a_bad_title_and_a_broken_course_change_nothing(root):
    refused(root, "attention.latent", "has a section 'Masks' already", "Masks")
    refused(root, "attention.latent", "title", 'A "quoted" title')
    write(root, "handout/attention.typ", "== Many heads <attention.latent>")
    refused(root, "attention.latent", "has a label <attention.latent> already")
    refused(root, "attention.latent", "title", " ")
    refused(root, "attention.latent", "title", "A\rB")
    write(root, "tests/course.toml", COURSE + "x = 1\n")
    refused(root, "attention.latent", "unknown key 'x'")


def test_a_section_in_a_file_that_the_chapter_includes_is_in_the_way_too(root):
    write(root, "handout/attention.typ", 'First words.\n\n#include "attention/heads.typ"\n')
    write(root, "handout/attention/heads.typ", "== Many heads <attention.latent>\n")
    refused(root, "attention.latent", "has a label <attention.latent> already")
    refused(root, "attention.queries", "has a section 'Many heads' already", "Many heads")
    new_problem("attention.queries", root=root)
    text = (root / "handout/attention.typ").read_text()
    assert text.startswith('First words.\n\n#include "attention/heads.typ"\n\n== Queries <')


def test_a_course_that_cannot_be_extended_changes_nothing(root):
    rows = ['title = "Small"', 'units = { attention = { title = "Attention" } }']
    write(root, "tests/course.toml", "\n".join(rows))
    refused(root, "serving.engine", "tests/course.toml cannot be extended: ")


@pytest.mark.parametrize("name", ["tests/course.toml", "handout/attention.typ"])
def test_a_file_that_is_no_text_is_one_line(root, capsys, name):
    with open(root / name, "ab") as file:
        file.write(b"\n# \xff")
    before = snapshot(root)
    assert scaffold.main(["attention.latent"], root) == 1
    assert snapshot(root) == before
    [line] = capsys.readouterr().err.splitlines()
    assert name in line and "0xff" in line and line.endswith("; nothing was written")


@pytest.mark.parametrize("step", ["write_text", "mkdir", "replace"])
@pytest.mark.parametrize("good", [0, 1, 2, 3, 6])
def test_a_step_that_fails_leaves_nothing_behind(root, monkeypatch, capsys, step, good):
    before = snapshot(root)
    fail_after(monkeypatch, root, step, good)
    assert scaffold.main(["serving.engine"], root) == 1
    monkeypatch.undo()
    assert snapshot(root) == before
    assert capsys.readouterr().err == (
        "new-problem: [Errno 28] No space left on device; nothing was written\n"
    )


def fail_after(monkeypatch, root, step, good):
    """Path's method `step` works so many times below `root`, fails once, and works again."""
    real, left = getattr(type(root), step), [good]

    def failing(path, *arguments, **keywords):
        left[0] -= path.is_relative_to(root)
        if left[0] == -1:
            left[0] -= 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, *arguments, **keywords)

    monkeypatch.setattr(type(root), step, failing)


def test_a_file_where_a_folder_should_be_changes_nothing(root, capsys):
    write(root, "solutions/serving", "a file")
    before = snapshot(root)
    assert scaffold.main(["serving.engine"], root) == 1
    assert snapshot(root) == before
    assert "nothing was written" in capsys.readouterr().err


def test_the_command_says_what_it_did(root, capsys):
    assert scaffold.main(["attention.latent", "--title", "Latent attention"], root) == 0
    assert "solutions/attention/latent.py" in capsys.readouterr().out
    assert scaffold.main(["attention.latent"], root) == 1
    assert "nothing was written" in capsys.readouterr().err


# --- check-problem -------------------------------------------------------------------------------


def mask_of(root):
    return load_course(root / "tests/course.toml").problems["attention.mask"]


def lines(checks):
    return [str(check) for check in checks]


def test_complete_texts(root):
    source = "def mask():\n    # BEGIN SOLUTION\n    return 1\n    # END SOLUTION\n"
    write(root, "solutions/attention/mask.py", source)
    stubs.main([], root)
    write(root, "tests/attention/test_mask.py", "")
    write(root, "tests/staff/mutants/attention/mask.toml", "")
    assert lines(check_problem.check_texts(mask_of(root), root)) == [
        "✓ files: all there",
        "✓ handout: handout/attention.typ, section 'Masks'",
        "✓ stub: in step with its source",
    ]


def test_incomplete_texts(root):
    write(root, "solutions/attention/mask.py", "# END SOLUTION\n")
    write(root, "assignment/attention/mask.py", "x = 1\n")
    write(root, "handout/attention.typ", "= Masks and more\n== Heads no. 2 <x>\nMasks\n")
    files, handout, stub = lines(check_problem.check_texts(mask_of(root), root))
    assert files == (
        "✗ files: missing: tests/attention/test_mask.py, tests/staff/mutants/attention/mask.toml"
    )
    assert handout == (
        "✗ handout: handout/attention.typ, section 'Masks' is not there; "
        "headings: 'Masks and more', 'Heads no. 2'"
    )
    write(root, "handout/attention.typ", "== Masks\n")
    assert lines(check_problem.check_texts(mask_of(root), root))[1] == (
        '✗ handout: handout/attention.typ: no box #problem("attention.mask", …)'
    )
    write(root, "handout/parts/masks.typ", '== Masks\n#include "/handout/parts/box.typ"')
    write(root, "handout/parts/box.typ", '#problem("attention.mask")[]')
    write(root, "handout/attention.typ", '#include "parts/masks.typ"\n')
    assert lines(check_problem.check_texts(mask_of(root), root))[1] == (
        "✓ handout: handout/attention.typ, section 'Masks'"
    )
    (root / "handout/parts/box.typ").unlink()
    assert lines(check_problem.check_texts(mask_of(root), root))[1] == (
        "✗ handout: handout/parts/box.typ: cannot be read: No such file or directory"
    )
    (root / "handout/attention.typ").write_bytes(b"== Masks \xff\n")
    assert lines(check_problem.check_texts(mask_of(root), root))[1] == (
        "✗ handout: handout/attention.typ: byte 9 is 0xff; expected text in UTF-8"
    )
    assert stub.startswith("✗ stub: solutions/attention/mask.py:1: ")
    assert "assignment/attention/mask.py is not the stub of its source" in stub


def test_an_unknown_problem_and_a_broken_course_are_one_line(root, capsys):
    assert check_problem.main(["attention.masks"], root) == 1
    write(root, "tests/course.toml", COURSE + "x = 1\n")
    assert check_problem.main(["attention.mask"], root) == 1
    unknown, broken = capsys.readouterr().out.splitlines()
    assert unknown == (
        "✗ points: tests/course.toml has no 'attention.masks'; there are: attention.mask"
    )
    assert broken.startswith("✗ points: ") and "unknown key 'x'" in broken


def points_of(root, stub, reference, alone=None):
    """The lines for three runs, each given as its records."""
    course = load_course(root / "tests/course.toml")
    given = [stub, reference, alone or reference]

    def grade(tree):
        assert tree.is_dir()
        return score(course, given.pop(0)).problems[0]

    return lines(check_problem.check_points(course, mask_of(root), root, grade))


PASSED = record("attention.mask", "basic")
UNWRITTEN = record("attention.mask", "basic", "failed", "not written", unwritten=True)
WRONG = record("attention.mask", "basic", "failed", "expected 1")
EXTRA = record("attention.mask", "extra")


def test_points_as_they_should_be(root):
    assert points_of(root, [UNWRITTEN], [PASSED]) == [
        "✓ stub's points: 0 of 1",
        "✓ reference's points: 1 of 1",
        "✓ alone, all else stubs: 1 of 1",
    ]


def test_points_as_they_should_not_be(root):
    stub, reference, alone = points_of(root, [WRONG], [WRONG], [UNWRITTEN])
    assert stub.startswith("✗ stub's points: 0 of 1; expected every test of the gate")
    assert reference.startswith("✗ reference's points: 0 of 1; tests/attention/test_mask.py::")
    assert alone.startswith("✗ alone, all else stubs: 0 of 1; ")
    assert points_of(root, [PASSED], [PASSED])[0].startswith("✗ stub's points: 1 of 1")


def test_groups_of_tests_and_course_must_be_the_same(root):
    assert "has no group 'extra'" in points_of(root, [UNWRITTEN], [PASSED, EXTRA])[1]
    write(root, "tests/course.toml", COURSE.replace("basic = 1", "basic = 1, more = 1"))
    for line in points_of(root, [UNWRITTEN], [PASSED]):
        assert line.startswith("✗") and "no tests ran for group 'more'" in line


def test_what_a_problem_needs_is_beside_it_when_it_is_graded_alone(root):
    more = [
        '[problems."attention.heads"]\ntitle = "Heads"\ntrack = "core"\npoints = 1\n',
        'handout = "Heads"\ngroups = { basic = 1 }\nneeds = ["attention.mask"]\n',
    ]
    write(root, "tests/course.toml", COURSE + "".join(more))
    for name in ("heads", "mask", "other"):
        write(root, f"assignment/attention/{name}.py", "stub")
        write(root, f"solutions/attention/{name}.py", "solution")
    course = load_course(root / "tests/course.toml")
    seen = []

    def grade(tree):
        files = sorted((tree / "attention").glob("[a-z]*.py"))
        seen.append({file.stem: file.read_text() for file in files})
        return score(course, [record("attention.heads", "basic")]).problems[-1]

    problem = course.problems["attention.heads"]
    assert lines(check_problem.check_points(course, problem, root, grade))[-1].startswith("✓ alone")
    assert seen[-1] == {"heads": "solution", "mask": "solution", "other": "stub"}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A copy of the repository with a new problem in a new unit."""
    copy = tmp_path_factory.mktemp("repository")
    ignore = shutil.ignore_patterns("__pycache__", "mutants", "variants", "exploits")
    for folder in ("assignment", "handout", "tests", "solutions", "notebooks"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignore)
    shutil.copyfile(ROOT / "pyproject.toml", copy / "pyproject.toml")
    new_problem("demo.thing", root=copy)
    return copy


def run(repository, *command):
    return subprocess.run(
        [sys.executable, *command], cwd=repository, capture_output=True, text=True
    )


def test_a_new_problem_is_complete_as_it_comes(repository):
    done = run(repository, "-m", "tests.staff.authoring.check_problem", "demo.thing")
    assert done.stdout.splitlines() == [
        "✓ points: 1 (elective); groups basic",
        "✓ files: all there",
        "✓ handout: handout/demo.typ, section 'Thing'",
        "✓ stub: in step with its source",
        "✓ mutants: 1 killed",
        "✓ variants: 1 accepted",
        "✓ stub's points: 0 of 1",
        "✓ reference's points: 1 of 1",
        "✓ alone, all else stubs: 1 of 1",
    ], done.stderr
    assert done.returncode == 0


def test_a_new_problem_is_in_the_handout(repository):
    pytest.importorskip("typst", reason="the extra [docs] is not installed")
    before = (repository / "handout/handout.pdf").read_bytes()
    done = run(repository, "handout/build.py")
    assert done.returncode == 0, done.stderr
    assert (repository / "handout/handout.pdf").read_bytes() != before
