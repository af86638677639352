"""Looking for what must not be in a student's bundle: staff files, bytecode, solution text.

Text of a solution. Tests hold oracles, and an oracle may well share a line with the reference
(`scores = q @ k.transpose(-1, -2)`); a single equal line is no leak. Reported are three
consecutive lines of a region, of which two are telling; or, of a region without such lines, all
of it, if one line is telling. A line is telling if it has 20 characters and stands nowhere in
`solutions/` outside the regions, so that signatures, loops and words that a student sees anyway
don't count. An oracle that repeats three lines of the reference is not independent of it, and is
rightly reported. Lines are compared by what they say (`_plain`): indentation, comment signs, quotes
and HTML escapes make no difference, nor does the encoding; in notebooks and other JSON, strings are
read as the text they hold.
"""

from __future__ import annotations

import html
import io
import json
import re
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from .markers import find_spans
from .source import ROOT, decode, relative, units

TELLING = 20
WINDOW = 3
FORBIDDEN = {"solutions", "staff", "hidden", "__pycache__"}
BYTECODE_SUFFIXES = {".pyc", ".pyo", ".so", ".pyd"}
PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00", b"7z\xbc\xaf", b"Rar!")
# The first two bytes of compiled Python count up with its versions: 3.0 had 3000, 3.14 has 3627.
BYTECODE_MAGIC = range(2900, 4000)
JSON = (".json", ".ipynb", ".jsonl")
MARKUP = (".html", ".svg")
EDGES = re.compile(r"^[\W_]+|[\W_]+$")
TAG = re.compile(r"<[^<>]*>")


@dataclass(frozen=True)
class Secret:
    """Lines of one region that give it away when they appear in this order."""

    where: str
    lines: tuple[str, ...]


def find_leaks(archive: Path, root: Path = ROOT) -> list[str]:
    """Everything in the archive that must not be there, a line each."""
    secrets = _by_first_line(find_secrets(root))
    leaks: list[str] = []
    for name, data in _members(archive.read_bytes()):
        path = PurePosixPath(name)
        if forbidden := FORBIDDEN & set(path.parts):
            leaks.append(f"{name}: nothing of {', '.join(sorted(forbidden))} may be in the bundle")
        if _is_bytecode(path, data):
            leaks.append(f"{name}: compiled code")
        if data.startswith(PACKED):
            leaks.append(f"{name}: a packed file, which cannot be searched")
        leaks += [f"{name}: the text of {where}" for where in _secrets_in(name, data, secrets)]
    return leaks


def find_secrets(root: Path) -> list[Secret]:
    """What of the regions in `solutions/` would give them away."""
    inside: list[tuple[str, list[str]]] = []
    seen: set[str] = set()
    for unit in units(root / "solutions"):
        for path in sorted(unit.glob("*.py")):
            text = decode(path.read_bytes())
            rows = text.split("\n")
            spans = find_spans(text, lambda line, message: None)
            for span in spans:
                region = _significant(rows[span.begin : span.end - 1])
                inside.append((f"{relative(path, root)}:{span.begin}", region))
            outside = enumerate(rows, start=1)
            seen.update(
                _plain(row) for line, row in outside if not any(s.holds(line) for s in spans)
            )
    return [secret for where, region in inside for secret in _windows(where, region, seen)]


def _windows(where: str, region: list[str], seen: set[str]) -> Iterator[Secret]:
    def telling(lines: list[str]) -> int:
        return sum(len(line) >= TELLING and line not in seen for line in lines)

    windows = [region[start : start + WINDOW] for start in range(len(region) - WINDOW + 1)]
    found = [lines for lines in windows if telling(lines) >= 2]
    if not found and telling(region):
        found = [region]
    yield from (Secret(where, tuple(lines)) for lines in found)


def _by_first_line(secrets: list[Secret]) -> dict[str, list[Secret]]:
    found: dict[str, list[Secret]] = {}
    for secret in secrets:
        found.setdefault(secret.lines[0], []).append(secret)
    return found


def _secrets_in(name: str, data: bytes, secrets: dict[str, list[Secret]]) -> list[str]:
    found = {}
    for text in _readings(data):
        lines = _significant(_rows(name, text))
        for index, line in enumerate(lines):
            for secret in secrets.get(line, ()):
                if tuple(lines[index : index + len(secret.lines)]) == secret.lines:
                    found[secret.where] = None
    return list(found)


def _readings(data: bytes) -> Iterator[str]:
    """The data as text, in each encoding that it may have; what is no text reads as nonsense."""
    encodings = ["utf-8", "utf-16-le", "utf-16-be"] if b"\0" in data else ["utf-8"]
    for encoding in encodings:
        yield data.decode(encoding, "replace").replace("\0", "").lstrip("\ufeff")


def _rows(name: str, text: str) -> list[str]:
    if name.endswith(JSON):
        documents = text.splitlines() if name.endswith(".jsonl") else [text]
        parts = [part for document in documents for part in _json_texts(document)]
        return [row for part in parts for row in part.splitlines()]
    if name.endswith(MARKUP):  # a tag may stand within a line (colours) or end one (paragraphs)
        text = TAG.sub("", text) + TAG.sub("\n", text)
    return text.splitlines()


def _json_texts(document: str) -> list[str]:
    try:
        return list(_strings(json.loads(document)))
    except ValueError:  # no JSON: as it stands
        return [document]


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)


def _significant(lines: Iterable[str]) -> list[str]:
    """The lines that say something: layout alone shall hide or make no match."""
    return [plain for line in lines if (plain := _plain(line))]


def _plain(line: str) -> str:
    """A line from its first letter or digit to its last, as it reads: no quoting, no escapes."""
    return EDGES.sub("", " ".join(html.unescape(line).split()))


def _members(data: bytes, prefix: str = "") -> Iterator[tuple[str, bytes]]:
    """Names and contents, also of archives within the archive."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for entry in archive.infolist():
            inner = archive.read(entry)
            yield prefix + entry.filename, inner
            if zipfile.is_zipfile(io.BytesIO(inner)):
                yield from _members(inner, f"{prefix}{entry.filename}/")


def _is_bytecode(path: PurePosixPath, data: bytes) -> bool:
    magic = int.from_bytes(data[:2], "little") in BYTECODE_MAGIC and data[2:4] == b"\r\n"
    elf = data.startswith(b"\x7fELF")
    return path.suffix in BYTECODE_SUFFIXES or magic or elf
