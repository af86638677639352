"""Build the students' bundle: `python -m tests.staff.authoring.release [--output FOLDER]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.grading.wording import plural

from . import bundle, leaks, stubs
from .source import ROOT


def build(folder: Path, root: Path = ROOT) -> tuple[Path, list[str]]:
    """The archive and what is wrong with it; with anything wrong there is no archive."""
    archive = folder / f"{bundle.NAME}.zip"
    archive.unlink(missing_ok=True)
    changes, marker_faults = stubs.plan(root)
    faults = [str(fault) for fault in marker_faults]
    faults += [f"{change.path}: not the stub of its source; `make stubs`" for change in changes]
    files, tree_faults = bundle.collect(root)
    faults += tree_faults
    if not faults:
        # Under another name until it is known to be clean: nobody uploads a leaking bundle.
        draft = archive.with_suffix(".draft")
        bundle.write(files, root, draft)
        faults = leaks.find_leaks(draft, root)
        if faults:
            draft.unlink()
        else:
            draft.replace(archive)
    return archive, faults


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.staff.authoring.release")
    parser.add_argument("--output", type=Path, default=root / "build" / "release")
    archive, faults = build(parser.parse_args(arguments).output, root)
    if faults:
        print(*faults, sep="\n", file=sys.stderr)
        print(f"release: {plural(len(faults), 'fault')}, no bundle", file=sys.stderr)
        return 1
    size = archive.stat().st_size / 1e6
    print(f"release: {archive} ({size:.1f} MB), no solution, staff file or bytecode in it")
    print("release: the tests are in it, and with them the formulas that the review is checked by")
    return 0


if __name__ == "__main__":
    sys.exit(main())
