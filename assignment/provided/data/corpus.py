"""The stories by split. A split is endless: its story number i is the same for everybody.

train         what models are trained on
validation    to choose by
test          to report on; nothing here ever trains or chooses on it
"""

from collections.abc import Iterator

from . import stories

SPLITS = ("train", "validation", "test")


def story_texts(split: str, count: int, start: int = 0) -> Iterator[str]:
    """Stories number start … start + count − 1 of a split.

    Raises:
        ValueError: if there is no such split, or count or start is negative.
    """
    if split not in SPLITS:
        raise ValueError(f"split: expected one of {', '.join(SPLITS)}, got {split!r}")
    if count < 0 or start < 0:
        raise ValueError(f"count, start: expected numbers ≥ 0, got {count} and {start}")
    return (stories.sample(f"{split} {number}") for number in range(start, start + count))
