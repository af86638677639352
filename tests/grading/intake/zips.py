"""Zip archives, by Python's zipfile within bounds that it does not have itself."""

from __future__ import annotations

import stat
import zipfile
from io import BytesIO

from tests.grading.intake.entries import FILE, FOLDER, LESS, Budget, Entry, Refused, Unreadable
from tests.grading.intake.limits import LARGEST_DIRECTORY, MOST_ENTRIES

METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # the others unpack without a bound
ENCRYPTED, UTF8 = 0x1, 0x800  # flags of an entry
KINDS = {
    stat.S_IFLNK: "a symbolic link", stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device", stat.S_IFBLK: "a device", stat.S_IFDIR: FOLDER,
}  # fmt: skip


class _Bytes(BytesIO):
    """Refuses to read the table of entries at once when that is large: zipfile has no limit."""

    opened = False

    def read(self, size: int | None = -1) -> bytes:
        if not self.opened and size is not None and size > LARGEST_DIRECTORY:
            raise Refused(f"holds more than {MOST_ENTRIES:,} entries; {LESS}")
        return super().read(size)


def read_zip(data: bytes, budget: Budget) -> list[Entry]:
    """All entries. Refused if its table of entries is damaged, or a password is needed."""
    file = _Bytes(data)
    try:
        archive = zipfile.ZipFile(file)
    except Refused:
        raise
    except Exception:  # zipfile raises many kinds for a damaged archive
        why = "damaged" if zipfile.is_zipfile(BytesIO(data)) else "cut off"
        raise Refused(f"cannot be read as a zip archive: it is {why}") from None
    file.opened = True
    members = archive.infolist()
    if len(members) > MOST_ENTRIES:
        raise Refused(f"holds more than {MOST_ENTRIES:,} entries; {LESS}")
    if any(member.flag_bits & ENCRYPTED for member in members):
        raise Refused("is protected by a password: hand it in without one")
    return [_entry(archive, member, budget) for member in members]


def _entry(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: Budget) -> Entry:
    name = _name(member)
    return Entry(
        name, _kind(member, name), member.file_size, lambda: _read(archive, member, budget)
    )


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: Budget) -> bytes:
    if member.compress_type not in METHODS:
        raise Unreadable(f"is packed by method {member.compress_type}: use Deflate, as most do")
    # zipfile unpacks no more than file_size; but many entries may share the same packed bytes
    budget.spend(max(member.compress_size, member.file_size))
    try:
        with archive.open(member) as file:
            data = file.read(member.file_size + 1)
    except Exception:  # as above
        raise Unreadable("is damaged in the archive") from None
    if len(data) != member.file_size:
        raise Unreadable("is damaged in the archive")
    return data


def _name(member: zipfile.ZipInfo) -> str:
    """The name with everything after a NUL, and as UTF-8 where a packer did not say that it is."""
    name = member.orig_filename
    if member.flag_bits & UTF8:
        return name
    try:
        return name.encode("cp437").decode("utf-8")
    except UnicodeError:
        return name


def _kind(member: zipfile.ZipInfo, name: str) -> str:
    if name.endswith(("/", "\\")):
        return FOLDER
    return KINDS.get(stat.S_IFMT(member.external_attr >> 16), FILE)
