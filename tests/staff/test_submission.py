"""The switch in one process: the right tree, and one line for what is missing."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import torch

from tests.grading import submission
from tests.grading.errors import SubmissionError, describe

UNIT = """
from jaxtyping import Float
from torch import Tensor

from .helper import offset
from assignment.provided.models import LlamaConfig

def shift(x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    return x + offset

def transposed(x: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    return x.T
"""


@pytest.fixture(autouse=True)
def outer_switch():
    """These tests install trees of their own; give the session its tree back."""
    path, modules = list(sys.meta_path), dict(sys.modules)
    sys.meta_path[:] = [f for f in path if not getattr(f, "serves_submission", False)]
    yield
    submission.uninstall()
    sys.meta_path[:] = path
    sys.modules.update({n: m for n, m in modules.items() if n.split(".")[0] == "submission"})


@pytest.fixture
def tree(tmp_path) -> Path:
    unit = tmp_path / "toy"
    unit.mkdir()
    (unit / "shifts.py").write_text(UNIT)
    (unit / "helper.py").write_text("offset = 1\n")
    (unit / "syntax.py").write_text("def f():\n    return (\n")
    (unit / "imports_broken.py").write_text(
        "from .syntax import f\n\ndef g():\n    return f()\n\ndef h():\n    return 5\n"
    )
    (unit / "leaves.py").write_text("raise SystemExit('bye')\n")
    submission.install(tmp_path)
    return tmp_path


def get(module: str, name: str):
    return getattr(importlib.import_module(f"submission.{module}"), name)


def test_names_come_from_the_tree_and_siblings_import_relatively(tree):
    assert torch.equal(get("toy.shifts", "shift")(torch.zeros(1, 2)), torch.ones(1, 2))
    assert Path(sys.modules["submission.toy.shifts"].__file__) == tree / "toy" / "shifts.py"


def test_shapes_are_checked_by_axis_name(tree):
    with pytest.raises(Exception, match="B T"):
        get("toy.shifts", "transposed")(torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("name", "argument", "line"),
    [
        ("transposed", torch.zeros(2, 3), "transposed returned f32[3,2], expected "),
        ("shift", torch.zeros(2), "shift got x = f32[2], expected "),
        ("shift", None, "shift got x = None, expected "),
    ],
)
def test_a_shape_error_is_told_in_one_line(tree, name, argument, line):
    with pytest.raises(Exception, match="Type-check") as caught:
        get("toy.shifts", name)(argument)
    told = describe(caught.value)
    assert told.startswith(f"{line}Float[Tensor, 'B T']") and "\n" not in told
    assert name != "transposed" or told.endswith("with B=2, T=3")


def test_provided_is_the_pristine_one_even_if_the_tree_has_its_own(tree):
    (tree / "provided").mkdir()
    (tree / "provided" / "models.py").write_text("LlamaConfig = 'forged'\n")
    from assignment.provided.models import LlamaConfig

    assert get("provided.models", "LlamaConfig") is LlamaConfig
    assert get("toy.shifts", "LlamaConfig") is LlamaConfig


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [
        ("toy.absent", "f", r"toy\.absent: no file .*absent\.py"),
        ("other.unit", "f", r"other\.unit: no file .*unit\.py"),
        ("toy.shifts", "gone", r"toy\.shifts: .*shifts\.py has no `gone`"),
        ("toy.syntax", "f", r"toy\.syntax: .*syntax\.py, line 2: SyntaxError"),
        ("toy.leaves", "f", r"toy\.leaves: .*leaves\.py, line 1: SystemExit: bye"),
    ],
)
def test_importing_never_fails_and_using_says_why_in_one_line(tree, module, name, line):
    placeholder = get(module, name)
    for use in (lambda: placeholder(1), lambda: placeholder.method):
        with pytest.raises(SubmissionError, match=line) as caught:
            use()
        assert "\n" not in str(caught.value)


def test_a_broken_sibling_costs_only_what_uses_it(tree):
    assert get("toy.imports_broken", "h")() == 5
    with pytest.raises(SubmissionError, match=r"toy\.syntax"):
        get("toy.imports_broken", "g")()


def test_a_missing_tree_is_said_of_every_problem(tmp_path):
    submission.install(tmp_path / "nowhere")
    with pytest.raises(SubmissionError, match="toy.shifts: no folder .*nowhere"):
        get("toy.shifts", "shift")()


def test_a_second_tree_replaces_the_first(tree, tmp_path_factory):
    assert get("toy.shifts", "shift")(torch.zeros(1, 1)).item() == 1
    other = tmp_path_factory.mktemp("other")
    (other / "toy").mkdir()
    (other / "toy" / "shifts.py").write_text("def shift(x):\n    return x - 1\n")
    submission.install(other)
    assert get("toy.shifts", "shift")(torch.zeros(1, 1)).item() == -1


def test_a_tree_is_found_by_name_by_path_and_inside_an_unpacked_submission(tmp_path):
    assert submission.find_tree("assignment") == submission.REPOSITORY / "assignment"
    assert submission.find_tree(tmp_path) == tmp_path
    (tmp_path / "assignment").mkdir()
    assert submission.find_tree(tmp_path) == tmp_path / "assignment"


def test_every_way_to_import_a_sibling_leads_to_the_tree(tree):
    (tree / "toy" / "__init__.py").write_text("")
    (tree / "toy" / "importer.py").write_text(
        "from . import helper\n"
        "from assignment.toy import helper as absolute\n"
        "import assignment.toy.helper\n"
        "from assignment.toy.helper import offset\n"
        "SAME = [helper.__file__, absolute.__file__, assignment.toy.helper.__file__]\n"
        "def total(): return helper.offset + offset\n"
    )
    assert get("toy.importer", "total")() == 2
    assert set(get("toy.importer", "SAME")) == {str(tree / "toy" / "helper.py")}
    assert sys.modules["assignment.toy.helper"] is sys.modules["submission.toy.helper"]
    assert sys.modules["assignment.toy.helper"].__spec__.name == "submission.toy.helper"
    submission.uninstall()
    assert "assignment.toy.helper" not in sys.modules and "assignment.provided" in sys.modules


def test_a_file_that_fails_at_its_end_has_no_names_either(tree):
    (tree / "toy" / "late.py").write_text("def f():\n    return 1\n\nraise ValueError('late')\n")
    with pytest.raises(SubmissionError, match="late.py, line 4: ValueError: late"):
        get("toy.late", "f")()
