"""The steps of a set-up: one at a time in a folder, a venv, the packages, a stamp."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time

import stamps
from pythons import find_python
from running import INSTALLING, LOG, explain, run
from telling import Missing, say

DISK_GB = 3  # measured: .venv is 2.2 with every extra and torch's CPU build

CUDA_NOTE = (
    "  torch for Linux brings NVIDIA's libraries, several GB, unless TORCH_INDEX=... names an "
    "index with its CPU build (README.md)"
)

READ_PROJECT = """
import json, sys, tomllib
project = tomllib.load(open(sys.argv[1], "rb"))["project"]
print(json.dumps([project["dependencies"], project["optional-dependencies"]]))
"""


@contextlib.contextmanager
def alone(root):
    """Waits until no other set-up works in this folder; gives the lock, or None without locks."""
    try:
        os.makedirs(os.path.join(root, "build"), exist_ok=True)
        lock = open(os.path.join(root, "build", "setup.lock"), "w")  # noqa: SIM115
    except OSError as error:
        reason = f"cannot write in {root} ({error.strerror}): copy the assignment to another folder"
        raise Missing(reason) from None
    with lock:
        try:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another set-up is at work in this folder; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        except (ImportError, OSError):
            lock = None  # no locks on this system: two set-ups at once are the user's risk
        yield lock


def set_up(root, options, version, lock):
    """Make `.venv` what the pins and `options` say.

    What breaks off while pip unpacks is made anew next time; before, what was there stays good.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    started, stamp = time.time(), stamps.read(root)
    open(os.path.join(root, LOG), "w").close()
    if stamps.must_remake(stamp, root, version, options.torch_index):
        stamp = make_venv(root, stamp, options, lock)
    base, extras = read_project(root)
    wanted = sorted(set(choose(options.extras, extras)) | (set(stamp["extras"]) & set(extras)))
    say(f"installing {', '.join(['base', *wanted])} (log: {LOG})")
    triton = install(root, base + [r for name in wanted for r in extras[name]], stamp, lock)
    stamps.write(
        root,
        dict(
            stamp,
            finished=True,
            fingerprint=stamps.fingerprint(root),
            extras=wanted,
            offered=sorted(extras),
            triton=triton,
        ),
    )
    say(f"set-up done in {time.time() - started:.0f} s")


def check_disk(root):
    free = shutil.disk_usage(root).free / 1e9
    if free < DISK_GB:
        raise Missing(f"about {DISK_GB} GB of disk are needed and {free:.1f} GB are free in {root}")


def make_venv(root, stamp, options, lock):
    """A new venv in place of an old or half-made one of ours."""
    folder = os.path.join(root, ".venv")
    empty = os.path.isdir(folder) and not os.listdir(folder)
    if not stamp and os.path.lexists(folder) and not empty:
        raise Missing(".venv was not made by this set-up: move it away, and run this again")
    python = find_python(options.python)  # before anything is removed
    which = f"Python {stamps.dotted(python.version)} ({python.path})"
    say(f"making .venv with {which}; this takes a few minutes")
    stamp = {
        "finished": False,
        "python": list(python.version),
        "extras": stamp.get("extras", []),
        "torch_index": options.torch_index or stamp.get("torch_index"),
    }
    os.makedirs(folder, exist_ok=True)
    stamps.write(root, stamp)  # first: what stands beside it is known to be ours, and unfinished
    for name in set(os.listdir(folder)) - {stamps.NAME}:
        path = os.path.join(folder, name)
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.remove(path)
    check_disk(root)
    well, output = run([python.path, "-m", "venv", folder], root, lock)
    if not well:
        raise Missing(f"python -m venv failed: {explain(output)} (log: {LOG})")
    return stamp


def read_project(root):
    """Requirements: the base's list, and {extra: list}."""
    path = os.path.join(root, "pyproject.toml")
    output = subprocess.check_output([stamps.venv_python(root), "-c", READ_PROJECT, path])
    return json.loads(output.decode())


def choose(asked, extras):
    unknown = sorted(set(asked) - set(extras) - {"all"})
    if unknown:
        raise Missing(f"no extra {', '.join(unknown)}; there are {', '.join(extras)}, and all")
    return list(extras) if "all" in asked else asked


def install(root, requirements, stamp, lock):
    """Install the requirements at the pinned versions; returns whether Triton is there too."""
    python = stamps.venv_python(root)
    pip = [python, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    pip += ["--progress-bar", "off", "-c", "constraints.txt"]
    torch = [r for r in requirements if r.startswith("torch")]
    triton = [r for r in requirements if r.startswith("triton")]
    rest = [r for r in requirements if r not in triton]

    def attempt(arguments):
        when = {
            "nvidia": lambda: say(CUDA_NOTE),
            INSTALLING: lambda: stamps.write(root, dict(stamp, finished=False)),
        }
        return run(pip + arguments, root, lock, when)

    if stamp["torch_index"]:
        well, output = attempt(["--no-deps", "--index-url", stamp["torch_index"], *torch])
        if not well:
            raise Missing(f"torch from TORCH_INDEX: {explain(output)} (log: {LOG})")
    well, output = attempt(rest)
    if not well:
        raise Missing(f"{explain(output)} (log: {LOG})")
    # Alone and last: a system without Triton can do everything but the kernels unit.
    well, output = attempt(triton)
    there = subprocess.call([python, "-c", "import triton"], stderr=subprocess.DEVNULL) == 0
    if not there:
        reason = "it has no build for this system" if well else explain(output)
        say(f"no Triton: {reason}. The kernels unit is unavailable, the rest works")
    return there
