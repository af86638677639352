"""The students' bundle: what is in it, that it is the same every time, that nothing leaks."""

import html
import importlib.util
import io
import json
import os
import py_compile
import socket
import subprocess
import sys
import zipfile

import pytest

from tests.staff.authoring import bundle, leaks, markers, release, stubs
from tests.staff.authoring.source import ROOT, decode, relative

SOLUTION = '''
def attend(q, k, v):
    """Softmax attention."""
    # BEGIN SOLUTION
    scores = einsum(q, k, "n t h, n s h -> n t s")
    scores = scores / math.sqrt(q.shape[-1])

    return scores.softmax(dim=-1) @ v
    # END SOLUTION


def keep(lengths):
    return lengths.clone().to(torch.int64)


def copy(lengths):
    # BEGIN SOLUTION
    return torch.stack([lengths, lengths])[0]
    # END SOLUTION


def small(x):
    # BEGIN SOLUTION
    return x + 1
    # END SOLUTION


def shared(lengths):
    # BEGIN SOLUTION
    return lengths.clone().to(torch.int64)
    # END SOLUTION
'''


def write(root, files):
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def root(tmp_path):
    root = tmp_path / "repo"
    write(root, {name: f"{name}\n" for name in bundle.FILES})
    write(
        root,
        {
            "solutions/attention/attend.py": SOLUTION,
            "assignment/__init__.py": "",
            "assignment/provided/model.py": "X = 1\n",
            "assignment/provided/weights.safetensors": b"\xff\xfe\x00",
            "assignment/attention/__pycache__/attend.cpython-311.pyc": b"x",
            "tests/course.toml": "title = 1\n",
            "tests/attention/test_attend.py": "def test():\n    pass\n",
            "tests/staff/test_secret.py": "X = 1\n",
            "tests/staff/deep/more.py": "X = 1\n",
            "tests/hidden/test_hidden.py": "X = 1\n",
            "handout/attention.typ": "= Attention\n",
            "handout/build/attention.pdf": "pdf",
            "notebooks/attention.ipynb": "{}",
            "notebooks/.ipynb_checkpoints/attention.ipynb": "{}",
            "notebooks/.secret": "x",
            ".git/config": "x",
            "build/x.txt": "x",
            "notes.md": "x",
        },
    )
    stubs.main([], root)
    return root


def built(root):
    archive, faults = release.build(root / "build/release", root)
    assert faults == []
    return archive


def faults_with(root, files, sync=False):
    write(root, files)
    if sync:
        stubs.main([], root)
    archive, faults = release.build(root / "build/release", root)
    assert bool(faults) != archive.exists()
    assert list(archive.parent.glob("*")) == [archive] * archive.exists()
    return faults


def test_bundle_holds_exactly_the_students_files(root):
    with zipfile.ZipFile(built(root)) as archive:
        names = archive.namelist()
        assert names == sorted(names)
        assert {name.split("/")[0] for name in names} == {"fast-inference-assignment"}
        assert {name.split("/", 1)[1] for name in names} == {
            *bundle.FILES,
            "assignment/__init__.py",
            "assignment/attention/attend.py",
            "assignment/provided/model.py",
            "assignment/provided/weights.safetensors",
            "handout/attention.typ",
            "notebooks/attention.ipynb",
            "tests/attention/test_attend.py",
            "tests/course.toml",
        }
        stub = archive.read("fast-inference-assignment/assignment/attention/attend.py").decode()
        assert "NotImplementedError" in stub and "einsum" not in stub


def test_bundle_is_the_same_every_time(root):
    first = built(root).read_bytes()
    (root / "README.md").touch()
    (root / "LICENSE").chmod(0o755)
    assert built(root).read_bytes() == first


def test_command_says_what_it_built(root, capsys):
    assert release.main(["--output", str(root / "out")], root) == 0
    assert "fast-inference-assignment.zip" in capsys.readouterr().out
    assert (root / "out/fast-inference-assignment.zip").exists()


def test_command_refuses_on_drift(root, capsys):
    write(root, {"assignment/attention/attend.py": SOLUTION})
    assert release.main([], root) == 1
    assert "assignment/attention/attend.py: not the stub" in capsys.readouterr().err
    assert not (root / "build/release/fast-inference-assignment.zip").exists()


def test_marker_fault_refuses(root):
    [fault] = faults_with(root, {"solutions/attention/attend.py": "# END SOLUTION\n"})[:1]
    assert fault.startswith("solutions/attention/attend.py:1: ")


def test_missing_file_and_folder_refuse(root):
    (root / "LICENSE").unlink()
    (root / "handout/attention.typ").rename(root / "x.typ")
    (root / "handout/build/attention.pdf").unlink()
    (root / "handout/build").rmdir()
    (root / "handout").rmdir()
    assert faults_with(root, {}) == ["LICENSE: missing", "handout/: missing"]


@pytest.mark.parametrize("name", ["notebooks/x.pkl", "tests/x.zip", "handout/x.orig", "tests/x"])
def test_unknown_kind_of_file_refuses(root, name):
    [fault] = faults_with(root, {name: "x"})
    assert fault.startswith(f"{name}: kind")


@pytest.mark.parametrize("target", ["solutions", "solutions/attention/attend.py", "/etc"])
def test_links_are_refused_not_followed(root, target):
    (root / "notebooks/link.py").symlink_to(root / target)
    [fault] = faults_with(root, {})
    assert fault.startswith("notebooks/link.py: a link")


def test_linked_folder_is_refused(root):
    (root / "notebooks").rename(root / "elsewhere")
    (root / "notebooks").symlink_to(root / "elsewhere")
    assert faults_with(root, {})[0].startswith("notebooks: a link")


@pytest.mark.parametrize("name", ["notebooks/odd.md", "handout/odd", "tests/odd.py"])
def test_what_is_neither_file_nor_folder_is_refused_not_read(root, name):
    os.mkfifo(root / name)  # reading it would never end
    assert faults_with(root, {}) == [f"{name}: neither a file nor a folder; remove it"]


def test_a_socket_is_refused(root, monkeypatch):
    monkeypatch.chdir(root)  # a socket's path has to be short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("notebooks/odd.md")
    assert faults_with(root, {}) == ["notebooks/odd.md: neither a file nor a folder; remove it"]


@pytest.mark.parametrize("folder", ["solutions", "assignment"])
def test_a_pipe_among_the_sources_is_refused_not_read(root, folder):
    os.mkfifo(root / folder / "attention/odd.py")
    assert faults_with(root, {})[0] == f"{folder}/attention/odd.py: not a regular file"


# --- leaks -------------------------------------------------------------------------------------

WHOLE = [
    'scores = einsum(q, k, "n t h, n s h -> n t s")',
    "scores = scores / math.sqrt(q.shape[-1])",
    "return scores.softmax(dim=-1) @ v",
]


def text(lines, indent="        ", between="\n\n"):
    return "x = 1\n" + between.join(indent + line for line in lines) + "\ny = 1\n"


def escaped(line):
    return html.escape(line).replace(" ", "&nbsp;")


def coloured(line):
    return html.escape(line).replace("scores", "<span class='n'>scores</span>")


@pytest.mark.parametrize(
    "files",
    [
        {"tests/attention/test_attend.py": text(WHOLE)},
        {"tests/attention/test_attend.py": text(WHOLE, indent="", between="\r\n")},
        {"handout/attention.typ": text(WHOLE)},
        {"README.md": text(WHOLE)},
        {"assignment/provided/model.py": text(WHOLE)},
        {
            "notebooks/attention.ipynb": json.dumps(
                {"cells": [{"source": [f"{x}\n" for x in WHOLE]}]}
            )
        },
        {"notebooks/attention.ipynb": json.dumps({"cells": [{"source": "\n".join(WHOLE)}]})},
        {"tests/runs.jsonl": '{"a": 1}\n\nno JSON\n' + json.dumps({"answer": "\n".join(WHOLE)})},
        {"tests/attention/test_attend.py": text(WHOLE, indent="    # ")},
        {"README.md": text(WHOLE, indent="> ", between="\n>\n")},
        {"handout/attention.typ": text(WHOLE, indent="  // ")},
        {"README.md": text(WHOLE, indent="* `", between="`\n")},
        {"tests/attention/test_attend.py": text(map(repr, WHOLE), between=",\n")},
        {"README.md": text(WHOLE).encode("utf-8-sig")},
        {"README.md": text(WHOLE).encode("utf-16")},
        {"README.md": ("# größer\n" + text(WHOLE)).encode("utf-16-be")},
        {"README.md": text(WHOLE).encode("utf-32")},
        {"README.md": b"\xe9\n" + text(WHOLE).encode()},  # Latin-1
        {"tests/runs.json": json.dumps({"answer": "\n".join(WHOLE)}).encode("utf-16")},
        {"README.md": text(map(escaped, WHOLE))},
        {"notebooks/attention.ipynb": json.dumps({"html": [f"{escaped(x)}\n" for x in WHOLE]})},
        {"handout/page.html": "<pre>" + text(map(coloured, WHOLE)) + "</pre>"},
        {"handout/page.html": "".join(f"<p>{escaped(x)}</p>" for x in WHOLE)},
        {"handout/plot.svg": "".join(f"<text x='1'>{escaped(x)}</text>" for x in WHOLE)},
    ],
)
def test_solution_text_is_a_leak(root, files):
    [fault] = faults_with(root, files)
    [name] = files
    assert fault == (
        f"fast-inference-assignment/{name}: the text of solutions/attention/attend.py:4"
    )


def test_a_whole_small_region_is_a_leak(root):
    [fault] = faults_with(root, {"README.md": "return torch.stack([lengths, lengths])[0]"})
    assert fault.endswith("the text of solutions/attention/attend.py:17")


@pytest.mark.parametrize(
    "lines",
    [
        WHOLE[:2],  # two equal lines of an oracle are no leak
        [WHOLE[0], "check(scores)", *WHOLE[1:]],  # nor lines with others between them
        ["return x + 1"],  # too short to tell
        ["return lengths.clone().to(torch.int64)"],  # a student sees it elsewhere
    ],
)
def test_what_tells_nothing_is_no_leak(root, lines):
    assert faults_with(root, {"tests/attention/test_attend.py": text(lines)}) == []


def test_bytecode_is_found_by_name_and_by_content(root, tmp_path):
    source = tmp_path / "x.py"
    source.write_text("X = 1\n")
    compiled = (tmp_path / "x.pyc", py_compile.compile(str(source), str(tmp_path / "x.pyc")))[0]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as inner:
        inner.write(compiled, "lib/x.bin")
    archive = tmp_path / "bundle.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr("top/a.pyc", b"")
        out.writestr("top/weights.safetensors", compiled.read_bytes())
        out.writestr("top/data.npz", packed.getvalue())
        out.writestr("top/data.txt", b"\x1f\x8bxx")
        out.writestr("top/lib.txt", b"\x7fELFxx")
        out.writestr("top/fine.txt", b"fine")
    assert compiled.read_bytes()[:4] == importlib.util.MAGIC_NUMBER
    assert leaks.find_leaks(archive, root) == [
        "top/a.pyc: compiled code",
        "top/weights.safetensors: compiled code",
        "top/data.npz/lib/x.bin: compiled code",
        "top/data.txt: a packed file, which cannot be searched",
        "top/lib.txt: compiled code",
    ]


@pytest.mark.parametrize("folder", ["solutions", "tests/staff", "tests/hidden", "__pycache__"])
def test_forbidden_paths_are_found(root, tmp_path, folder):
    archive = tmp_path / "bundle.zip"
    with zipfile.ZipFile(archive, "w") as out:
        out.writestr(f"top/{folder}/x.txt", "x")
    [leak] = leaks.find_leaks(archive, root)
    assert leak.startswith(f"top/{folder}/x.txt: nothing of {folder.split('/')[-1]}")


def test_every_bytecode_magic_of_this_python_is_in_the_range():
    assert int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little") in leaks.BYTECODE_MAGIC


# --- the repository itself ---------------------------------------------------------------------


def test_the_repository_builds_a_clean_bundle_that_grades_itself(tmp_path):
    archive, faults = release.build(tmp_path)
    assert faults == []
    with zipfile.ZipFile(archive) as bundled:
        bundled.extractall(tmp_path)
    student = tmp_path / bundle.NAME
    assert not (student / "solutions").exists() and not (student / "tests/staff").exists()
    command = [sys.executable, "-m", "tests.grading", "--problem", "attention.kv_cache"]
    done = subprocess.run(command, cwd=student, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1].startswith("score: 0 / 4"), done.stdout + done.stderr


def test_every_region_of_some_length_in_the_repository_would_be_noticed():
    known = {secret.where for secret in leaks.find_secrets(ROOT)}
    for path in sorted((ROOT / "solutions").glob("*/*.py")):
        text = decode(path.read_bytes())
        for span in markers.find_spans(text, pytest.fail):
            if span.end - span.begin > 4:
                assert f"{relative(path, ROOT)}:{span.begin}" in known
