"""Long work that can be stopped and called again, and that only one process does at a time."""

import argparse
import fcntl
import sys
from collections.abc import Callable
from pathlib import Path


def run_alone(parser: argparse.ArgumentParser, folder: Path, work: Callable[[], None]) -> int:
    """Do `work`, which keeps what it has done in `folder`; the exit code.

    Args:
        parser: of the command. It tells, and ends the process, if another is at work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            parser.error(f"another {parser.prog} is at work in this repository")
        try:
            work()
        except KeyboardInterrupt:
            kept = f"build/{folder.name} keeps what was done"
            print(f"stopped; {kept}: call it again", file=sys.stderr)
            return 130
    return 0
