"""From a failed test's exception to what was expected, what came, and where.

All of it may be the submission's own text: it is cut here, and cleaned where it is shown.
"""

from __future__ import annotations

import re
import traceback
from dataclasses import replace
from types import FrameType

import pytest

from tests.grading.closeness import Mismatch
from tests.grading.records import Figure, Finding, Place
from tests.grading.tiers import Tier, describe, ratio, tier
from tests.grading.wording import multiple, quantity

LONGEST = 2_000  # characters of one part
NOTE = "In the submission:\n"  # begins the note that tells the submission's own frames
LESS_THAN_NEEDED = "less than the work needs: it was not done, or not counted"

FRAME = re.compile(r'^ *File "(.+)", line (\d+), in (.+)(?:\n +(.+))?$', re.MULTILINE)
BROKEN = re.compile(r"\w+\.\w+: (\S.*\.py), line (\d+): \w+")  # a file that does not load
SHAPES = re.compile(
    r"(?P<function>[\w.]+) (?:got (?P<argument>\w+) =|returned) (?P<got>.+), "
    r"expected (?P<expected>.+)"
)
PLAIN = re.compile(r"(?:(?P<what>[^:]+): )?expected (?P<expected>.+?), got (?P<got>.+)")


def find(error: BaseException, message: str, problem: str, figure: Figure | None) -> Finding | None:
    """What a failure comes to; None where its message says all that is known.

    Args:
        error: what the test raised.
        message: the error in a line or a few, as the reports show it.
        problem: which problem's test it was, such as "attention.kv_cache".
        figure: of a cost test that had measured when it failed.
    """
    line = message.partition("\n")[0][: 2 * LONGEST]
    place = _place_in_process(error) or _place_of_note(error) or _place_of_broken(line)
    found = _compared(error, line, figure) or Finding()
    found = replace(found, place=place and _shortened(place, problem.partition(".")[0]))
    return None if found == Finding() else found


def _compared(error: BaseException, line: str, figure: Figure | None) -> Finding | None:
    if isinstance(error, Mismatch):
        parts = (error.what, error.where, error.expected, error.got, error.note)
        return Finding(*(_cut(part) for part in parts))
    if figure is not None and isinstance(error, AssertionError) and line == describe(figure):
        return _of_figure(figure)
    if match := SHAPES.fullmatch(line):
        argument, function = match["argument"], match["function"]
        what = f"{argument} of {function}" if argument else f"result of {function}"
        return Finding(what=what, expected=_cut(match["expected"]), got=_cut(match["got"]))
    if isinstance(error, AssertionError | pytest.fail.Exception) and (
        match := PLAIN.fullmatch(line)
    ):
        what = match["what"] or ""
        return Finding(what=what, expected=_cut(match["expected"]), got=_cut(match["got"]))
    return None


def _of_figure(figure: Figure) -> Finding:
    times = ratio(figure.got, figure.ideal)
    got = quantity(figure.got, figure.unit)
    impossible = tier(figure.got, figure.ideal) is Tier.IMPOSSIBLE
    return Finding(
        what=figure.name,
        expected=f"{quantity(figure.ideal, figure.unit)}, the ideal",
        got=got if times is None else f"{got}, {multiple(times)} the ideal",
        note=LESS_THAN_NEEDED if impossible else _cut(figure.note),
    )


# The line of the submission that was at work.


def _place_in_process(error: BaseException) -> Place | None:
    """The innermost frame that runs a module of the submission, where it runs in this process."""
    frames = [step for step in traceback.walk_tb(error.__traceback__) if _is_students(step[0])]
    if not frames:
        return None
    at = traceback.StackSummary.extract(frames[-1:])[0]
    return Place(at.filename, at.lineno or 0, at.name, at.line or "")


def _is_students(frame: FrameType) -> bool:
    module, file = frame.f_globals.get("__name__"), frame.f_code.co_filename
    if not isinstance(module, str) or file.startswith("<"):  # code that a checker made
        return False
    return module.startswith("submission.") and not module.startswith("submission.provided")


def _place_of_note(error: BaseException) -> Place | None:
    """The last frame of the trace that came from the submission's process."""
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(NOTE)]
    frames = FRAME.findall(notes[-1][-20_000:]) if notes else []
    return _place(*frames[-1]) if frames else None


def _place_of_broken(line: str) -> Place | None:
    match = BROKEN.match(line)
    return _place(match[1], match[2]) if match else None


def _place(file: str, line: str, function: str = "", source: str = "") -> Place:
    return Place(file, int(line[:9]), function[:200], source[:200])


def _shortened(place: Place, unit: str) -> Place:
    """The file from the unit's folder on: where the tree lay says nothing to its author."""
    parts = place.file.replace("\\", "/").split("/")
    folders = [i for i, part in enumerate(parts[:-1]) if part == unit]
    start = folders[-1] if folders else max(len(parts) - 2, 0)
    return replace(place, file="/".join(parts[start:])[-200:])


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
