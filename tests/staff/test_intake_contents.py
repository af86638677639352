"""The bytes of source files: what is taken as it is, what is mended, what is too much."""

from __future__ import annotations

import os

import pytest

from tests.grading.intake.limits import LARGEST_ARCHIVE, MB
from tests.staff.intake_samples import COMPLETE, Desk

KV, GENERATE = "attention/kv_cache.py", "attention/generate.py"


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


SOURCE = 'größe = "µ"\r\nassert größe\r\n'
PLAIN = {
    "CRLF": SOURCE.encode(),
    "a UTF-8 mark": b"\xef\xbb\xbf" + SOURCE.encode(),
    "old Mac line ends": SOURCE.replace("\r\n", "\r").encode(),
    "a coding line": b"# -*- coding: latin-1 -*-\n" + SOURCE.encode("latin-1"),
    "a coding line in the second line": b"#!/bin/py\n# coding=latin-1\n" + SOURCE.encode("latin-1"),
}


@pytest.mark.parametrize("what", PLAIN)
def test_what_python_can_read_is_taken_byte_by_byte_without_a_word(desk, what):
    assert desk.zip({**COMPLETE, KV: PLAIN[what]}).notes == ()
    assert desk.taken == {**COMPLETE, KV: PLAIN[what]}
    exec(compile((desk.tree / KV).read_bytes(), KV, "exec"), names := {})
    assert names["größe"] == "µ"


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_utf_16_and_32_are_read_as_what_they_are(desk, encoding):
    staged = desk.zip({**COMPLETE, KV: f"\ufeff{SOURCE}".encode(encoding)})
    assert desk.taken[KV] == SOURCE.encode()
    name = encoding.upper()[:6]
    assert staged.notes == (f"{KV} is {name} and was read as that: save it as UTF-8",)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"\xff\xfex", "is damaged UTF-16, which Python cannot read: save it as UTF-8"),
        (
            b"x = 1\r\ny = '\0'\r\n",
            "holds a NUL byte in line 2, which Python refuses: save it anew as UTF-8 text",
        ),
        (
            b"# one\n# two\n# coding: latin-1 (too late)\nx = '\xe9'\n",
            "is not UTF-8 in line 4, which Python refuses: save it as UTF-8",
        ),
        (b"", "is empty"),
        (b" \r\n", "is empty"),
    ],
)
def test_what_python_cannot_read_is_taken_as_it_is_and_told(desk, data, line):
    staged = desk.zip({**COMPLETE, KV: data})
    assert desk.taken == {**COMPLETE, KV: data}
    assert staged.notes == (f"{KV} {line}",)
    if data.strip():
        with pytest.raises((SyntaxError, ValueError)):
            compile(data, KV, "exec")


def test_an_empty_helper_is_nothing_to_tell(desk):
    assert desk.zip({**COMPLETE, "attention/__init__.py": b""}).notes == ()


def test_a_file_that_is_too_large_costs_only_itself(desk):
    full = b"#" * MB
    staged = desk.zip({**COMPLETE, KV: full + b"#", GENERATE: full})
    assert desk.taken == {**{n: d for n, d in COMPLETE.items() if n != KV}, GENERATE: full}
    assert staged.notes == (f"{KV} is left out: it is larger than 1 MB",)


def test_course_files_come_before_helpers_where_there_is_too_much(desk):
    helpers = {f"attention/a{n}.py": b"#" * MB for n in range(9)}
    staged = desk.zip({**helpers, **COMPLETE})
    assert COMPLETE.items() <= desk.taken.items()
    assert sum(map(len, desk.taken.values())) <= 8 * MB
    why = "each is left out: the files before it have 8 MB already"
    assert staged.notes == (f"attention/a7.py and attention/a8.py: {why}",)


def test_very_many_files_are_left_out(desk):
    staged = desk.zip({**{f"attention/a{n:03}.py": b"" for n in range(500)}, **COMPLETE})
    assert len(desk.taken) == 500 and COMPLETE.keys() <= desk.taken.keys()
    assert staged.notes[0].endswith("and 2 more: each is left out: 500 files are enough")


def test_a_large_archive_is_refused(desk):
    large = desk.file("hw1.zip", b"PK\3\4")
    os.truncate(large, LARGEST_ARCHIVE + 1)
    assert desk.hand_in(large).notes == (
        "hw1.zip is larger than 50 MB; hand in only the unit folders",
    )
