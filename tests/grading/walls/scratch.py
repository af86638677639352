"""A file system of a child's own: its scratch folder, and open ways to what it may read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from tests.grading.walls import kernel, limits

SHARED_MEMORY = "/dev/shm"


def leave_the_mounts() -> None:
    """From now on nobody else sees what is mounted here, and it ends with this process."""
    kernel.unshare(kernel.CLONE_NEWNS)
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)


def mount(folder: str, user: int) -> None:
    """Let `folder`, and shared memory, hold a limited amount, for this user."""
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    options = f"size={limits.SCRATCH},nr_inodes={limits.FILES},mode=0700,uid={user},gid={user}"
    for place in (folder, SHARED_MEMORY):
        if os.path.isdir(place):
            kernel.mount("tmpfs", place, "tmpfs", flags, options)


def open_the_way(folders: Iterable[str]) -> None:
    """Let every user reach these folders.

    A folder above them that is closed to others, such as /root, gets an empty one laid over it that
    holds nothing but the way.
    """
    places = {place for folder in folders for place in (folder, os.path.realpath(folder))}
    covers = {place: cover for place in sorted(places) if (cover := _outermost_closed(place))}
    held = {place: os.open(place, os.O_PATH) for place in covers}
    for cover in sorted(set(covers.values())):
        kernel.mount("tmpfs", cover, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755")
    for place, descriptor in held.items():  # sorted: what is inside another comes after it
        os.makedirs(place, exist_ok=True)
        kernel.mount(f"/proc/self/fd/{descriptor}", place, flags=kernel.MS_BIND)
        os.close(descriptor)


def _outermost_closed(place: str) -> str:
    """The first folder on the way to `place` that others may not pass; empty if there is none."""
    for folder in reversed(Path(place).parents):
        if not folder.stat().st_mode & stat.S_IXOTH:
            return str(folder)
    return ""
