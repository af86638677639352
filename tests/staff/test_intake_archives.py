"""Archives: every kind that is accepted, and one line for each that is refused or damaged."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zipfile
import zlib

import pytest

from tests.grading.intake import unpack
from tests.grading.intake.limits import MB
from tests.staff.intake_samples import COMPLETE, PACK, Desk, tarred, zipped

NESTED = {f"hw1/assignment/{name}": data for name, data in COMPLETE.items()}
KV = "attention/kv_cache.py"


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


def archive(kind: str, files: dict[str, bytes]) -> bytes:
    return zipped(files) if kind == "zip" else PACK[kind](tarred(files))


@pytest.mark.parametrize("kind", ["zip", *PACK])
def test_every_kind_is_known_by_its_content_and_its_files_come_out_whole(desk, kind):
    staged = desk.hand_in(desk.file("hw1.upload", archive(kind, NESTED)))
    assert desk.taken == COMPLETE
    assert (staged.shown, staged.notes) == ("hw1.upload/hw1/assignment", ())


@pytest.mark.parametrize("kind", ["zip", *PACK])
def test_an_archive_without_files_is_told(desk, kind):
    staged = desk.hand_in(desk.file("hw1", archive(kind, {})))
    units = "attention/, serving/ and extra/"
    line = f"hw1 has no course file in a unit folder ({units}); it holds no files"
    assert staged.notes[0] == line and desk.taken == {}


@pytest.mark.parametrize("kind", ["zip", *PACK])
def test_a_cut_off_archive_is_told_and_nothing_is_taken(desk, kind):
    whole = archive(kind, {**COMPLETE, "attention/long.py": b"x = 1\n" * 1000})
    for keep in (len(whole) // 2, 600 if kind == "tar" else 20):
        assert desk.hand_in(desk.file("hw1", whole[:keep])).notes == (
            f"hw1 cannot be read as a {kind} archive: it is cut off",
        )
        assert desk.taken == {}
        desk.tree.rmdir()


def damaged_zip() -> bytes:
    data = bytearray(zipped(COMPLETE))
    data[data.index(b"PK\1\2")] = 0  # the first entry of the table
    return bytes(data)


def damaged_tar(form: str = "tar") -> bytes:
    data = bytearray(tarred(COMPLETE))
    data[data.index(b"serving/engine.py") + 2] ^= 1
    return PACK[form](bytes(data))


def damaged_stream(form: str, signature: int) -> bytes:
    data = bytearray(PACK[form](tarred(COMPLETE)))
    data[signature + (len(data) - signature) // 2] ^= 0xFF
    return bytes(data)


DAMAGED = {
    "zip": damaged_zip(),
    "tar": damaged_tar(),
    "tar.gz": damaged_tar("tar.gz"),
    "tar.bz2": damaged_stream("tar.bz2", 4),
    "tar.xz": damaged_stream("tar.xz", 6),
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_archive_is_told_and_nothing_is_taken(desk, kind):
    notes = desk.hand_in(desk.file("hw1", DAMAGED[kind])).notes
    assert notes == (f"hw1 cannot be read as a {kind} archive: it is damaged",)
    assert desk.taken == {}


def test_a_wrong_checksum_of_a_gzip_stream_is_damage(desk):
    data = bytearray(gzip.compress(tarred(COMPLETE)))
    data[-6] ^= 1
    notes = desk.hand_in(desk.file("hw1.tgz", bytes(data))).notes
    assert notes == ("hw1.tgz cannot be read as a tar.gz archive: it is damaged",)


ACCEPTED = "hand in a .zip, .tar, .tar.gz, .tar.bz2 or .tar.xz file, or a folder"
REFUSED = {
    "7z": (b"7z\xbc\xaf\x27\x1c" + bytes(99), f"is a 7-Zip archive: {ACCEPTED}"),
    "rar": (b"Rar!\x1a\x07\1\0" + bytes(99), f"is a RAR archive: {ACCEPTED}"),
    "zst": (b"\x28\xb5\x2f\xfd" + bytes(99), f"is a Zstandard archive: {ACCEPTED}"),
    "gz": (gzip.compress(b"x = 1\n" * 200), f"is packed as gz but holds no tar: {ACCEPTED}"),
    "bz2": (bz2.compress(b"x = 1\n"), f"is packed as bz2 but holds no tar: {ACCEPTED}"),
    "xz": (lzma.compress(b"x = 1\n"), f"is packed as xz but holds no tar: {ACCEPTED}"),
    "pdf": (b"%PDF-1.7\n" + bytes(2000), f"is no archive and no .py file: {ACCEPTED}"),
    "zip": (b"<!doctype html><title>Log in</title>", f"is no archive and no .py file: {ACCEPTED}"),
    "tar": (b"", "is an empty file"),
}


@pytest.mark.parametrize("ending", REFUSED)
def test_what_is_not_accepted_is_told_in_one_line(desk, ending):
    data, line = REFUSED[ending]
    staged = desk.hand_in(desk.file(f"hw1.{ending}", data))
    assert staged.notes == (f"hw1.{ending} {line}",) and desk.taken == {}


def test_junk_before_and_after_an_archive_does_no_harm(desk):
    for data in (
        b"#!/bin/sh\nexit\n" + zipped(COMPLETE),
        gzip.compress(tarred(COMPLETE)) + b"trailing",
        gzip.compress(tarred(COMPLETE)[:700]) + gzip.compress(tarred(COMPLETE)[700:]),
        tarred(COMPLETE) + b"after the end mark",
        tarred(COMPLETE).rstrip(b"\0") + bytes(1000),
    ):
        desk.hand_in(desk.file("hw1", data))
        assert desk.taken == COMPLETE
        for path in [p for p in desk.tree.rglob("*") if p.is_file()]:
            path.unlink()
        for path in desk.tree.iterdir():
            path.rmdir()
        desk.tree.rmdir()


def test_a_zip_inside_a_tar_is_no_zip(desk):
    files = {**COMPLETE, "zzz.zip": zipped({KV: b"wrong"}, zipfile.ZIP_STORED)}
    desk.hand_in(desk.file("hw1", tarred(files)))
    assert desk.taken == COMPLETE


@pytest.mark.parametrize("outer", ["zip", *PACK])
def test_one_archive_in_an_archive_is_opened(desk, outer):
    inner = zipped(NESTED)
    staged = desk.hand_in(desk.file("all", archive(outer, {"Ann/hw1.zip": inner, "a.txt": b"-"})))
    assert desk.taken == COMPLETE
    assert (staged.shown, staged.notes) == ("all/Ann/hw1.zip/hw1/assignment", ())


def test_one_archive_in_a_folder_is_opened(desk):
    staged = desk.hand_in(desk.files("Ann_12345", {"hw1.zip": zipped(COMPLETE)}))
    assert (desk.taken, staged.shown) == (COMPLETE, "Ann_12345/hw1.zip")


def test_a_third_archive_level_is_not_opened_and_two_archives_are_not_chosen_from(desk):
    three = zipped({"b.zip": zipped({"c.zip": zipped(COMPLETE)})})
    notes = desk.hand_in(desk.file("a.zip", three)).notes
    assert desk.taken == {} and notes[0].endswith("it holds c.zip")
    desk.tree.rmdir()
    two = {"a.zip": zipped(COMPLETE), "b.zip": zipped(COMPLETE)}
    assert desk.zip(two).notes == ("hw1.zip holds several archives, a.zip and b.zip: hand in one",)
    assert desk.taken == {}


@pytest.mark.parametrize(
    ("name", "data", "line"),
    [
        ("a.zip", b"PK\3\4cut", "cannot be read as a zip archive: it is cut off"),
        ("a.7z", b"7z\xbc\xaf\x27\x1c", f"is a 7-Zip archive: {ACCEPTED}"),
        ("a.zip", b"", "is an empty file"),
        ("a.zip", b"text", f"is no archive: {ACCEPTED}"),
    ],
)
def test_a_fault_of_the_archive_inside_names_it(desk, name, data, line):
    assert desk.zip({name: data}).notes == (f"hw1.zip holds {name}, which {line}",)


def bomb(kind: str, megabytes: int) -> bytes:
    """A stream of a skipped member of so many megabytes, packed in pieces."""
    packer = {
        "tar.gz": lambda: zlib.compressobj(1, wbits=31),
        "tar.bz2": bz2.BZ2Compressor,
        "tar.xz": lambda: lzma.LZMACompressor(preset=0),
    }[kind]()
    member = tarfile.TarInfo("data.bin")
    member.size = megabytes * MB
    pieces = [member.tobuf(), *[bytes(MB)] * megabytes]
    return b"".join([*map(packer.compress, pieces), packer.flush()])


@pytest.mark.parametrize(("kind", "most"), [("tar.gz", 64), ("tar.bz2", 32), ("tar.xz", 64)])
def test_a_bomb_is_unpacked_up_to_the_bound_and_no_further(desk, monkeypatch, kind, most):
    unpacked = []
    real = unpack.Budget.spend
    monkeypatch.setattr(
        unpack.Budget, "spend", lambda self, n, *a: (unpacked.append(n), real(self, n, *a))[1]
    )
    notes = desk.hand_in(desk.file("hw1", bomb(kind, most + 6))).notes
    assert notes == (f"hw1 unpacks to more than {most} MB; hand in only the unit folders",)
    assert most * MB < sum(unpacked) <= (most + 1) * MB
    assert desk.taken == {}


def test_the_bound_holds_over_both_levels_of_an_archive_in_an_archive(desk):
    inner = bomb("tar.gz", 40)
    data = PACK["tar.gz"](tarred({"inner.tar.gz": inner, "data.bin": bytes(30 * MB)}))
    assert desk.hand_in(desk.file("hw1", data)).notes == (
        "hw1 holds inner.tar.gz, which unpacks to more than 64 MB; hand in only the unit folders",
    )


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz"])
def test_a_file_of_very_many_streams_is_refused(desk, kind):
    data = PACK[kind](b"") * 5000
    notes = desk.hand_in(desk.file("hw1", data)).notes
    assert notes == ("hw1 has more than 4096 compressed streams: pack it anew",)


def test_an_xz_stream_that_asks_for_much_memory_is_refused(desk):
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 1 << 30}]
    notes = desk.hand_in(desk.file("hw1", lzma.compress(tarred(COMPLETE), filters=filters))).notes
    assert notes == ("hw1 cannot be read as a tar.xz archive: it is damaged",)
    desk.tree.rmdir()
    desk.hand_in(desk.file("hw1", lzma.compress(tarred(COMPLETE), preset=9)))
    assert desk.taken == COMPLETE
