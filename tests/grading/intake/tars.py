"""Tar archives (v7, ustar, GNU, pax), in one pass over their headers.

Not Python's tarfile: some versions that the course runs on loop for ever on a negative size
(CVE-2025-8194) or take quadratic time over an extended header (CVE-2024-6232).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.grading.intake.entries import FILE, FOLDER, LESS, Entry, Refused
from tests.grading.intake.limits import LARGEST_HEADER, LONGEST_PATH, MOST_ENTRIES

BLOCK = 512
FILES = b"07\0"
KINDS = {
    b"1": "a hard link", b"2": "a symbolic link", b"3": "a device", b"4": "a device",
    b"5": FOLDER, b"6": "a named pipe", b"S": "a sparse file",
}  # fmt: skip
EXTENDED = b"xL"  # a header that says more of the next entry: pax records, GNU's long name
WITHOUT_DATA = b"123456"  # whatever size their headers give


@dataclass(frozen=True)
class _Header:
    name: bytes
    type: bytes
    size: int
    has_more: bool  # old GNU sparse maps go on in further blocks


def looks_like_tar(data: bytes | bytearray) -> bool:
    block = bytes(data[:BLOCK])
    return len(block) == BLOCK and (not any(block) or _checksum_is_right(block))


def read_tar(data: bytes | bytearray, kind: str) -> list[Entry]:
    """All entries, up to the end mark or the end of `data`. Refused if it is cut off or damaged."""
    archive, entries, at, headers = memoryview(data), [], 0, 0
    more: dict[str, bytes] = {}  # what extended headers say of the next entry
    while any(block := bytes(archive[at : at + BLOCK])):
        headers += 1
        if len(entries) >= MOST_ENTRIES or headers > 3 * MOST_ENTRIES:
            raise Refused(f"holds more than {MOST_ENTRIES:,} entries; {LESS}")
        try:
            header = _header(block)
            size = _size(header, more)
            if header.type in EXTENDED and size > LARGEST_HEADER:
                raise ValueError
            at = _after_map(archive, at + BLOCK, header)
            body = archive[at : at + size]
            at += -(-size // BLOCK) * BLOCK
            if at > len(data):
                raise EOFError
            if header.type in EXTENDED:
                more |= _extended(header, bytes(body))
            elif header.type not in b"gKX":  # global facts, long link targets, an old dialect
                entries.append(_entry(header, more, body))
                more = {}
        except EOFError:
            raise Refused(f"cannot be read as a {kind} archive: it is cut off") from None
        except ValueError:
            raise Refused(f"cannot be read as a {kind} archive: it is damaged") from None
    return entries


def _header(block: bytes) -> _Header:
    if len(block) < BLOCK:
        raise EOFError
    if not _checksum_is_right(block):
        raise ValueError
    name, prefix = _text(block[:100]), _text(block[345:500])
    if block[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    kind = block[156:157]
    return _Header(name, kind, _number(block[124:136]), kind == b"S" and block[482] != 0)


def _checksum_is_right(block: bytes) -> bool:
    try:
        said = _number(block[148:156])
    except ValueError:
        return False
    unsigned = sum(block) - sum(block[148:156]) + 8 * ord(" ")
    if said == unsigned:
        return True
    return said == unsigned - 256 * sum(b > 127 for b in block[:148] + block[156:])  # some old tars


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """Octal digits, or GNU's binary form for what has no room in them; never negative."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = _text(field).strip()
    if not re.fullmatch(rb"[0-7]*", digits):
        raise ValueError
    return int(digits or b"0", 8)


def _size(header: _Header, more: dict[str, bytes]) -> int:
    if header.type in WITHOUT_DATA:
        return 0
    said = more.get("size")
    if said is None or header.type in b"xgXLK":
        return header.size
    if not re.fullmatch(rb"[0-9]{1,20}", said):
        raise ValueError
    return int(said)


def _after_map(archive: memoryview, at: int, header: _Header) -> int:
    goes_on = header.has_more
    while goes_on:
        block = archive[at : at + BLOCK]
        if len(block) < BLOCK:
            raise EOFError
        at, goes_on = at + BLOCK, block[504] != 0
    return at


def _extended(header: _Header, body: bytes) -> dict[str, bytes]:
    if header.type == b"L":
        return {"path": _text(body)}
    found, at = {}, 0
    while at < len(body):  # records such as b"30 path=assignment/attention/a\n"
        space = body.find(b" ", at, at + 20)
        if space < 0 or not re.fullmatch(rb"[0-9]+", body[at:space]):
            raise ValueError
        end = at + int(body[at:space])
        if not space < end <= len(body):
            raise ValueError
        key, _, value = body[space + 1 : end - 1].partition(b"=")
        if key in (b"path", b"size"):
            found[key.decode()] = value
        elif key.startswith(b"GNU.sparse."):
            found["sparse"] = b"1"
        at = end
    return found


def _entry(header: _Header, more: dict[str, bytes], body: memoryview) -> Entry:
    raw = more.get("path", header.name)[: 4 * LONGEST_PATH + 1]  # more than LONGEST_PATH characters
    name = raw.decode("utf-8", "surrogateescape")[: LONGEST_PATH + 1]
    kind = KINDS.get(header.type, FILE if header.type in FILES else "a special entry")
    if kind == FILE and name.endswith("/"):
        kind = FOLDER  # in archives older than the type for folders
    if kind == FILE and "sparse" in more:
        kind = "a sparse file"
    return Entry(name, kind, len(body), lambda: bytes(body))
