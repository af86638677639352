"""A handout chapter as text: section titles and problem boxes, which `tests/course.toml` names."""

from __future__ import annotations

import re

HEADING = re.compile(r"^=+[ \t]+(.*?)[ \t]*(?:<[^<>]*>)?[ \t]*$", re.MULTILINE)


def headings(text: str) -> list[str]:
    """Titles of the sections of a typst file, without their labels."""
    return HEADING.findall(text.replace("\r\n", "\n"))


def has_box(text: str, problem: str) -> bool:
    """Whether the chapter shows the problem's box, `#problem("unit.name", …)[hints]`."""
    return re.search(rf'#problem\(\s*"{re.escape(problem)}"', text) is not None
