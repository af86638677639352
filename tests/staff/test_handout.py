"""The handout: it builds to the committed PDF, has a box per problem, and states right numbers."""

from __future__ import annotations

import ast
import importlib.util
import json
import math
import re
import sys
from functools import cache

import pytest
import torch
import torch.nn.functional as F

from assignment.provided.lab.counter import CostCounter
from tests.grading import closeness, course, tiers
from tests.grading.wording import rounded
from tests.staff.authoring.handout import has_box, headings, whole
from tests.staff.authoring.source import ROOT

typst = pytest.importorskip(
    "typst", reason="the handout needs the extra [docs]: make setup EXTRAS=docs"
)

FOLDER = ROOT / "handout"
COURSE = course.load_course(ROOT / "tests/course.toml")


def load_build():
    spec = importlib.util.spec_from_file_location("handout_build", FOLDER / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build = load_build()


@cache
def pdf() -> bytes:
    return build.compile_pages()


@cache
def query(label: str) -> list:
    """The values of all metadata with this label."""
    found = typst.query(
        build.SOURCE,
        f"<{label}>",
        field="value",
        root=ROOT,
        ignore_system_fonts=True,
        sys_inputs=build.sys_inputs(),
    )
    return json.loads(found)


def text_of(unit: str) -> str:
    """The chapter with all that it includes."""
    return whole(FOLDER / f"{unit}.typ", ROOT)


# --- the file ------------------------------------------------------------------------------------


def test_the_same_sources_give_the_same_bytes():
    assert pdf().startswith(b"%PDF") and pdf() == build.compile_pages()
    assert len(pdf()) < 3_000_000
    assert b"CreationDate" not in pdf()


def test_committed_pdf_is_current():
    assert build.PDF.read_bytes() == pdf(), build.check()


def test_check_names_what_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(build, "PDF", tmp_path / "handout.pdf")
    assert build.main(["--check"]) == 1
    assert "handout.pdf is missing: run `make handout`" in capsys.readouterr().err
    build.PDF.write_bytes(b"old")
    assert build.main(["--check"]) == 1
    printed = capsys.readouterr()
    assert "is not what its sources give" in printed.err
    assert (printed.out + printed.err).count("\n") == 1


def test_missing_typst_is_one_clear_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typst", None)
    assert build.main([]) == 1
    printed = capsys.readouterr().err
    assert "[docs]" in printed and printed.count("\n") == 1


# --- the problems --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COURSE.problems)
def test_problem_has_its_section_and_box(name):
    problem = COURSE.problems[name]
    text = text_of(problem.unit)
    assert problem.handout in headings(text), f"handout/{problem.unit}.typ: no such section"
    assert has_box(text, name), f'handout/{problem.unit}.typ: no #problem("{name}", …)'


def test_boxes_say_what_each_group_and_cost_is():
    boxes = {box["problem"]: box for box in query("problem")}
    assert set(boxes) == set(COURSE.problems)
    for name, problem in COURSE.problems.items():
        assert set(boxes[name]["groups"]) == set(problem.groups), name
        assert set(boxes[name]["costs"]) == set(problem.costs), name
        assert boxes[name]["gate"] == problem.gate, name


def test_boxes_state_the_points_of_each_part():
    for box in query("problem"):
        problem = COURSE.problems[box["problem"]]
        parts = {group: problem.group_points(group) for group in problem.groups}
        parts |= {cost: problem.cost_points(cost) for cost in problem.costs}
        expected = dict(zip(parts, map(float, rounded(list(parts.values()))), strict=True))
        assert box["worth"] == pytest.approx(expected)


def test_boxes_show_the_signatures_of_the_stubs():
    for box in query("problem"):
        if not box["interface"]:  # what is handed in is no module
            assert COURSE.problems[box["problem"]].file
            continue
        path = ROOT / "solutions" / (box["problem"].replace(".", "/") + ".py")
        real = dict(signatures(path.read_text(encoding="utf-8")))
        for name, signature in signatures(closed(box["interface"])):
            assert signature == real.get(name), f"{box['problem']}: {name}"


def closed(interface: str) -> str:
    """An interface as Python: every `def f(…)` gets a body, every class one to be safe."""
    text = re.sub(r"#.*", "", interface)
    text = re.sub(r"(def \w+\([^()]*(?:\([^()]*\)[^()]*)*\))", r"\1: ...", text)
    return re.sub(r"^(class .*:)\s*$", r"\1\n    '''.'''", text, flags=re.MULTILINE)


def signatures(text: str):
    """(name, arguments without their types) of every function and method."""
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            methods = (item for item in node.body if isinstance(item, ast.FunctionDef))
            yield from ((f"{node.name}.{item.name}", arguments(item)) for item in methods)
        elif isinstance(node, ast.FunctionDef):
            yield node.name, arguments(node)


def arguments(function: ast.FunctionDef) -> str:
    for argument in ast.walk(function.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    return ast.unparse(function.args)


def test_limits_are_the_graders():
    [rules] = query("rules")
    assert rules["most-for-costs"] == float(course.MOST_FOR_COSTS)
    assert rules["most-for-submission"] == float(course.MOST_FOR_SUBMISSION_COUNTED)
    assert rules["tiers"] == [float(limit) for limit in tiers.LIMITS.values()]
    assert rules["lowest"] == float(tiers.LOWEST)
    assert rules["slack"] == closeness.SLACK


# --- the numbers ---------------------------------------------------------------------------------


def test_no_stated_number_is_typed():
    """A chapter that types a result would keep it when the formula or the model changes."""
    [facts] = query("facts")
    printed = {written for value in numbers_in(facts) for written in ways_to_write(value)}
    given = ("numbers.typ", "formulas.typ", "published.typ")
    for path in (file for file in FOLDER.rglob("*.typ") if file.name not in given):
        text = path.read_text(encoding="utf-8")
        found = set(re.findall(r"\d[\d,]*(?:\.\d+)?", text))
        assert not found & printed, f"{path.name}: take it from formulas.typ"


def numbers_in(value):
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from numbers_in(item)
    elif not isinstance(value, bool | None):
        yield value


def ways_to_write(value):
    if value >= 10_000:
        yield from (f"{value:.0f}", f"{value:,.0f}")
    elif value != int(value):
        yield from (f"{value:.{digits}f}" for digits in (2, 3, 4))


# --- what the text says of torch -----------------------------------------------------------------


def test_float_formats_are_as_described():
    assert torch.tensor([256.0, 257.0, 258.0, 259.0]).bfloat16().tolist() == [256, 256, 258, 260]
    near_4096 = torch.tensor([4096.0, 4096 + 32.0]).bfloat16()
    assert near_4096.tolist() == [4096, 4128]
    assert torch.tensor(4096 + 15.0).bfloat16() == 4096
    assert torch.tensor(-103.0).exp() > 0 and torch.tensor(-104.0).exp() == 0
    assert torch.full((1, 3), -math.inf).softmax(dim=-1).isnan().all()


def test_sdpa_aligns_its_causal_mask_to_the_start():
    q, k, v = torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 5, 4), torch.eye(5)[None, None]
    visible = F.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0] > 0
    assert visible.int().tolist() == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0]]


def test_broadcasting_copies_and_grouping_does_not():
    grouped, k = torch.ones(2, 2, 5, 1, 16), torch.ones(2, 2, 300, 16)

    def moved(fn):
        with CostCounter() as counter:
            fn()
        return counter.cost.bytes

    once = moved(lambda: torch.einsum("bkgth,bksh->bkgts", grouped, k))
    rows = moved(lambda: grouped.flatten(2, 3) @ k.mT)
    copied = moved(lambda: grouped @ k.unsqueeze(2).mT)
    assert once < 1.2 * 4 * (k.numel() + grouped.numel() + 2 * 2 * 5 * 300)
    assert rows <= once and copied > 4 * once


def test_a_float32_sum_of_many_probabilities_may_end_below_one():
    generator = torch.Generator().manual_seed(0)
    probs = torch.randn(50, 49_152, generator=generator).softmax(dim=-1)
    assert (probs.cumsum(dim=-1)[:, -1] < 1 - 2**-24).any()
