"""Zip archives that are odd or hostile: names, kinds, sizes, and what unpacking may cost."""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib

import pytest

from tests.grading.intake.limits import MB
from tests.staff.intake_samples import COMPLETE, Desk, zipped

KV, GENERATE = "attention/kv_cache.py", "attention/generate.py"
OTHERS = {name: data for name, data in COMPLETE.items() if name != KV}


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


def test_windows_separators_are_folders(desk):
    staged = desk.zip({name.replace("/", "\\"): data for name, data in COMPLETE.items()})
    assert desk.taken == COMPLETE and staged.notes == ()


@pytest.mark.parametrize(
    "name",
    ["../{}", "assignment/../../{}", "/etc/../{}", "..\\{}", "a/../{}", "attention/../{}"],
)
def test_a_name_that_leads_out_is_not_followed(desk, name):
    bad = name.format("escaped.py")
    staged = desk.zip({**COMPLETE, bad: b"x"})
    assert desk.taken == COMPLETE
    assert staged.notes == (f"{bad} leads out of its folder",)
    desk_files = [p.name for p in desk.folder.rglob("*")]
    assert "escaped.py" not in desk_files


@pytest.mark.parametrize("top", ["/", "//", "C:\\", "C:/hand-in/", "\\\\server\\share\\"])
def test_an_absolute_path_or_a_drive_is_only_a_folder(desk, top):
    staged = desk.zip({f"{top}{name}": data for name, data in COMPLETE.items()})
    assert desk.taken == COMPLETE and staged.notes == ()


def test_a_name_goes_on_after_a_nul(desk):
    data = zipped({**OTHERS, "attention/kv_cache.pyX.txt": b"x"}).replace(b".pyX.txt", b".py\0.txt")
    staged = desk.hand_in(desk.file("hw1.zip", data))
    assert desk.taken == OTHERS
    assert "attention/kv_cache.py�.txt has a NUL character in its name" in staged.notes


def test_names_in_utf_8_are_shown_as_such_even_if_the_packer_did_not_say_so(desk):
    data = zipped({f"Jörg Müller/{name}": data for name, data in COMPLETE.items()})
    assert struct.unpack_from("<H", data, 6)[0] & 0x800
    unsaid = data.replace(b"PK\3\4\x14\0\0\x08", b"PK\3\4\x14\0\0\0")
    unsaid = unsaid.replace(b"PK\1\2\x14\x03\x14\0\0\x08", b"PK\1\2\x14\x03\x14\0\0\0")
    assert unsaid != data
    assert desk.hand_in(desk.file("hw1.zip", unsaid)).shown == "hw1.zip/Jörg Müller"
    assert desk.taken == COMPLETE


def test_a_name_in_an_old_code_page_is_shown_as_that(desk):
    name = "J\x94rg/attention/kv_cache.py"  # ö in code page 437
    data = zipped({name.replace("\x94", "o"): b"pass\n"}).replace(b"Jorg", b"J\x94rg")
    assert desk.hand_in(desk.file("hw1.zip", data)).shown == "hw1.zip/Jörg"
    assert desk.taken == {KV: b"pass\n"}


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        (stat.S_IFLNK, "a symbolic link"),
        (stat.S_IFIFO, "a named pipe"),
        (stat.S_IFSOCK, "a socket"),
        (stat.S_IFCHR, "a device"),
        (stat.S_IFBLK, "a device"),
    ],
)
def test_a_zip_s_special_entries_are_left_out(desk, mode, kind):
    out = io.BytesIO(zipped(OTHERS))
    with zipfile.ZipFile(out, "a") as packed:
        member = zipfile.ZipInfo(KV)
        member.external_attr = (mode | 0o777) << 16
        packed.writestr(member, "/etc/passwd")
    staged = desk.hand_in(desk.file("hw1.zip", out.getvalue()))
    assert desk.taken == OTHERS
    assert f"{KV} is left out: it is {kind}" in staged.notes


def test_set_user_bits_and_modes_are_not_taken_over(desk):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as packed:
        member = zipfile.ZipInfo(KV)
        member.external_attr = (stat.S_IFREG | 0o6777) << 16
        packed.writestr(member, "pass\n")
    desk.hand_in(desk.file("hw1.zip", out.getvalue()))
    assert stat.S_IMODE((desk.tree / KV).stat().st_mode) == 0o644
    assert stat.S_IMODE((desk.tree / KV).parent.stat().st_mode) == 0o755


def test_a_password_is_told(desk):
    data = zipped(COMPLETE)
    encrypted = data.replace(b"PK\1\2\x14\x03\x14\0\0", b"PK\1\2\x14\x03\x14\0\1", 1)
    assert encrypted != data
    notes = desk.hand_in(desk.file("hw1.zip", encrypted)).notes
    assert notes == ("hw1.zip is protected by a password: hand it in without one",)
    assert desk.taken == {}


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA, 9, 93])
def test_an_unusual_method_costs_only_its_file(desk, method):
    data = zipped({KV: b"pass\n", GENERATE: b"pass\n"}, zipfile.ZIP_STORED)
    at = data.index(b"PK\1\2") + 10
    data = data[:at] + struct.pack("<H", method) + data[at + 2 :]
    notes = desk.hand_in(desk.file("hw1.zip", data)).notes
    assert f"{KV} is packed by method {method}: use Deflate, as most do" in notes
    assert desk.taken == {GENERATE: b"pass\n"}


def test_a_damaged_member_costs_only_its_file(desk):
    data = zipped({KV: b"pass # one\n", GENERATE: b"pass # two\n"}, zipfile.ZIP_STORED)
    notes = desk.hand_in(desk.file("hw1.zip", data.replace(b"# one", b"# 0ne"))).notes
    assert f"{KV} is damaged in the archive" in notes
    assert desk.taken == {GENERATE: b"pass # two\n"}


def with_size(data: bytes, size: int) -> bytes:
    """A zip of one member, whose table of entries says another size."""
    at = data.index(b"PK\1\2") + 24
    return data[:at] + struct.pack("<L", size) + data[at + 4 :]


@pytest.mark.parametrize("size", [0, 3, 11, MB])
def test_a_size_that_is_a_lie_is_damage(desk, size):
    data = with_size(zipped({KV: b"x = 123456\n" * 2}), size)
    notes = desk.hand_in(desk.file("hw1.zip", data)).notes
    assert f"{KV} is damaged in the archive" in notes
    assert desk.taken == {}


def test_a_bomb_that_says_it_is_small_is_not_unpacked(desk, monkeypatch):
    asked = []
    real = zlib.decompressobj

    class Spy:
        def __init__(self, *args):
            self._real = real(*args)

        def decompress(self, data, most=0):
            got = self._real.decompress(data, most)
            asked.append(len(got))
            return got

        def __getattr__(self, name):
            return getattr(self._real, name)

    bomb = with_size(zipped({KV: bytes(50 * MB)}), 1000)
    monkeypatch.setattr(zlib, "decompressobj", Spy)
    notes = desk.hand_in(desk.file("hw1.zip", bomb)).notes
    assert 0 < sum(asked) < MB // 4
    assert f"{KV} is damaged in the archive" in notes and desk.taken == {}


def entry_count(number: int) -> bytes:
    """A zip whose table has so many entries of a few bytes each, without any data."""
    table = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, *[0] * 15) * number
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 65535, 65535, len(table), 0, 0)
    return table + end


@pytest.mark.parametrize("number", [10_001, 300_000])
def test_a_zip_of_very_many_entries_is_refused(desk, number, monkeypatch):
    made = []
    real = zipfile.ZipInfo.__init__
    monkeypatch.setattr(
        zipfile.ZipInfo, "__init__", lambda self, *a, **k: (made.append(1), real(self, *a, **k))[1]
    )
    notes = desk.hand_in(desk.file("hw1.zip", entry_count(number))).notes
    assert notes == ("hw1.zip holds more than 10,000 entries; hand in only the unit folders",)
    assert len(made) < 50_000


def test_entries_that_share_their_bytes_are_bounded(desk):
    """Without a bound each of them would cost the time to read all the bytes that they share."""
    body, names = b"\0\0\0\xff\xff" * 400_000, [f"attention/m{n:03}.py".encode() for n in range(90)]
    files, table, step = bytearray(), bytearray(), 30 + len(names[0])
    for n, name in enumerate(names):
        skipped = (len(names) - 1 - n) * step
        fields = (0, 8, 0, 0, 0, len(body), 1000, len(name))
        table += struct.pack(
            "<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, *fields, *[0] * 5, len(files)
        )
        table += name
        files += struct.pack("<4s2B4HL2L2H", b"PK\3\4", 20, 0, *fields, skipped) + name
    start = len(files) + len(body)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(names), len(names), len(table), start, 0)
    notes = desk.hand_in(desk.file("hw1.zip", bytes(files + body + table + end))).notes
    assert notes == ("hw1.zip unpacks to more than 64 MB; hand in only the unit folders",)
    assert desk.taken == {}
