"""Finding a Python that can make the environment, and saying what is wrong with the others."""

import collections
import os
import subprocess

from stamps import dotted
from telling import Missing, say

OLDEST, NEWEST = (3, 11), (3, 14)  # NEWEST: the last one that the pinned torch is built for

Python = collections.namedtuple("Python", "path version lacks")

PROBE = """
import sys
lacks = []
for module in ("venv", "ensurepip", "ssl"):
    try:
        __import__(module)
    except ImportError:
        lacks.append(module)
print(getattr(sys, "_base_executable", None) or sys.executable)
print("%d %d %d" % sys.version_info[:3])
print(" ".join(lacks))
"""


def probe(command):
    """The Python behind `command`, or None if none runs there."""
    try:
        environ = dict(os.environ, PYTHONIOENCODING="utf-8:surrogateescape")
        output = subprocess.check_output(
            [command, "-c", PROBE], stderr=subprocess.DEVNULL, env=environ
        )
        path, version, lacks = os.fsdecode(output).splitlines()[:3]
        return Python(path, tuple(int(n) for n in version.split()), tuple(lacks.split()))
    except (OSError, ValueError, subprocess.CalledProcessError):
        return None


def find_python(asked=None, probe=probe):
    """The best Python of this machine, or the one `asked` for; raises Missing with a reason."""
    minors = range(NEWEST[1], OLDEST[1] - 1, -1)
    commands = [asked] if asked else ["python3", *(f"python3.{n}" for n in minors), "python"]
    found = list(collections.OrderedDict.fromkeys(p for p in map(probe, commands) if p))
    fit = [p for p in found if p.version[:2] >= OLDEST]
    if asked and not found:
        raise Missing(f"PYTHON={asked} does not run; name a Python {dotted(OLDEST)} or newer")
    if not fit:
        seen = ", ".join(f"{dotted(p.version)} ({p.path})" for p in found) or "none at all"
        raise Missing(
            f"Python {dotted(OLDEST)} or newer is needed; found: {seen}. "
            "Install one, or name it: make setup PYTHON=/path/to/python3.12"
        )
    best = min(fit, key=lambda p: (bool(p.lacks), p.version[:2] > NEWEST))
    if best.lacks:
        raise Missing(
            f"Python {dotted(best.version)} ({best.path}) lacks its module "
            f"{' and '.join(best.lacks)}. Install it (Debian, Ubuntu: apt install "
            f"python{dotted(best.version[:2])}-venv), or name another Python: "
            "make setup PYTHON=/path/to/python3.12"
        )
    if best.version[:2] > NEWEST:
        say(f"  Python {dotted(best.version)} is newer than any this was tried with; trying it")
    return best
