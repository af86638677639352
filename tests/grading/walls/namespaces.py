"""Namespaces: what a process can see of the machine at all."""

from __future__ import annotations

import os
from collections.abc import Callable

from tests.grading.walls import kernel


def become_root_of_a_user_namespace() -> None:
    """Gain, without being root, what the other namespaces need. The user's number stays."""
    user, group = os.getuid(), os.getgid()
    kernel.unshare(kernel.CLONE_NEWUSER)
    for file, text in (
        ("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1"),
    ):  # fmt: skip
        with open(f"/proc/self/{file}", "w") as map_:
            map_.write(text)


def leave_the_network() -> None:
    """Into a namespace with no way out, and out of shared memory and message queues."""
    kernel.unshare(kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC)


def continue_as_first_process() -> None:
    """Go on in a child that is the first of a PID namespace: with it all others in there end.

    This process waits for it and takes over its exit status.
    """
    kernel.unshare(kernel.CLONE_NEWPID)
    first = os.fork()
    if first:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # the child's: what it closes is closed
        status = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        os._exit(status if status >= 0 else 128 - status)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, 9)


def forks_into_new() -> Callable[[], int]:
    """An `os.fork` whose child is the first process of a PID namespace of its own."""
    ours = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)

    def fork() -> int:
        kernel.unshare(kernel.CLONE_NEWPID)  # of children to come; no second one until undone
        pid = -1
        try:
            pid = os.fork()
        finally:
            if pid:
                kernel.setns(ours, kernel.CLONE_NEWPID)
        return pid

    return fork
