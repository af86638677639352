"""A handout chapter as text: section titles and problem boxes, which `tests/course.toml` names."""

from __future__ import annotations

import re
from pathlib import Path

from .source import read

HEADING = re.compile(r"^=+[ \t]+(.*?)[ \t]*(?:<[^<>]*>)?[ \t]*$", re.MULTILINE)
INCLUDE = re.compile(r'^#include[ \t]+"([^"]+)"[ \t]*$', re.MULTILINE)


def whole(file: Path, root: Path) -> str:
    """The text of a typst file, with that of every `#include "…"` on a line of its own in it.

    Raises:
        BadFile: one of them is no text, or is not there.
    """

    def included(line: re.Match[str]) -> str:
        path = line[1]  # from the root if it begins with a slash, as typst has it
        return whole(root / path[1:] if path.startswith("/") else file.parent / path, root)

    return INCLUDE.sub(included, read(file, root))


def headings(text: str) -> list[str]:
    """Titles of the sections of a typst file, without their labels."""
    return HEADING.findall(text.replace("\r\n", "\n"))


def has_box(text: str, problem: str) -> bool:
    """Whether the chapter shows the problem's box, `#problem("unit.name", …)[hints]`."""
    return re.search(rf'#problem\(\s*"{re.escape(problem)}"', text) is not None
