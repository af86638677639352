"""What a name inside a submission says: a path, noise, a module. Pure, on names alone."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from tests.grading.intake.limits import DEEPEST, LONGEST_NAME, LONGEST_PATH

Parts = tuple[str, ...]

NOISE = {"__macosx", "__pycache__", "node_modules", "venv", "site-packages", "build"}
NOISE_ENDINGS = (".pyc", ".pyo", ".egg-info", ".dist-info", "~")
ENVIRONMENT = "pyvenv.cfg"  # the folder with this file is a virtual environment, whatever its name
# Parts of the course that are not the student's to write; nothing below them is looked at.
NOT_THEIRS = {"provided", "tests", "handout", "notebooks"}


def fault_of(name: str) -> str:
    """Why `name` is no path to look at, or the empty string."""
    if "\0" in name:
        return "has a NUL character in its name"
    if len(name) > LONGEST_PATH or len(split(name)) > DEEPEST:
        return "has too long a path"
    return "leads out of its folder" if ".." in split(name) else ""


def split(name: str) -> Parts:
    """The parts of a path. Windows' separators count, a leading / or drive is only a folder."""
    return tuple(part for part in name.replace("\\", "/").split("/") if part not in ("", "."))


def is_noise(part: str) -> bool:
    """A file or folder that tools make and nobody hands in on purpose."""
    lower = part.lower()
    hidden = lower.startswith(".") and lower != ".."
    return hidden or lower in NOISE or lower.endswith(NOISE_ENDINGS)


def is_theirs(folders: Sequence[str]) -> bool:
    return not any(folder.lower() in NOT_THEIRS for folder in folders)


def is_python(name: str) -> bool:
    return name.lower().endswith(".py")


def stem(name: str) -> str:
    return name[: -len(".py")]


def importable(name: str) -> str | None:
    """`name` as an import statement spells it (NFKC), None if none can name it."""
    if not _fits(name):  # before it is normalised, which can take quadratic time
        return None
    spelled = unicodedata.normalize("NFKC", name)
    return spelled if _fits(spelled) and spelled.isidentifier() else None


def _fits(name: str) -> bool:
    return len(name.encode(errors="replace")) <= LONGEST_NAME
