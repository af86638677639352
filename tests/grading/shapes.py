"""Unfriendly shapes: sizes at which code that is right only by luck goes wrong.

Head ratios never have as many groups as KV heads (64/8 hides a swapped division), and lengths
sit on both sides of every boundary.
"""

from __future__ import annotations

HEAD_RATIOS = [(6, 2), (9, 3), (28, 4), (4, 4), (5, 1)]
"""(query heads, KV heads): grouped three times, multi-head, and multi-query attention."""


def around(boundary: int) -> list[int]:
    """One below, exactly at, and one above a boundary such as a capacity, a block or a chunk."""
    return [boundary - 1, boundary, boundary + 1]
