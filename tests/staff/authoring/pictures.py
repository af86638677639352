"""The handout's pictures: the reference at work, drawn by what students have, too.

    python -m tests.staff.authoring.pictures [--check]

It writes handout/pictures/<name>.svg for each of PICTURES.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from assignment.provided.data.traces import Request, named_trace
from assignment.provided.serving import drive, static_steps, timeline_svg
from assignment.provided.speculative.picture import tree_svg
from solutions.serving.paged_cache import PagedCache
from solutions.serving.scheduler import Scheduler
from tests.staff.authoring.source import ROOT

FOLDER = Path("handout/pictures")
WIDTH = 600  # pixels, on a line of text: an 11 of the drawing is 8 points on paper
SLOTS = 4


def four_times() -> list[Request]:
    """Outputs of 2, 4, 8, 10 tokens, and again, and again."""
    four = named_trace("lengths-2-4-8-10")
    return [replace(four[i % 4], id=i) for i in range(16)]


def static() -> str:
    return timeline_svg(static_steps(four_times(), SLOTS), slots=SLOTS, width=WIDTH)


def continuous() -> str:
    scheduler = Scheduler(PagedCache(64), max_tokens=32, max_sequences=SLOTS)
    return timeline_svg(drive(scheduler, four_times()), slots=SLOTS, width=WIDTH)


def preemption() -> str:
    """36 slots, for requests that would fill 65."""
    sizes = [(6, 12), (5, 14), (9, 10), (4, 9)]
    scheduler = Scheduler(PagedCache(9, 4), max_tokens=8, max_sequences=SLOTS)
    return timeline_svg(drive(scheduler, made(sizes)), slots=SLOTS, width=WIDTH)


TREE = {
    "parents": (-1, 0, 0, 0, 1, 1, 2, 4, 4, 6),
    "labels": ("had", "a", "the", "an", "small", "big", "small", "key", "hat", "key"),
    "path": (0, 1, 4, 8),
}


def tree() -> str:
    """Guesses after "Mara had", of which "a small hat" is right."""
    return tree_svg(**TREE, token=".")


def made(sizes: list[tuple[int, int]]) -> list[Request]:
    """Requests with prompts and outputs of these lengths; no two prompts begin alike."""
    return [
        Request(i, 0.0, tuple(range(100 * i, 100 * i + prompt)), output, output)
        for i, (prompt, output) in enumerate(sizes)
    ]


PICTURES: dict[str, Callable[[], str]] = {
    "static": static,
    "continuous": continuous,
    "preemption": preemption,
    "tree": tree,
}


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.staff.authoring.pictures")
    parser.add_argument("--check", action="store_true", help="only say whether they are current")
    texts = {root / FOLDER / f"{name}.svg": draw() for name, draw in PICTURES.items()}
    if not parser.parse_args(arguments).check:
        (root / FOLDER).mkdir(exist_ok=True)
        for file, text in texts.items():
            file.write_text(text, encoding="utf-8")
        return 0
    others = set((root / FOLDER).glob("*")) - set(texts)
    stale = [f for f, text in texts.items() if not f.is_file() or f.read_text("utf-8") != text]
    for file in sorted([*stale, *others]):
        name = file.relative_to(root)
        print(f"{name} is out of date: run `python -m tests.staff.authoring.pictures`")
    return 1 if stale or others else 0


if __name__ == "__main__":
    sys.exit(main())
