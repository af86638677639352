"""The handout: handout/main.typ, compiled to handout/handout.pdf.

    make handout                      write it
    make handout ARGS=--check         fail if the committed PDF is not what the sources give
    make handout ARGS="--png build/handout"    pages as pictures, to look at

The same sources give the same bytes: no date, typst's own fonts only, no packages.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "handout/main.typ"
PDF = ROOT / "handout/handout.pdf"


class HandoutError(Exception):
    """The handout cannot be built; the message says why, in a line or with typst's own report."""


def compile_pages(output: Path | None = None) -> bytes:
    """The PDF's bytes; with `output` (page-{p}.png), pictures of the pages instead.

    Raises:
        HandoutError: typst is missing, or the sources are wrong. Warnings count as errors.
    """
    typst = _typst()
    options = {
        "root": ROOT,
        "ignore_system_fonts": True,
        "sys_inputs": sys_inputs(),
    }
    options |= {"format": "png", "output": output, "ppi": 110} if output else {"format": "pdf"}
    try:
        pages, warnings = typst.compile_with_warnings(SOURCE, **options)
    except typst.TypstError as error:
        raise HandoutError(error.diagnostic or str(error)) from None
    if warnings:
        raise HandoutError("\n".join(warning.diagnostic for warning in warnings))
    return pages


def chapters() -> list[str]:
    """The units of tests/course.toml that have a file here, in the course's order."""
    course = tomllib.loads((ROOT / "tests/course.toml").read_text(encoding="utf-8"))
    return [unit for unit in course["units"] if (SOURCE.parent / f"{unit}.typ").is_file()]


def sys_inputs() -> dict[str, str]:
    """What main.typ reads from sys.inputs: typst cannot see which files there are."""
    return {"chapters": ",".join(chapters())}


def _typst():
    try:
        import typst
    except ImportError:
        raise HandoutError(
            "typst is not installed: run `make handout`, which installs the extra [docs]"
        ) from None
    return typst


def check() -> str:
    """What is wrong with the committed PDF, in a line; empty if nothing is."""
    if not PDF.is_file():
        return f"{_shown(PDF)} is missing: run `make handout`"
    if PDF.read_bytes() != compile_pages():
        return (
            f"{_shown(PDF)} is not what its sources give with typst {_typst().__version__}: "
            "run `make handout` and commit it"
        )
    return ""


def _shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="handout/build.py", description="Build the handout.")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="only say whether the PDF is current")
    what.add_argument("--png", type=Path, metavar="FOLDER", help="write the pages as pictures")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            if fault := check():
                raise HandoutError(fault)
            print(f"{_shown(PDF)} is current")
            return 0
        if options.png:
            options.png.mkdir(parents=True, exist_ok=True)
            compile_pages(options.png / "page-{0p}.png")
            print(f"pages are in {options.png}")
            return 0
        PDF.write_bytes(compile_pages())
    except HandoutError as error:
        print(f"handout: {error}", file=sys.stderr)
        return 1
    print(f"{_shown(PDF)}: {PDF.stat().st_size / 1000:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
