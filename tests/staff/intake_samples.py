"""A course of three units and submissions made by hand, for the tests of intake."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.grading.course import Course
from tests.grading.intake import Staged, stage
from tests.grading.intake.choose import choose
from tests.grading.intake.entries import FILE, FOLDER, Entry
from tests.grading.intake.notes import in_order
from tests.staff.samples import small_course

PROBLEM = """
[problems."{}"]
title = "A problem"
track = "core"
points = 1
handout = "A section"
groups = {{ all = 1 }}
"""
UNITS = "".join(f'[units.{unit}]\ntitle = "A unit"\n' for unit in ("attention", "serving", "extra"))
# serving and extra both have a file named cache.py
PROBLEMS = ("attention.kv_cache", "attention.generate", "serving.engine", "serving.cache",
            "extra.cache")  # fmt: skip
COURSE = 'title = "A course"\n' + UNITS + "".join(PROBLEM.format(name) for name in PROBLEMS)
COMPLETE = {name.replace(".", "/") + ".py": f"# {name}\n".encode() for name in PROBLEMS}

PACK = {
    "tar": bytes, "tar.gz": gzip.compress, "tar.bz2": bz2.compress, "tar.xz": lzma.compress,
}  # fmt: skip


def course_of_three(folder: Path) -> Course:
    return small_course(folder, COURSE)


def chosen(course: Course, *names: str, kinds: Mapping[str, str] | None = None):
    """The choice from entries of these names (a folder's ends with /), with `kinds` of others;
    its files as target → name; its notes.
    """
    entries = [Entry(name, FOLDER if name.endswith("/") else FILE) for name in names]
    entries += [Entry(name, kind) for name, kind in (kinds or {}).items()]
    choice = choose(entries, course)
    return choice, {target: e.name for target, e in choice.files.items()}, in_order(choice.notes)


def inside(folder: Path) -> dict[str, bytes]:
    """Every file below `folder`: path → bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() or path.is_symlink()
    }


class Desk:
    """Hands things in, in a folder of its own, and checks that nothing else there changes."""

    def __init__(self, folder: Path):
        self.folder, self.tree, self.course = folder, folder / "tree", course_of_three(folder)
        (folder / "in").mkdir()

    def file(self, name: str, data: bytes) -> Path:
        path = self.folder / "in" / name
        path.write_bytes(data)
        return path

    def files(self, name: str, files: Mapping[str, bytes]) -> Path:
        top = self.folder / "in" / name
        for path, data in files.items():
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_bytes(data)
        return top

    def hand_in(self, submission: Path) -> Staged:
        before = {p: p.lstat() for p in self.folder.rglob("*") if self.tree not in p.parents}
        self.tree.mkdir()
        staged = stage(submission, self.tree, self.course)
        after = {p for p in self.folder.rglob("*") if self.tree not in p.parents} - {self.tree}
        assert after == before.keys()
        assert all(p.lstat().st_mtime_ns == before[p].st_mtime_ns for p in after - {self.folder})
        assert staged.tree == self.tree
        return staged

    def zip(self, files: Mapping[str, bytes], name: str = "hw1.zip") -> Staged:
        return self.hand_in(self.file(name, zipped(files)))

    @property
    def taken(self) -> dict[str, bytes]:
        return inside(self.tree)


def zipped(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def tarred(files: Mapping[str, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()
