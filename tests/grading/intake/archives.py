"""Archives, told apart by their first bytes and never by their names."""

from __future__ import annotations

import zipfile
from io import BytesIO

from tests.grading.intake.entries import Budget, Entry, Refused
from tests.grading.intake.tars import looks_like_tar, read_tar
from tests.grading.intake.unpack import SIGNATURES, unpack
from tests.grading.intake.zips import read_zip

ACCEPTED = "hand in a .zip, .tar, .tar.gz, .tar.bz2 or .tar.xz file, or a folder"
ENDINGS = (".zip", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".7z", ".rar", ".zst")
ZIP = (b"PK\3\4", b"PK\5\6", b"PK\7\x08")
OTHERS = {
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"Rar!\x1a\x07": "RAR",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\x04\x22\x4d\x18": "LZ4",
    b"\x1f\x9d": "compress",
    b"LZIP": "lzip",
}


def read_archive(data: bytes, budget: Budget) -> list[Entry] | None:
    """What the archive holds; None if it is no archive. Refused for one that cannot be used."""
    for signature, program in OTHERS.items():
        if data.startswith(signature):
            raise Refused(f"is a {program} archive: {ACCEPTED}")
    if data.startswith(ZIP):
        return read_zip(data, budget)
    for signature, kind in SIGNATURES.items():
        if data.startswith(signature):
            return _read_packed_tar(data, kind, budget)
    if looks_like_tar(data):
        return read_tar(data, "tar")
    # last, because it looks for a zip's end only, and others may end with a zip
    return read_zip(data, budget) if zipfile.is_zipfile(BytesIO(data)) else None


def _read_packed_tar(data: bytes, kind: str, budget: Budget) -> list[Entry]:
    unpacked = unpack(data, kind, budget)
    if unpacked and not looks_like_tar(unpacked):
        raise Refused(f"is packed as {kind.removeprefix('tar.')} but holds no tar: {ACCEPTED}")
    return read_tar(unpacked, kind)
