"""Which files a student gets, and the archive they come in."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path

from .source import relative

NAME = "fast-inference-assignment"
FILES = [
    "AGENTS.md",
    "CHANGELOG.md",
    "LICENSE",
    "Makefile",
    "README.md",
    "constraints.txt",
    "pyproject.toml",
    ".gitignore",
]
FOLDERS = ["assignment", "handout", "notebooks", "tests"]
# `tests/staff` and `tests/hidden` stay with the course; the rest is what builds leave behind.
LEFT_OUT = {"tests/staff", "tests/hidden"}
BUILT = {"__pycache__", "build", "dist", "node_modules"}
BUILT_SUFFIXES = {".pyc", ".pyo", ".egg-info"}
# What a student is meant to get. Anything else is a fault rather than left out in silence or
# shipped by accident (pickles, editors' copies, archives).
KINDS = {
    *(".py", ".toml", ".md", ".txt", ".typ", ".bib", ".ipynb", ".json", ".csv", ".jsonl"),
    *(".svg", ".png", ".pdf", ".html", ".css", ".js", ".jinja", ".safetensors"),
}
TIMESTAMP = (1980, 1, 1, 0, 0, 0)
REGULAR_FILE = 0o100644


def collect(root: Path) -> tuple[list[Path], list[str]]:
    """The bundle's files, sorted by name, and what is wrong with the tree they come from."""
    faults = [f"{name}: missing" for name in FILES if not (root / name).is_file()]
    faults += [f"{name}/: missing" for name in FOLDERS if not (root / name).is_dir()]
    files = [root / name for name in FILES if (root / name).is_file()]
    for name in FOLDERS:
        files += _walk(root / name, root)
    for path in [*files, *(root / name for name in FOLDERS)]:
        if path.is_symlink():
            faults.append(f"{relative(path, root)}: a link; the bundle takes real files only")
        elif path.exists() and not path.is_file() and not path.is_dir():
            faults.append(f"{relative(path, root)}: neither a file nor a folder; remove it")
        elif path.is_file() and path.suffix not in KINDS and path.name not in FILES:
            faults.append(
                f"{relative(path, root)}: kind {path.suffix or 'without suffix'} is not in "
                "KINDS of tests/staff/authoring/bundle.py; remove the file or add its kind"
            )
    return sorted(files, key=lambda path: relative(path, root)), faults


def _walk(folder: Path, root: Path) -> Iterator[Path]:
    if folder.is_symlink() or not folder.is_dir():
        return
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name in BUILT or path.suffix in BUILT_SUFFIXES:
            continue
        if relative(path, root) in LEFT_OUT:
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path, root)
        else:
            yield path


def write(files: list[Path], root: Path, archive: Path) -> None:
    """The same files give the same bytes: sorted, one time stamp and mode, not compressed.

    Compressed data would depend on the zlib at hand.
    """
    archive.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as out:
        for path in files:
            entry = zipfile.ZipInfo(f"{NAME}/{relative(path, root)}", TIMESTAMP)
            entry.external_attr = REGULAR_FILE << 16
            entry.create_system = 3  # Unix, wherever it is written
            out.writestr(entry, path.read_bytes())
