"""Folders that are odd or hostile: links, pipes, what cannot be read, what has no end."""

from __future__ import annotations

import errno
import os
import socket
import sys
from pathlib import Path

import pytest

from tests.grading.intake import folder as folder_
from tests.grading.intake import stage
from tests.staff.intake_samples import COMPLETE, Desk

KV, GENERATE = "attention/kv_cache.py", "attention/generate.py"
ONLY_KV = {KV: b"pass\n"}


@pytest.fixture
def desk(tmp_path) -> Desk:
    return Desk(tmp_path)


def test_links_out_of_a_folder_are_not_followed(desk):
    top = desk.files("assignment", {GENERATE: b"pass\n"})
    secret = desk.file("secret.py", b"SECRET")
    outside = desk.files("outside", {"engine.py": b"SECRET"})
    (top / KV).symlink_to(secret)
    (top / "serving").symlink_to(outside)
    (top / "attention/loop").symlink_to(top)
    staged = desk.hand_in(top)
    assert desk.taken == {GENERATE: b"pass\n"}
    line = "each is left out: it is a symbolic link"
    assert any(note.startswith("serving, ") and note.endswith(line) for note in staged.notes)


def test_the_folder_given_may_itself_be_a_link(desk):
    link = desk.folder / "in" / "latest"
    link.symlink_to(desk.files("assignment", COMPLETE))
    assert desk.hand_in(link).shown == "latest" and desk.taken == COMPLETE


def test_pipes_and_sockets_are_not_opened(desk, monkeypatch):
    top = desk.files("assignment", {GENERATE: b"pass\n"})
    os.mkfifo(top / KV)
    monkeypatch.chdir(top)  # a socket's path has to be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("attention/x.py")
        staged = desk.hand_in(top)
    assert desk.taken == {GENERATE: b"pass\n"}
    assert f"{KV} is left out: it is a named pipe" in staged.notes
    assert "attention/x.py is left out: it is a socket" in staged.notes


def test_a_pipe_or_a_device_handed_in_is_told(desk):
    pipe = desk.folder / "in" / "pipe"
    os.mkfifo(pipe)
    assert desk.hand_in(pipe).notes == ("pipe is no plain file",)
    desk.tree.rmdir()
    assert desk.hand_in(Path("/dev/zero")).notes == ("zero is no plain file",)


def test_a_file_that_cannot_be_read_costs_only_itself(desk, monkeypatch):
    top = desk.files("assignment", COMPLETE)
    real = os.open

    def refuse(path, *rest):
        if Path(path) == top / KV:
            raise PermissionError(errno.EACCES, "no")
        return real(path, *rest)

    monkeypatch.setattr(folder_.os, "open", refuse)
    assert desk.hand_in(top).notes == (f"{KV} cannot be read: Permission denied",)
    assert desk.taken == {name: data for name, data in COMPLETE.items() if name != KV}


def test_a_folder_that_cannot_be_read_costs_only_itself(desk, monkeypatch):
    top = desk.files("assignment", COMPLETE)
    real = os.scandir

    def refuse(path):
        if path == top / "serving":
            raise PermissionError(errno.EACCES, "no")
        return real(path)

    monkeypatch.setattr(folder_.os, "scandir", refuse)
    line = "serving is left out: it is a folder that cannot be read: Permission denied"
    assert line in desk.hand_in(top).notes
    assert desk.taken == {n: d for n, d in COMPLETE.items() if not n.startswith("serving")}


def test_folders_of_tools_are_not_even_listed(desk, monkeypatch):
    tools = [".git", ".venv", "venv", "node_modules", "__pycache__", "build"]
    files = {f"{tool}/lib/attention/kv_cache.py": b"wrong" for tool in tools}
    files |= {"my_env/pyvenv.cfg": b"", "my_env/lib/attention/kv_cache.py": b"wrong"}
    top, listed = desk.files("assignment", {**COMPLETE, **files}), []
    real = os.scandir
    monkeypatch.setattr(
        folder_.os, "scandir", lambda path: (listed.append(path.name), real(path))[1]
    )
    desk.tree.mkdir()
    assert stage(top, desk.tree, desk.course).notes == ()
    assert sorted(listed) == ["assignment", "attention", "extra", "my_env", "serving"]


def test_an_environment_made_in_the_submission_itself_hides_nothing(desk):
    files = {
        "pyvenv.cfg": b"",
        "lib/python3/site-packages/x/y.py": b"",
        "bin/activate_this.py": b"",
    }
    staged = desk.hand_in(desk.files("assignment", {**COMPLETE, **files}))
    assert desk.taken == COMPLETE
    line = "bin/activate_this.py is left out: it is outside the unit folders taken"
    assert staged.notes == (line,)


def test_a_folder_of_data_is_not_looked_into(desk):
    data = {f"corpus/{n}.txt": b"" for n in range(1001)}
    top = desk.files("assignment", {**COMPLETE, **data})
    assert desk.hand_in(top).notes == () and desk.taken == COMPLETE


def test_a_folder_that_is_itself_of_data_is_refused(desk):
    top = desk.files("hw1", {f"{n}.txt": b"" for n in range(1001)})
    assert desk.hand_in(top).notes == ("hw1 is a folder of more than 1,000 entries",)


def test_a_folder_of_very_many_entries_is_refused(desk, monkeypatch):
    top = desk.files("assignment", {**COMPLETE, **{f"{n}/x.txt": b"" for n in range(50)}})
    monkeypatch.setattr(folder_, "MOST_ENTRIES", 100)
    notes = desk.hand_in(top).notes
    assert notes == ("assignment holds more than 100 entries; hand in only the unit folders",)
    assert desk.taken == {}


def test_a_very_deep_folder_ends_somewhere(desk):
    top = desk.files("assignment", COMPLETE)
    deep = top / "attention" / "/".join(["d"] * 500)
    deep.mkdir(parents=True)
    (deep / "x.py").write_bytes(b"")
    desk.hand_in(top)
    assert desk.taken == COMPLETE


def test_names_on_disk_with_windows_separators_are_paths(desk):
    top = desk.folder / "in" / "hw1"
    top.mkdir()
    (top / "assignment\\attention\\kv_cache.py").write_bytes(b"pass\n")
    (top / "a\\..\\..\\escaped.py").write_bytes(b"pass\n")
    staged = desk.hand_in(top)
    assert (desk.taken, staged.shown) == (ONLY_KV, "hw1/assignment")
    assert "a\\..\\..\\escaped.py leads out of its folder" in staged.notes


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS has no such names")
def test_a_name_on_disk_that_is_not_utf_8_does_no_harm(desk):
    top = desk.files("hw1", {})
    os.makedirs(os.fsencode(desk.folder / "in" / "hw1") + b"/J\xf6rg/attention")
    (top / "J\udcf6rg/attention/kv_cache.py").write_bytes(b"pass\n")
    assert desk.hand_in(top).shown == "hw1/J�rg"
    assert desk.taken == ONLY_KV
