"""The notebooks as they are in the repository: executed, clean, and about this course's code.

Whether they run is `make notebooks`' to find out; here, nothing in notebooks/*.ipynb is executed.
"""

from __future__ import annotations

import ast
import copy
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SCRIPTS = {path.stem for path in (ROOT / "notebooks").glob("*.py")}  # which lie beside them
OURS = ("submission", "assignment.provided", "tests.grading.notebook", "tests.grading.errors")
PERSONAL = re.compile(
    r"(?<![\w.])/(?:home|Users|root|tmp|private|var|usr|opt|mnt|work|builds)/"  # someone's folders
    r"|\b[A-Za-z]:\\|~/"
    r"|\b[\w.-]+@[\w-]+|\blocalhost\b|\b\w+\.(?:local|lan|internal)\b"  # someone's machine
)

SVG = "image/svg+xml"

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


@pytest.fixture
def execute():
    """notebooks/execute.py, as a module; it needs the extra [notebooks]."""
    for package in ("ipykernel", "nbclient", "nbformat"):
        pytest.importorskip(package, reason="make setup EXTRAS=notebooks")
    spec = importlib.util.spec_from_file_location("execute", ROOT / "notebooks" / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: Path) -> list[dict]:
    """The cells, with each text as one string."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    for cell in cells:
        cell["source"] = "".join(cell["source"])
    return cells


def code(path: Path) -> list[dict]:
    return [cell for cell in read(path) if cell["cell_type"] == "code"]


def texts(path: Path) -> list[str]:
    """Everything that is there to read: sources and the outputs' text."""
    outputs = [output for cell in code(path) for output in cell["outputs"]]
    data = [value for output in outputs for value in output.get("data", {}).items()]
    return [
        *(cell["source"] for cell in read(path)),
        *("".join(output.get("text", [])) for output in outputs),
        *("".join(value) for kind, value in data if kind.startswith("text/") or kind == SVG),
    ]


def test_there_is_a_notebook():
    assert "attention.ipynb" in [path.name for path in NOTEBOOKS]


@every_notebook
def test_was_executed_from_top_to_bottom(path):
    counts = [cell["execution_count"] for cell in code(path)]
    assert counts == list(range(1, len(counts) + 1)), "run `make notebooks`"


@every_notebook
def test_shows_pictures_and_no_error_or_warning(path):
    outputs = [output for cell in code(path) for output in cell["outputs"]]
    assert not [output for output in outputs if output["output_type"] == "error"]
    assert not [output["text"] for output in outputs if output.get("name") == "stderr"]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@every_notebook
def test_drawings_are_named_and_can_be_read_by_programs(path):
    for output in (output for cell in code(path) for output in cell["outputs"]):
        if SVG in output.get("data", {}):
            drawing = ElementTree.fromstring("".join(output["data"][SVG]))
            assert drawing.get("role") == "img" and drawing.get("aria-label")
            assert " at 0x" not in "".join(output["data"]["text/plain"])


@every_notebook
def test_shows_the_reference_at_work(path):
    printed = "\n".join(texts(path)[len(read(path)) :])
    assert "not written yet" not in printed
    assert "skipped: " not in printed, "run `make model`, then `make notebooks`"


@every_notebook
def test_tells_nothing_about_the_machine_it_ran_on(path):
    assert [text for text in texts(path) if PERSONAL.search(text)] == []


def test_what_counts_as_telling():
    for told in ("/home/me/x.py", "see /root/a", r"C:\Users", "me@host", "box.local", "~/x"):
        assert PERSONAL.search(told), told
    for fine in ("broadcast @ copies", "q @ k.mT", "MB/s", "tests/grading", "N / K", "here / 'x'"):
        assert not PERSONAL.search(fine), fine


@every_notebook
def test_imports_only_what_the_course_installs(path):
    known = sys.stdlib_module_names | dependencies() | SCRIPTS
    for module in imports(path):
        ours = any(module == name or module.startswith(f"{name}.") for name in OURS)
        assert ours or module.partition(".")[0] in known, module


def imports(path: Path) -> list[str]:
    nodes = [node for cell in code(path) for node in ast.walk(ast.parse(cell["source"]))]
    plain = [name.name for n in nodes if isinstance(n, ast.Import) for name in n.names]
    return plain + [node.module for node in nodes if isinstance(node, ast.ImportFrom)]


def dependencies() -> set[str]:
    """Packages that everyone has: those that need an extra are imported by provided code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {re.match(r"[\w-]+", line)[0].replace("-", "_") for line in project["dependencies"]}


@every_notebook
def test_is_small(path):
    assert path.stat().st_size < 600_000, "lower the dpi or draw fewer panels"


@every_notebook
def test_is_what_executing_it_leaves(path, execute):
    notebook = execute.nbformat.read(path, as_version=4)
    execute.nbformat.validate(notebook)
    normalised = copy.deepcopy(notebook)
    execute.normalise(normalised)
    # A cell's id is made from its source: another one was edited after it ran.
    assert normalised == notebook, "run `make notebooks`"


def write(path: Path, *sources: str) -> Path:
    nbformat = pytest.importorskip("nbformat")
    cells = [nbformat.v4.new_markdown_cell("# Part 1 of a story")]
    cells += [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def run(*arguments: object) -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "notebooks" / "execute.py", *arguments]
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=120)


def test_execute_writes_the_same_file_every_time(tmp_path, execute):
    path = write(tmp_path / "tale.ipynb", "x = 1", "print(x)\nx + 1", "x = 1")
    assert run(path).returncode == 0
    once = path.read_bytes()
    assert [len(cell["outputs"]) for cell in code(path)] == [0, 2, 0]
    assert run(path).returncode == 0
    assert path.read_bytes() == once
    assert [file.name for file in tmp_path.iterdir()] == ["tale.ipynb"]


def test_check_writes_nothing_and_names_the_cell_that_fails(tmp_path, execute):
    path = write(tmp_path / "tale.ipynb", "print(1)", "1 / 0", "print(3)")
    before = path.read_bytes()
    done = run("--check", path)
    assert done.returncode == 1
    assert "tale.ipynb, code cell 2 (Part 1 of a story): ZeroDivisionError" in done.stderr
    assert path.read_bytes() == before


def test_execute_without_its_packages_says_what_to_do(tmp_path):
    (tmp_path / "nbclient.py").write_text("raise ModuleNotFoundError(name='nbclient')")
    start = f"import sys, runpy; sys.path.insert(0, {str(tmp_path)!r}); runpy.run_path({{!r}})"
    script = start.format(str(ROOT / "notebooks" / "execute.py"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"notebooks need \w+: run `make setup EXTRAS=notebooks`\n", done.stderr)
