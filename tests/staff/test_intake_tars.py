"""The tar reader beside Python's own, and tar archives that are odd or hostile."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.grading.intake.entries import FILE, FOLDER
from tests.grading.intake.limits import LONGEST_PATH, MB
from tests.grading.intake.tars import read_tar
from tests.staff.intake_samples import COMPLETE, Desk, tarred

KV = "attention/kv_cache.py"
OTHERS = {name: data for name, data in COMPLETE.items() if name != KV}
FORMS = {"v7 and ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
DAMAGED = "hw1.tar cannot be read as a tar archive: it is damaged"


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


def block(name: bytes, kind: bytes = b"0", size: bytes = b"0", prefix: bytes = b"") -> bytearray:
    """A header with the fields given and a right checksum."""
    header = bytearray(512)
    header[:100] = name.ljust(100, b"\0")
    header[124:136], header[156:157] = size.ljust(12, b"\0"), kind
    header[257:265], header[345:500] = b"ustar\x0000", prefix.ljust(155, b"\0")
    return signed(header)


def signed(header: bytearray, *, as_signed: bool = False) -> bytearray:
    header[148:156] = b" " * 8
    total = sum(byte - 256 * (as_signed and byte > 127) for byte in header)
    header[148:156] = b"%06o\0 " % total
    return header


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def with_special(name: str, kind: bytes, **more) -> bytes:
    """COMPLETE without kv_cache.py, and one member of another type."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path, data in OTHERS.items():
            member = tarfile.TarInfo(path)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        member = tarfile.TarInfo(name)
        member.type = kind
        for key, value in more.items():
            setattr(member, key, value)
        archive.addfile(member)
    return out.getvalue()


PART = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=60)
NAMES = st.lists(PART, min_size=1, max_size=4).map("/".join)
MEMBERS = st.dictionaries(NAMES, st.binary(max_size=1200), max_size=5)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(list(FORMS.values())), MEMBERS)
def test_the_reader_finds_what_python_s_tarfile_finds(form, files):
    try:
        data = tarred(files, form)
    except ValueError:  # ustar has no room for every name
        return
    found = [(entry.name, entry.kind, entry.read()) for entry in read_tar(data, "tar")]
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        expected = [(m.name, FILE, archive.extractfile(m).read()) for m in archive.getmembers()]
    assert found == expected


@pytest.mark.parametrize(
    ("type", "kind"),
    [
        (tarfile.DIRTYPE, FOLDER),
        (tarfile.SYMTYPE, "a symbolic link"),
        (tarfile.LNKTYPE, "a hard link"),
        (tarfile.CHRTYPE, "a device"),
        (tarfile.BLKTYPE, "a device"),
        (tarfile.FIFOTYPE, "a named pipe"),
        (b"V", "a special entry"),
    ],
)
def test_only_plain_files_are_taken(desk, type, kind):
    data = with_special(KV, type, linkname="/etc/passwd", mode=0o6777)
    staged = desk.hand_in(desk.file("hw1.tar", data))
    assert desk.taken == OTHERS
    why = "is a folder where a file should be" if kind == FOLDER else f"is left out: it is {kind}"
    assert f"{KV} {why}" in staged.notes


def test_a_link_to_a_folder_is_not_followed(desk, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    data = with_special("attention/sub", tarfile.SYMTYPE, linkname=str(tmp_path / "elsewhere"))
    data = data.rstrip(b"\0")
    data = padded(data) + tarred({"attention/sub/x.py": b"x"})
    staged = desk.hand_in(desk.file("hw1.tar", data))
    assert desk.taken == {**OTHERS, "attention/sub/x.py": b"x"}
    assert not (desk.tree / "attention/sub").is_symlink()
    assert "attention/sub is left out: it is a symbolic link" in staged.notes


def test_modes_are_not_taken_over(desk):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        member = tarfile.TarInfo(KV)
        member.mode, member.uid = 0o6777, 12345
        archive.addfile(member)
    desk.hand_in(desk.file("hw1.tar", out.getvalue()))
    about = (desk.tree / KV).stat()
    assert (stat.S_IMODE(about.st_mode), about.st_uid) == (0o644, desk.tree.stat().st_uid)


@pytest.mark.parametrize("name", ["../x.py", "attention/../../x.py", "/../x.py"])
def test_a_name_that_leads_out_is_not_followed(desk, name):
    staged = desk.hand_in(desk.file("hw1.tar", tarred({**COMPLETE, name: b"x"})))
    assert desk.taken == COMPLETE
    assert staged.notes == (f"{name} leads out of its folder",)


def test_an_absolute_path_is_only_a_folder(desk):
    files = {f"/home/ann/{name}": data for name, data in COMPLETE.items()}
    staged = desk.hand_in(desk.file("hw1.tar", tarred(files)))
    assert (desk.taken, staged.shown, staged.notes) == (COMPLETE, "hw1.tar/home/ann", ())


def test_the_same_name_twice_is_the_last_and_told(desk):
    first = tarred(COMPLETE).rstrip(b"\0")
    data = padded(first) + tarred({KV: b"# later\n"})
    staged = desk.hand_in(desk.file("hw1.tar", data))
    assert desk.taken == {**COMPLETE, KV: b"# later\n"}
    assert staged.notes == (f"{KV} is there more than once: the last one is taken",)


def names(data: bytes) -> list[tuple[str, str]]:
    return [(entry.name, entry.kind) for entry in read_tar(data, "tar")]


def test_a_name_may_stand_in_four_places():
    long = "attention/" + "d/" * 150 + "x.py"
    data = (
        block(b"kv_cache.py", prefix=b"attention")
        + block(b"././@LongLink", b"L", b"%o" % len(long))
        + padded(long.encode())
        + block(b"cut off")
        + block(b"old/")
    )
    assert names(bytes(data)) == [(KV, FILE), (long, FILE), ("old/", FOLDER)]
    assert names(tarred({long: b""}, tarfile.PAX_FORMAT)) == [(long, FILE)]


def test_names_that_are_not_utf_8_and_names_without_end_are_kept_apart():
    assert names(bytes(block(b"J\xf6rg.py"))) == [("J\udcf6rg.py", FILE)]
    data = block(b"L", b"L", b"%o" % 9000) + padded(b"a" * 9000) + block(b"x")
    assert names(bytes(data)) == [("a" * (LONGEST_PATH + 1), FILE)]


def test_old_checksums_of_signed_bytes_are_right():
    header = block(b"\xff\xfe.py")
    assert names(bytes(signed(header, as_signed=True)))[0][1] == FILE
    header[0] ^= 1
    with pytest.raises(Exception, match="it is damaged"):
        read_tar(bytes(block(b"x")) + bytes(header), "tar")


def test_large_sizes_are_binary_numbers():
    body = b"x = 1\n"
    header = block(b"x.py", size=b"\x80" + len(body).to_bytes(11, "big"))
    assert read_tar(bytes(header) + padded(body), "tar")[0].read() == body


def test_two_headers_may_say_more_of_one_entry():
    data = block(b"x", b"x", b"12") + padded(b"10 size=6\n")
    data += block(b"L", b"L", b"4") + padded(b"a.py") + block(b"cut") + padded(b"x = 1\n")
    (entry,) = read_tar(bytes(data), "tar")
    assert (entry.name, entry.read()) == ("a.py", b"x = 1\n")


def test_a_link_has_no_data_whatever_size_it_gives():
    data = block(b"link", b"1", b"%o" % 700) + tarred(COMPLETE)
    assert names(bytes(data)) == [("link", "a hard link"), *((name, FILE) for name in COMPLETE)]


@pytest.mark.parametrize("pax", [False, True])
def test_a_sparse_file_is_skipped_with_its_map(pax):
    header = block(b"attention/x.py", b"0" if pax else b"S", b"1000")
    data = bytes(header)
    if pax:
        records = b"22 GNU.sparse.major=1\n"
        data = block(b"x", b"x", b"%o" % len(records)) + padded(records) + header
    else:
        header[482] = 1  # the map goes on
        more = bytearray(512)
        more[504] = 1
        data = signed(header) + more + bytes(512)
    data = bytes(data) + padded(b"y" * 0o1000) + tarred(COMPLETE)
    assert names(data) == [("attention/x.py", "a sparse file"), *((n, FILE) for n in COMPLETE)]


HOSTILE = {
    "a negative size": block(b"x", size=b"\xff" * 12),
    "a size of no digits": block(b"x", size=b"-1"),
    "a size with a separator": block(b"x", size=b"1_0"),
    "a pax record that ends before it begins": block(b"x", b"x", b"4") + padded(b"0 a="),
    "a pax record longer than its header": block(b"x", b"x", b"5") + padded(b"9 a=b"),
    "a pax record without a length": block(b"x", b"x", b"5") + padded(b"a=bc\n"),
    "a pax record of endless digits": block(b"x", b"x", b"20000") + padded(b"1" * 0o20000),
    "a pax size of no digits": (
        block(b"x", b"x", b"12") + padded(b"10 size=x\n") + block(b"x")
    ),
    "a pax header larger than any is": (
        block(b"x", b"x", b"%o" % (2 * MB)) + (b"%d comment=" % (2 * MB)).ljust(2 * MB, b"#")
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_header_that_cannot_be_is_damage(desk, what):
    data = bytes(block(KV.encode())) + bytes(HOSTILE[what]) + tarred(COMPLETE)
    assert desk.hand_in(desk.file("hw1.tar", data)).notes == (DAMAGED,)
    assert desk.taken == {}


def test_a_size_beyond_the_end_is_cut_off(desk):
    for size in (b"\x80" + b"\xff" * 11, b"77777777777", b"1000"):
        data = bytes(block(KV.encode(), size=size))
        notes = desk.hand_in(desk.file("hw1.tar", data)).notes
        assert notes == ("hw1.tar cannot be read as a tar archive: it is cut off",)
        desk.tree.rmdir()


@pytest.mark.parametrize(("kind", "number"), [(b"0", 10_001), (b"g", 30_001)])
def test_a_tar_of_very_many_headers_is_refused(desk, kind, number):
    data = gzip.compress(bytes(block(b"x", kind)) * number, 1)
    notes = desk.hand_in(desk.file("hw1.tgz", data)).notes
    assert notes == ("hw1.tgz holds more than 10,000 entries; hand in only the unit folders",)
