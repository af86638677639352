"""Control groups: limits for all of a submission's processes together (Linux, versions 1 and 2)."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from tests.grading.walls import limits

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "pids")
_SETTINGS = {  # file: value; of each controller, in both versions' names. Some kernels lack some
    "memory": {
        "memory.max": limits.MEMORY_TOGETHER,
        "memory.swap.max": 0,
        "memory.limit_in_bytes": limits.MEMORY_TOGETHER,
        "memory.memsw.limit_in_bytes": limits.MEMORY_TOGETHER,
    },
    "pids": {"pids.max": limits.PROCESSES},
}


class Group:
    """One control group, or in version 1 one for each controller. OSError where none can be."""

    def __init__(self, name: str):
        self._folders: list[Path] = []
        try:
            if "memory" in _words(ROOT / "cgroup.controllers"):
                folder = self._make(ROOT, _own_path(""), name, CONTROLLERS)
                for controller in CONTROLLERS:
                    _set(folder, controller)
            else:
                for controller in CONTROLLERS:
                    _set(self._make(ROOT / controller, _own_path(controller), name), controller)
        except OSError:
            self.remove()
            raise

    def join(self) -> None:
        """Put this process into the group; what it starts is in it from the beginning."""
        for folder in self._folders:
            (folder / "cgroup.procs").write_text("0")

    def killed_for_memory(self) -> int:
        """How many processes the kernel has killed because they needed too much together."""
        for folder, file in (
            (f, n) for f in self._folders for n in ("memory.events", "memory.oom_control")
        ):
            with contextlib.suppress(OSError, ValueError):
                words = _words(folder / file)
                return int(words[words.index("oom_kill") + 1])
        return 0

    def remove(self) -> None:
        """End what is left in the group, and the group. May take a moment: the kernel's own."""
        for folder in self._folders:
            for _ in range(1000):
                for pid in _words(folder / "cgroup.procs"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                try:
                    folder.rmdir()
                    break
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)

    def _make(self, mounted: Path, own: str, name: str, needed: tuple[str, ...] = ()) -> Path:
        """In the nearest of our own groups that may have groups in it with what is needed."""
        for parent in _from_here_up(mounted, own):
            if set(needed) <= set(_words(parent / "cgroup.subtree_control")):
                with contextlib.suppress(PermissionError, FileNotFoundError):
                    folder = parent / name
                    folder.mkdir(exist_ok=True)  # of a zygote that died
                    self._folders.append(folder)
                    return folder
        raise OSError(f"no control group can be made in {mounted}")


def _from_here_up(mounted: Path, own: str) -> Iterator[Path]:
    here = mounted / own.lstrip("/")
    yield from (p for p in (here, *here.parents) if p.is_relative_to(mounted) and p.is_dir())


def _own_path(controller: str) -> str:
    """Where this process is: the line of the controller, or of version 2, which names none."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path
    raise OSError(f"no control group for {controller or 'version 2'}")


def _set(folder: Path, controller: str) -> None:
    known = [file for file in _SETTINGS[controller] if (folder / file).exists()]
    if not known:
        raise OSError(f"{folder} does not limit {controller}")
    for file in known:
        (folder / file).write_text(str(_SETTINGS[controller][file]))


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []
