"""The commands and the pins: Makefile, pyproject.toml, constraints.txt."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
STAFF_TARGETS = ["stubs", "mutants", "new-problem", "check-problem", "release", "readme", "lint"]


# ---- the pins


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_constraints_are_names_and_versions_and_nothing_else():
    for pin in pins():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", pin)
    names = [canonicalize_name(pin.split("==")[0]) for pin in pins()]
    assert len(names) == len(set(names))
    assert "://" not in (ROOT / "constraints.txt").read_text()


def test_every_dependency_is_pinned_within_its_range():
    pinned = {canonicalize_name(name): v for name, v in (pin.split("==") for pin in pins())}
    extras = PROJECT["optional-dependencies"].values()
    for text in [*PROJECT["dependencies"], *(text for extra in extras for text in extra)]:
        requirement = Requirement(text)
        version = pinned[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version), f"{text} is pinned to {version}"


# ---- the Makefile


def make(folder, *arguments):
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    command = ["make", "--no-print-directory", *arguments]
    given = set(re.findall(r"\$\(([A-Z]+)\)", (ROOT / "Makefile").read_text()))  # our ARGS, say
    own = [k for k in os.environ if not k.startswith(("MAKE", "MFLAGS")) and k not in given]
    environ = {k: os.environ[k] for k in own}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)


def targets():
    return re.findall(r"^\.PHONY: ([a-z-]+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_help_is_the_default_and_lists_every_target():
    text = make(ROOT).stdout
    assert re.findall(r"^  make ([a-z-]+)  ", text, re.MULTILINE) == targets()
    assert all(len(line) < 120 for line in text.splitlines())


def test_every_target_is_declared():
    rules = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert rules == targets()


@pytest.fixture
def bundle(tmp_path):
    """What make sees of a student's bundle."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    return tmp_path


@pytest.mark.parametrize("target", STAFF_TARGETS)
def test_a_student_bundle_says_what_it_lacks(target, bundle):
    answer = make(bundle, target)
    assert answer.returncode != 0
    assert answer.stderr.startswith(f"make {target}: this student bundle has no ")


def test_a_student_bundle_does_not_list_staff_targets(bundle):
    text = make(bundle, "help").stdout
    assert "make grade" in text
    assert not any(f"make {target} " in text for target in STAFF_TARGETS)


@pytest.mark.parametrize("target", ["new-problem", "check-problem"])
def test_a_problem_is_named_by_the_second_word(target):
    dry = ["--dry-run", target]
    for arguments in ([*dry, "unit.name"], [*dry, "PROBLEM=unit.name"]):
        assert f'{target.replace("-", "_")} "unit.name"' in make(ROOT, *arguments).stdout
    for missing in ([target], [target, "PROBLEM=name"]):
        assert f"name the problem: make {target} unit.name" in make(ROOT, *missing).stderr


def test_grade_passes_its_variables_on():
    arguments = ["SUBMISSION=a b", "UNIT=attention", "PROBLEM=attention.kv_cache", "SEED=7"]
    text = make(ROOT, "--dry-run", "grade", *arguments).stdout
    for option in ('--submission "a b"', "--unit ", "--problem ", '--seed "7"'):
        assert option in text


def test_the_demo_is_smollm2_unless_a_model_is_named():
    assert make(ROOT, "--dry-run", "demo").stdout.rstrip().endswith("notebooks/demo.py")
    text = make(ROOT, "--dry-run", "demo", "MODEL=toy", "ARGS=--seed 7").stdout
    assert '--model "toy" --seed 7' in text


def test_bench_times_what_is_named():
    for named, benches in [((), "speed serving"), (("BENCH=speculative",), "speculative")]:
        text = make(ROOT, "--dry-run", "bench", *named).stdout
        assert f"for bench in {benches}; do" in text
    for bench in ("speed", "serving", "speculative", "compression"):
        assert (ROOT / f"notebooks/smollm2_{bench}.py").is_file()
