"""Write the students' stubs: `python -m tests.staff.authoring.stubs [--check]`.

`assignment/<unit>/*.py` is generated from `solutions/<unit>/*.py`. A region in a function
becomes `raise NotImplementedError`; at module or class level it goes without a trace. A file of
answers, `solutions/*.toml`, becomes the same file with every answer empty.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.grading.wording import plural

from .markers import Report, find_spans
from .regions import Region, find_regions
from .source import ROOT, Fault, decode, is_junk, relative, units
from .unanswered import without_answers

RAISE = "raise NotImplementedError"


@dataclass(frozen=True)
class Change:
    """One file of `assignment/` that is not what `solutions/` says; None stands for no file."""

    path: str
    old: bytes | None
    new: bytes | None

    def diff(self) -> str:
        def lines(data: bytes | None) -> list[str]:
            return (data or b"").decode("utf-8", "replace").splitlines()

        before = self.path if self.old is not None else "/dev/null"
        after = self.path if self.new is not None else "/dev/null"
        old, new = lines(self.old), lines(self.new)
        text = difflib.unified_diff(old, new, before, after, lineterm="")
        return "\n".join(text) or f"{self.path}: only line ends or an empty file differ"


def make_stub(data: bytes, path: str = "<source>") -> tuple[str, list[Fault]]:
    """The stub of one source file, and the faults of its regions (then the stub is empty)."""
    faults: list[Fault] = []

    def report(line: int, message: str) -> None:
        faults.append(Fault(path, line, message))

    source = _source(data, report)
    regions = find_regions(source, find_spans(source, report), report)
    stub = _without(source, regions)
    if not faults:  # else what is wrong has been said, in better words than the compiler's
        _check_compiles(stub, regions, report)
    return ("", sorted(faults)) if faults else (stub, [])


def plan(root: Path = ROOT) -> tuple[list[Change], list[Fault]]:
    """What has to change in `assignment/`, and every fault that stands in the way."""
    wanted: dict[str, bytes] = {}
    sources, faults = _python_files("solutions", root)
    if not sources:
        faults.append(Fault("solutions", 0, "no Python file in it; expected <unit>/<module>.py"))
    for path, source in sources.items():
        if source.parent.parent != root / "solutions":
            faults.append(Fault(path, 1, "a unit is flat: no Python files in a folder of it"))
            continue
        stub, found = make_stub(source.read_bytes(), path)
        faults += found
        wanted[f"assignment/{path.removeprefix('solutions/')}"] = stub.encode()
    answered, found = _answer_files("solutions", root)
    faults += found
    for path, source in answered.items():
        empty, found = without_answers(source.read_bytes(), path)
        faults += found
        wanted[f"assignment/{path.removeprefix('solutions/')}"] = empty.encode()
    present, in_the_way = _python_files("assignment", root)
    answers, found = _answer_files("assignment", root)
    present, in_the_way = present | answers, in_the_way + found
    changes = []
    for path in sorted({*wanted, *present}):
        old = present[path].read_bytes() if path in present else None
        if old != wanted.get(path):
            changes.append(Change(path, old, wanted.get(path)))
    return changes, sorted(faults + in_the_way)


def apply(changes: list[Change], root: Path = ROOT) -> None:
    """Write, replace and remove the files of `assignment/`."""
    for change in changes:
        target = root / change.path
        if change.new is None:
            target.unlink()
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        # Replaced as a whole: nobody reads half a stub, and a link is not written through.
        draft = target.with_name(f".{target.name}.{os.getpid()}")
        draft.write_bytes(change.new)
        draft.replace(target)


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.staff.authoring.stubs")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
    check = parser.parse_args(arguments).check
    changes, faults = plan(root)
    if faults:
        print(*faults, sep="\n", file=sys.stderr)
        print(f"stubs: {plural(len(faults), 'fault')}, nothing written", file=sys.stderr)
        return 1
    if not check:
        apply(changes, root)
        removed = sum(change.new is None for change in changes)
        print(f"stubs: {len(changes) - removed} written, {removed} removed")
        return 0
    for change in changes:
        print(change.diff())
    if changes:
        files = plural(len(changes), "file")
        print(f"stubs: {files} out of step with solutions/; `make stubs` writes them")
        return 1
    print("stubs: in step with solutions/")
    return 0


def _python_files(tree: str, root: Path) -> tuple[dict[str, Path], list[Fault]]:
    """The Python files of a tree's units by their path from the root, and what only looks so."""
    files: dict[str, Path] = {}
    faults: list[Fault] = []
    for unit in units(root / tree):
        for path in sorted(unit.rglob("*.py")):
            if any(is_junk(part) for part in [path, *path.relative_to(unit).parents]):
                continue
            if path.is_file():
                files[relative(path, root)] = path
            else:
                faults.append(Fault(relative(path, root), 0, "not a regular file"))
    return files, faults


def _answer_files(tree: str, root: Path) -> tuple[dict[str, Path], list[Fault]]:
    """The TOML files beside a tree's units by their path from the root, and what only looks so."""
    files: dict[str, Path] = {}
    faults: list[Fault] = []
    for path in sorted((root / tree).glob("*.toml")):
        if path.is_file() and not is_junk(path):
            files[relative(path, root)] = path
        elif not is_junk(path):
            faults.append(Fault(relative(path, root), 0, "not a regular file"))
    return files, faults


def _source(data: bytes, report: Report) -> str:
    """The text of a source that compiles, or nothing."""
    try:
        source = decode(data)
        compile(source, "source", "exec")
    except UnicodeDecodeError as error:
        report(data[: error.start].count(b"\n") + 1, f"not UTF-8: byte {error.start}")
        return ""
    except (SyntaxError, ValueError) as error:
        report(getattr(error, "lineno", None) or 1, f"does not compile: {error}")
        return ""
    return source


def _check_compiles(stub: str, regions: list[Region], report: Report) -> None:
    try:
        compile(stub, "stub", "exec")
    except SyntaxError as error:
        line = regions[0].span.begin if regions else 1
        report(line, f"the stub would not compile: {error.msg}: {(error.text or '').strip()!r}")


def _without(source: str, regions: list[Region]) -> str:
    by_begin = {region.span.begin: region for region in regions}
    kept: list[str] = []
    lines = source.split("\n")[:-1]
    number = 1
    while number <= len(lines):
        region = by_begin.get(number)
        if region is None:
            kept.append(lines[number - 1])
            number += 1
            continue
        number = region.span.end + 1
        if region.in_function:
            kept.append(region.span.indent + RAISE)
        else:
            number = _close_seam(kept, lines, number)
    return "".join(f"{line}\n" for line in kept)


def _close_seam(kept: list[str], lines: list[str], number: int) -> int:
    """Blank lines where a dropped region was: as many as stood before or behind it, not both."""
    before = after = 0
    while kept and not kept[-1].strip():
        kept.pop()
        before += 1
    while number <= len(lines) and not lines[number - 1].strip():
        number += 1
        after += 1
    at_edge = not kept or number > len(lines) or kept[-1].rstrip().endswith(":")
    kept += [""] * (0 if at_edge else max(before, after))
    return number


if __name__ == "__main__":
    sys.exit(main())
