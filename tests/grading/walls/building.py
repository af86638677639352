"""Which walls there are, in which order they go up, and which of them this machine lets stand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

from tests.grading.walls import kernel, namespaces, users
from tests.grading.walls.groups import Group
from tests.grading.walls.site import Site

WALLS = ("user", "network", "files", "scratch", "processes", "memory", "debugging")


class Building:
    """The walls of one zygote: begun when it starts, completed round each of its children."""

    def __init__(self, folder: str):
        """Enter the namespaces that all children share; must come before any thread starts.

        Args:
            folder: of the grader, with `tree`, the submission, and `scratch` in it. `close`
                removes it.
        """
        self.missing: dict[str, str] = {}  # name of a wall: why it does not stand
        self.fork: Callable[[], int] = os.fork  # or one into a PID namespace
        self.group: Group | None = None
        self.tree, self.scratch = (os.path.join(folder, name) for name in ("tree", "scratch"))
        self._folder = folder
        if not sys.platform.startswith("linux"):
            self.missing = dict.fromkeys(WALLS, f"this system is {sys.platform}, not Linux")
            return
        self.users = users.free_users()
        with self.noting("processes"):
            self._enter_namespaces()
        with self.noting("memory"):
            self.group = Group(os.path.basename(folder))

    def stands(self, wall: str) -> bool:
        return wall not in self.missing

    @contextmanager
    def noting(self, wall: str) -> Iterator[None]:
        """An OSError in here means that this wall cannot stand."""
        try:
            yield
        except OSError as error:
            self.missing[wall] = str(error)

    def try_out(self) -> None:
        """Try each wall in a process of its own, and note in `missing` what does not stand."""
        if not sys.platform.startswith("linux"):
            return
        reader, writer = os.pipe()
        pid = self.fork()
        if pid == 0:
            with open(writer, "w") as answer:
                Site(self, 0).raise_walls(self.noting)
                json.dump(self.missing, answer)
            os._exit(0)
        os.close(writer)
        with open(reader) as answer:
            self.missing = json.load(answer)
        os.waitpid(pid, 0)

    def confine(self, number: int) -> None:
        """In a child: raise every wall that stood when it was tried. OSError if one now fails."""
        site = Site(self, number)
        site.raise_walls()
        site.settle()

    def killed_for_memory(self) -> int:
        """How many processes of the submission needed too much memory together."""
        return self.group.killed_for_memory() if self.group else 0

    def strays(self, known: Iterable[int]) -> list[int]:
        """Our children beside those known: processes whose parents in a submission are gone."""
        if self.stands("processes") or not sys.platform.startswith("linux"):
            return []
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            return [pid for pid in map(int, file.read().split()) if pid not in set(known)]

    def close(self) -> None:
        """Leave nothing behind."""
        if self.group:
            self.group.remove()
        _remove(self._folder)

    def _enter_namespaces(self) -> None:
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER)  # where no PID namespace ends strays for us
        if os.geteuid() != 0:
            namespaces.become_root_of_a_user_namespace()
        with suppress(OSError):  # the network's other wall is enough
            namespaces.leave_the_network()
        namespaces.continue_as_first_process()
        self.fork = namespaces.forks_into_new()


def clean_up_after(folder: str) -> None:
    """Remove what a zygote that died has left."""
    with suppress(OSError):
        Group(os.path.basename(folder)).remove()
    _remove(folder)


def _remove(folder: str) -> None:
    subprocess.run(["rm", "-rf", folder], check=False)  # Python's own gives up where it is deep
