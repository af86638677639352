"""Words whatever their capitals, spaces and punctuation."""

from __future__ import annotations

import re

BETWEEN = re.compile(r"[\s_\-–—.,;:!()\"“”]+")  # not "?" and "/": an answer with one is none
APOSTROPHES = re.compile("['’‘]")


def plain(text: str) -> str:
    """Small letters, words by single spaces: "No, it doesn't." is "no it doesnt"."""
    return " ".join(BETWEEN.sub(" ", APOSTROPHES.sub("", text.lower())).split())
