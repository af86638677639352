"""One child, from the inside: it walls itself in before it loads a line of the submission."""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.grading.walls import kernel, landlock, limits, scratch, seccomp, users

if TYPE_CHECKING:
    from tests.grading.walls.building import Building

REPOSITORY = Path(__file__).resolve().parents[3]
PROVIDED = REPOSITORY / "assignment" / "provided"
SYSTEM = (
    "/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/usr/share/zoneinfo",
    "/etc/ld.so.cache", "/etc/localtime", "/dev/zero", "/dev/random", "/dev/urandom",
)  # fmt: skip
WRITABLE = ("/dev/null",)
HIDDEN = [str(REPOSITORY / name) for name in ("tests", "solutions")]


@contextmanager
def _must_stand(wall: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(f"the wall {wall!r} cannot be raised: {error}") from error


class Site:
    """The walls round this process."""

    def __init__(self, building: Building, number: int):
        self._building, self._number = building, number
        self._home = building.scratch
        is_root = os.geteuid() == 0 and building.stands("user")
        self._user = building.users[number % len(building.users)] if is_root else os.geteuid()

    def raise_walls(self, attempt: Callable[[str], AbstractContextManager] = _must_stand) -> None:
        """Raise the walls that the building has; each within `attempt(its name)`.

        The order matters: the first ones need privileges that the later ones give up.
        """
        steps = {
            "memory": self._join_group,
            "scratch": self._mount_scratch,
            "user": self._become_user,
            "files": self._restrict_files,
            "network": lambda: seccomp.refuse(seccomp.NETWORK),
            "debugging": self._refuse_calls,
        }
        for wall, build in steps.items():
            if self._building.stands(wall):
                with attempt(wall):
                    build()
            elif wall == "scratch":
                self._make_scratch()
            if wall == "user":
                self._give_up_privileges()

    def settle(self) -> None:
        """Live in the scratch folder; find neither tests nor solutions to import."""
        os.chdir(self._home)
        os.environ |= {"HOME": self._home, "TMPDIR": self._home, "USER": "submission"}
        tempfile.tempdir = None
        sys.path[:] = [place for place in sys.path if place != str(REPOSITORY)]
        sys.modules["tests"].__path__ = []

    def _join_group(self) -> None:
        self._building.group.join()

    def _mount_scratch(self) -> None:
        scratch.leave_the_mounts()
        if os.geteuid() == 0:
            scratch.open_the_way([*self._folders(), self._home])
        scratch.mount(self._home, self._user)

    def _make_scratch(self) -> None:
        """A folder without a limit on all its files together: the second best."""
        self._home = os.path.join(self._home, str(self._number))
        os.mkdir(self._home, 0o700)
        if os.geteuid() == 0:
            os.chown(self._home, self._user, self._user)

    def _become_user(self) -> None:
        if os.geteuid() != 0:
            raise OSError("the grader does not run as root")
        users.become(self._user, self._folders())

    def _give_up_privileges(self) -> None:
        limits.set_limits(own_user=self._building.stands("user"))
        if sys.platform.startswith("linux"):
            kernel.drop_capabilities()
            kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS)

    def _restrict_files(self) -> None:
        readable = [*self._readable(), *SYSTEM]
        for hidden in HIDDEN:
            for folder in readable:
                if f"{hidden}/".startswith(f"{os.path.realpath(folder)}/"):
                    raise OSError(f"{hidden} lies in {folder}, which must be readable")
        writable = [self._home, *WRITABLE]
        if self._building.stands("scratch"):
            writable.append(scratch.SHARED_MEMORY)
        landlock.restrict(readable, writable)

    def _refuse_calls(self) -> None:
        shared = {} if self._building.stands("user") else seccomp.ATTRIBUTES
        seccomp.refuse(seccomp.DEBUGGING | shared)

    def _readable(self) -> list[str]:
        """Python, its packages, what is provided, the submission."""
        ours = [place for place in sys.path if place and place != str(REPOSITORY)]
        return [*ours, sysconfig.get_config_var("LIBDIR") or "", str(PROVIDED), self._building.tree]

    def _folders(self) -> list[str]:
        return [place for place in self._readable() if os.path.isdir(place)]
