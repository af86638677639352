"""The bytes of the files chosen, within limits, and what is wrong with them as Python source."""

from __future__ import annotations

import codecs
import re
from collections import defaultdict
from collections.abc import Mapping

from tests.grading.course import Course
from tests.grading.intake.entries import Entry, Unreadable, megabytes
from tests.grading.intake.limits import LARGEST_ANSWERS, LARGEST_FILE, LARGEST_TREE, MOST_FILES
from tests.grading.intake.notes import About, Note, show, told

# UTF-32 first: its mark begins with UTF-16's. Not UTF-8's, which Python itself reads.
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
}  # fmt: skip
CODING = re.compile(rb"[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+")  # as the language reference has it


def sources(files: Mapping[str, Entry], course: Course, notes: list[Note]) -> dict[str, bytes]:
    """The contents of `files`, those of the course first, as far as the limits allow."""
    graded = [problem.target for problem in course.problems.values()]
    order = [t for t in graded if t in files] + sorted(files.keys() - set(graded))
    taken, size, faults = {}, 0, defaultdict(list)
    for target in order:
        try:
            if len(taken) == MOST_FILES:
                raise Unreadable(f"is left out: {MOST_FILES} files are enough")
            data = _read(files[target], _most(target, course), room=LARGEST_TREE - size)
            data, remark = mended(data)
        except Unreadable as why:
            faults[str(why)].append(show(target))
            continue
        if target in graded and not data.strip():
            remark = "is empty"
        if target in course.answers:
            remark = remark.replace(", which Python refuses", "")
        if remark:
            faults[remark].append(show(target))
        taken[target], size = data, size + len(data)
    notes += [(About.CONTENTS, told(names, fault)) for fault, names in faults.items()]
    return taken


def _most(target: str, course: Course) -> int:
    return LARGEST_ANSWERS if target in course.answers else LARGEST_FILE


def _read(entry: Entry, most: int, room: int) -> bytes:
    if entry.size > most:
        raise Unreadable(f"is left out: it is larger than {megabytes(most)}")
    if entry.size > room:
        raise Unreadable(f"is left out: the files before it have {megabytes(LARGEST_TREE)} already")
    return entry.read()


def mended(data: bytes) -> tuple[bytes, str]:
    """The file as it is taken, and a remark on it ("" if it is fine). Only UTF-16 changes."""
    for mark, encoding in MARKS.items():
        if data.startswith(mark):
            return _as_utf8(data, encoding)
    return data, _remark(data)


def _as_utf8(data: bytes, encoding: str) -> tuple[bytes, str]:
    name = encoding.upper()
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        return data, f"is damaged {name}, which Python cannot read: save it as UTF-8"
    return text.encode("utf-8"), f"is {name} and was read as that: save it as UTF-8"


def _remark(data: bytes) -> str:
    if b"\0" in data:
        line = _line_of(data, data.index(b"\0"))
        return f"holds a NUL byte in line {line}, which Python refuses: save it anew as UTF-8 text"
    if any(CODING.match(line) for line in re.split(rb"\r\n|\r|\n", data, maxsplit=2)[:2]):
        return ""  # the file names its encoding, and Python will say whether that is right
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = _line_of(data, error.start)
        return f"is not UTF-8 in line {line}, which Python refuses: save it as UTF-8"
    return ""


def _line_of(data: bytes, position: int) -> int:
    return len(re.split(rb"\r\n|\r|\n", data[:position]))
