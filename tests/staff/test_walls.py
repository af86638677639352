"""The walls, tried from inside a child: what a submission may not do, it cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.grading.errors import SubmissionError
from tests.grading.submission import REPOSITORY
from tests.grading.transport import proxy
from tests.grading.transport.forkserver import ForkServer
from tests.grading.transport.proxy import Name
from tests.grading.walls import WALLS, kernel, limits, seccomp, users

BREAK_OUT = '''
import ctypes, fcntl, mmap, os, resource, signal, socket, subprocess, sys, tempfile, threading, time

def attempt(action):
    """What became of it: "done", or the error in a word."""
    try:
        action()
        return "done"
    except BaseException as error:
        return type(error).__name__

def user():
    return [*os.getresuid(), *os.getresgid()], os.getgroups()
def be_root(): return attempt(lambda: os.setuid(0))
def bind_mount():
    libc = ctypes.CDLL(None)
    return libc.mount(b"/", b"/", None, ctypes.c_ulong(4096), None)

def make_socket(family, kind): return attempt(lambda: socket.socket(family, kind))
def make_pair(): return attempt(socket.socketpair)

def read(path): return attempt(lambda: open(path, "rb").read(1))
def list_folder(path): return attempt(lambda: os.listdir(path))
def write(path): return attempt(lambda: open(path, "ab").write(b"x"))
def load(module): return attempt(lambda: __import__(module))
def execute(path): return attempt(lambda: subprocess.run([path]))

def where(): return os.getcwd(), tempfile.gettempdir(), os.path.expanduser("~"), os.listdir(".")
def fill(folder):
    """MiB that fit, and the error that ended it."""
    written = 0
    with open(os.path.join(folder, "filler"), "wb", buffering=0) as file:
        try:
            while written < 200 * 2**20:
                written += file.write(bytes(2**20))
        except OSError as error:
            return written // 2**20, error.strerror
def many_files():
    for number in range(20_000):
        if attempt(lambda: open(f"file-{number}", "wb").close()) != "done":
            return number

def own_number(): return os.getpid(), os.getppid()
def kill(pid): return attempt(lambda: os.kill(pid, signal.SIGKILL))
def daemonise():
    ready, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.write(told, b"x")
            time.sleep(300)
        os._exit(0)
    os.read(ready, 1)
def fork_bomb():
    number = 0
    try:
        while number < 2000:
            if os.fork() == 0:
                time.sleep(30)
                os._exit(0)
            number += 1
    except OSError:
        return number
    return number
def thread_bomb():
    number = 0
    try:
        while number < 2000:
            threading.Thread(target=time.sleep, args=(30,), daemon=True).start()
            number += 1
    except RuntimeError:
        pass
    return number

def allocate(gigabytes): return attempt(lambda: bytearray(gigabytes * 2**30))
def allocate_shared(gigabytes):
    size = int(gigabytes * 2**30)
    memory = mmap.mmap(-1, size)
    for start in range(0, size, 4096):
        memory[start] = 1
def print_much():
    for _ in range(100):
        os.write(1, b"x" * 2**20)
def descriptors():
    def is_open(number):
        return attempt(lambda: fcntl.fcntl(number, fcntl.F_GETFD)) == "done"
    return [number for number in range(1024) if is_open(number)]
def datagrams(): return attempt(lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM))
def reserve():
    """errno of taking 100 MiB on the disk beyond the end of what is printed"""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate(1, 1, ctypes.c_long(0), ctypes.c_long(100 * 2**20))
    return ctypes.get_errno()
def new_user_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    pid = libc.syscall(56, ctypes.c_long(0x10000000 | signal.SIGCHLD), None, None, None, None)
    if pid == 0:
        os._exit(0)
    return ctypes.get_errno()
def core(): return resource.getrlimit(resource.RLIMIT_CORE)
def call(number):
    """errno of a system call without arguments"""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall(number, 0, 0, 0, 0, 0, 0)
    return ctypes.get_errno()
'''


@pytest.fixture(scope="module")
def server():
    server = ForkServer()
    (server.tree / "toy").mkdir()
    (server.tree / "toy" / "thief.py").write_text(BREAK_OUT)
    yield server
    server.close()


@pytest.fixture(autouse=True)
def child(server):
    proxy.begin(server, time_limit=60)
    yield
    proxy.end()


@pytest.fixture
def wall(server):
    """Skips a test on a machine that cannot have the wall, with the reason."""

    def need(name: str) -> None:
        if name in server.missing_walls:
            pytest.skip(f"{name}: {server.missing_walls[name]}")

    return need


def thief(name: str) -> Name:
    return Name("toy.thief", name)


def test_it_is_a_user_that_nobody_else_is(wall):
    wall("user")
    (numbers, groups), own = thief("user")(), os.getuid()
    assert len(set(numbers)) == 1 and numbers[0] != own and groups == []
    assert thief("be_root")() == "PermissionError"


def test_users_are_unlike_anyone_elses_and_unlike_another_graders():
    one, other = users.free_users(), users.free_users()
    assert len(one) == users.PER_GRADER and not set(one) & set(other)
    assert one.start >= 0x70000000 or one.stop > 1000


def test_it_cannot_mount():
    assert thief("bind_mount")() == -1


@pytest.mark.parametrize(
    ("family", "kind"), [(2, 1), (2, 2), (10, 1), (1, 1), (1, 2), (16, 3)],
    ids=["TCP", "UDP", "TCPv6", "Unix", "Unix datagram", "netlink"],
)  # fmt: skip
def test_it_has_no_network(wall, family, kind):
    wall("network")
    assert thief("make_socket")(family, kind) == "PermissionError"
    assert thief("make_pair")() == "done"  # within itself it may talk


SECRETS = [
    REPOSITORY / "tests" / "attention" / "oracles.py",
    REPOSITORY / "solutions" / "attention" / "kv_cache.py",
    REPOSITORY / "README.md", "/etc/passwd", "/proc/self/environ", "/proc/1/status",
    Path.home() / ".bashrc", "/etc/hostname", "/sys/kernel/notes",
]  # fmt: skip


@pytest.mark.parametrize("path", [str(path) for path in SECRETS])
def test_it_reads_no_test_no_solution_no_home(wall, path):
    wall("files")
    assert thief("read")(path) in ("PermissionError", "FileNotFoundError")


@pytest.mark.parametrize("path", ["/", "/root", "/home", "/tmp", str(REPOSITORY / "tests")])
def test_it_lists_no_folder_of_others(wall, path):
    wall("files")
    assert thief("list_folder")(path) in ("PermissionError", "FileNotFoundError")


def test_it_reads_what_it_needs(server):
    provided = REPOSITORY / "assignment" / "provided" / "models" / "llama.py"
    for path in (provided, pytest.__file__, os.__file__, server.tree / "toy" / "thief.py"):
        assert thief("read")(str(path)) == "done"
    assert thief("load")("assignment.provided.data.traces") == "done"
    assert thief("load")("sqlite3") == "done"  # nothing has loaded it before


@pytest.mark.parametrize("module", ["solutions.attention.kv_cache", "tests.attention.oracles"])
def test_it_imports_neither_solutions_nor_tests(module):
    assert thief("load")(module) == "ModuleNotFoundError"


def test_it_writes_in_its_scratch_folder_only(wall, server):
    wall("files")
    for folder in (server.tree / "toy", server.folder, REPOSITORY, "/tmp", "/var/tmp"):
        assert thief("write")(f"{folder}/mine") in ("PermissionError", "FileNotFoundError")
        assert not Path(folder, "mine").exists()
    assert thief("write")(str(server.tree / "toy" / "thief.py")) == "PermissionError"
    assert thief("write")("mine") == "done" and thief("write")("/dev/null") == "done"


def test_it_executes_nothing(wall):
    wall("files")
    for program in ("/bin/true", "/usr/bin/env"):
        assert thief("execute")(program) == "PermissionError"


def test_its_scratch_folder_is_home_and_gone_with_it(server):
    assert thief("write")("mine") == "done"
    current, temporary, home, files = thief("where")()
    assert current == temporary == home and files == ["mine"]
    proxy.end()
    proxy.begin(server, time_limit=60)
    assert thief("where")()[-1] == []
    assert list(Path(current).iterdir()) == []  # seen from outside it was never there


def test_the_scratch_folder_and_shared_memory_are_small(wall):
    wall("scratch")
    for folder in (".", "/dev/shm"):
        megabytes, error = thief("fill")(folder)
        assert megabytes <= limits.SCRATCH // limits.MiB and error
    assert not Path("/dev/shm/filler").exists()
    assert 100 < thief("many_files")() <= limits.FILES


def test_it_sees_its_own_processes_only(wall):
    wall("processes")
    assert thief("own_number")() == (1, 0)
    for pid in (os.getpid(), os.getppid(), 2):
        assert thief("kill")(pid) == "ProcessLookupError"


def test_what_it_starts_ends_with_it_whatever_it_does(server):
    server.how_it_ended(server.fork())
    before = processes_of(server)
    thief("daemonise")()
    assert len(processes_of(server)) >= len(before) + 2  # the child, and the one it left
    proxy.end()
    server.how_it_ended(server.fork())
    assert processes_of(server) == before


def processes_of(server) -> set[int]:
    """All of one zygote: forks have its command line, which names the server's folder."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if str(server.folder).encode() in (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:
            pass
    return found


@pytest.mark.parametrize("bomb", ["fork_bomb", "thread_bomb"])
def test_it_has_few_processes_and_threads(wall, bomb):
    wall("user")
    assert 10 <= thief(bomb)() < limits.PROCESSES


def test_it_has_little_memory():
    assert thief("allocate")(1) == "done"
    assert thief("allocate")(4) == "MemoryError"


def test_memory_that_counts_for_no_process_is_limited_too(wall):
    wall("memory")
    with pytest.raises(SubmissionError, match="more than 3 GiB of memory"):
        thief("allocate_shared")(3.5)


def test_it_prints_a_limited_amount():
    with pytest.raises(OSError, match="File too large"):
        thief("print_much")()
    assert len(proxy.printed()) < 3000


def test_it_has_no_descriptor_but_its_own():
    assert thief("descriptors")() == [0, 1, 2, 3]
    assert thief("core")() == (0, 0)


SHUT = [name for name, call in seccomp.DEBUGGING.items() if call.argument is None]


@pytest.mark.parametrize("name", SHUT)
def test_doors_into_the_kernel_are_shut(wall, name):
    wall("debugging")
    call = seccomp.DEBUGGING[name]
    number = kernel.machine({"x86_64": call.x86_64, "aarch64": call.aarch64})
    assert thief("call")(number) == call.error  # the filter's own answer


def test_calls_that_are_shut_in_part_are_shut_where_they_harm(wall):
    wall("debugging")
    assert thief("datagrams")() == "PermissionError"
    assert thief("reserve")() == 13
    if kernel.machine({"x86_64": True, "aarch64": False}):
        assert thief("new_user_namespace")() == 13


WITHOUT = """
import json, sys
sys.path.insert(0, {root!r})
from tests.grading.walls import seccomp
seccomp.refuse({{name: seccomp.Call(*numbers) for name, numbers in {calls!r}.items()}})
from tests.grading.transport import proxy
from tests.grading.transport.forkserver import ForkServer
server = ForkServer()
(server.tree / "toy").mkdir()
(server.tree / "toy" / "thief.py").write_text("def f(x): return x + 1")
proxy.begin(server, 60)
print(json.dumps([sorted(server.missing_walls), proxy.Name("toy.thief", "f")(1)]))
proxy.end()
server.close()
"""
CALLS = {
    "unshare": (272, 97), "landlock": (444, 444), "mount": (165, 40), "setresuid": (117, 147),
}  # fmt: skip


@pytest.mark.parametrize(
    ("refused", "missing"),
    [
        (["landlock"], {"files"}),
        (["setresuid"], {"user"}),
        (["mount"], {"scratch"}),
        (["unshare"], {"scratch", "processes"}),
        (list(CALLS), {"files", "user", "scratch", "processes"}),
    ],
    ids=str,
)
def test_a_machine_without_a_wall_grades_and_says_so(server, refused, missing):
    script = WITHOUT.format(root=str(REPOSITORY), calls={name: CALLS[name] for name in refused})
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    told = done.stdout.strip() or pytest.fail(done.stderr)
    walls, answer = eval(told)
    assert answer == 2 and set(walls) <= set(WALLS)
    # a closed folder above Python cannot be opened without mounts: then there is no user either
    assert missing <= set(walls) <= missing | {"user"} | set(server.missing_walls)
