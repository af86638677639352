"""The plugin: which file is which problem, where inputs come from, what a run records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.grading.course import load_course
from tests.grading.draw import Draw, official_seed, test_seed
from tests.grading.plugin import TESTS, misplaced, problem_of
from tests.grading.reference_costs import FILE
from tests.grading.submission import REPOSITORY

GRADED = ["tests/attention/test_kv_cache.py", "-k", "positions"]


def pytest_run(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "strict_config=false",
    ]
    env = {k: v for k, v in os.environ.items() if k != "GRADING_SECRET"} | environment
    return subprocess.run(
        [*command, *arguments], cwd=REPOSITORY, env=env, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("attention/test_kv_cache.py", "attention.kv_cache"),
        ("hidden/attention/test_kv_cache.py", "attention.kv_cache"),
        ("staff/test_plugin.py", None),
        ("grading/plugin.py", None),
        ("conftest.py", None),
        ("attention/oracles.py", None),
        ("attention/__init__.py", None),
    ],
)
def test_a_problem_is_its_test_file(file, problem):
    assert problem_of(TESTS / file) == problem
    assert problem_of(Path("/elsewhere") / file) is None


def test_inputs_are_the_same_for_a_seed_and_a_test_and_differ_otherwise():
    def numbers(seed, test):
        return Draw(test_seed(seed, test)).normal(8)

    assert torch.equal(numbers(1, "a"), numbers(1, "a"))
    assert not torch.equal(numbers(1, "a"), numbers(1, "b"))
    assert not torch.equal(numbers(1, "a"), numbers(2, "a"))


def test_official_seeds_depend_on_secret_and_problem_only():
    assert official_seed("autumn", "x.y") == official_seed("autumn", "x.y")
    others = {official_seed("spring", "x.y"), official_seed("autumn", "x.z")}
    assert len(others | {official_seed("autumn", "x.y")}) == 3


def test_draws_are_what_they_say():
    draw = Draw(3)
    assert draw.normal(2, 3, dtype=torch.bfloat16).dtype == torch.bfloat16
    uniform = draw.uniform(1000)
    assert uniform.min() >= 0 and uniform.max() < 1
    assert set(draw.integers(2, 5, 200).tolist()) == {2, 3, 4}
    assert sorted(draw.permutation(9).tolist()) == list(range(9))


def test_the_header_says_what_is_graded_and_how_to_repeat_it():
    done = pytest_run("--seed", "7", "--submission", "assignment", *GRADED)
    assert "submission: assignment, seed: 7" in done.stdout
    assert done.returncode == 1 and "NotImplementedError" in done.stdout
    assert "handout, section" in done.stdout and "--seed 7" in done.stdout


def test_a_secret_makes_the_seed_unprinted():
    done = pytest_run("--submission", "solutions", *GRADED, GRADING_SECRET="hush")
    assert done.returncode == 0 and "the term's" in done.stdout and "hush" not in done.stdout


@pytest.mark.parametrize(
    ("group", "cost", "complaint"),
    [
        (None, None, "needs one marker"),
        ("append", "bytes", "needs one marker"),
        ("nonsense", None, "no 'nonsense'"),
        (None, "nonsense", "no 'nonsense'"),
        ("append", None, ""),
        (None, "bytes", ""),
    ],
)
def test_a_graded_test_has_one_place_in_the_course(group, cost, complaint):
    problem = load_course(TESTS / "course.toml").problems["attention.kv_cache"]
    fault = misplaced(problem, group, cost)
    assert complaint in fault and bool(fault) == bool(complaint)


def test_the_references_costs_on_file_are_current():
    code = "import json; from tests.grading.reference_costs import *; print(json.dumps(measure()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True
    )
    assert json.loads(FILE.read_text()) == pytest.approx(
        json.loads(done.stdout.splitlines()[-1])
    ), "out of date: run `python -m tests.grading.reference_costs`"
