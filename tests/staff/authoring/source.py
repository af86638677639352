"""Reading source files, and faults that name a file and a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


class BadFile(Exception):
    """A file that cannot be used; the text says which, what came and what was expected."""


@dataclass(frozen=True, order=True)
class Fault:
    """Something an author has to mend, shown as `path:line: message`; line 0 is all of it."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.message}"


def decode(data: bytes) -> str:
    """Text of a source file: UTF-8 with or without a byte-order mark, every line ended by LF.

    One form for all, so that a checkout with CRLF gives the same stubs as one without.
    """
    text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    return text if not text or text.endswith("\n") else text + "\n"


def read(path: Path, root: Path) -> str:
    """A text file, as `decode` gives it; BadFile when there is none."""
    try:
        data = path.read_bytes()
        return decode(data)
    except UnicodeDecodeError as error:
        came = f"byte {error.start} is 0x{data[error.start]:02x}"
        raise BadFile(f"{relative(path, root)}: {came}; expected text in UTF-8") from None
    except OSError as error:
        raise BadFile(f"{relative(path, root)}: cannot be read: {error.strerror}") from None


def relative(path: Path, root: Path) -> str:
    """The path as messages show it: from the repository's root, with forward slashes."""
    return path.relative_to(root).as_posix()


def is_junk(path: Path) -> bool:
    """Whether a name is never a source: hidden, or Python's cache."""
    return path.name.startswith(".") or path.name == "__pycache__"


def units(tree: Path) -> list[Path]:
    """The unit folders of `solutions` or `assignment`, sorted; `provided` is no unit."""
    if not tree.is_dir():
        return []
    folders = (path for path in tree.iterdir() if path.is_dir() and not is_junk(path))
    return sorted(path for path in folders if path.name != "provided")
