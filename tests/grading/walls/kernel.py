"""System calls of Linux that Python 3.11 does not offer. Each raises OSError when it fails."""

from __future__ import annotations

import ctypes
import os
import platform
import sys

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 4096, 1 << 14, 1 << 18

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38

_CAPABILITIES_V3 = 0x20080522
_CAPSET = {"x86_64": 126, "aarch64": 91}

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Leave the namespaces of these kinds for new ones."""
    _check(_libc.unshare(ctypes.c_int(flags)))


def setns(descriptor: int, kind: int) -> None:
    """Join the namespace that the descriptor names; for PIDs, the next child does."""
    _check(_libc.setns(ctypes.c_int(descriptor), ctypes.c_int(kind)))


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    _check(
        _libc.mount(
            source.encode(),
            os.fsencode(target),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            options.encode() or None,
        )
    )


def prctl(option: int, value: int = 1) -> None:
    zero = ctypes.c_ulong(0)
    _check(_libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero))


def hide_from_other_processes() -> None:
    """Let no process of the same user read this one's memory or environment (Linux only)."""
    if sys.platform.startswith("linux"):
        prctl(PR_SET_DUMPABLE, 0)


def syscall(number: int, *arguments: object) -> int:
    """A system call by its number; the arguments are ctypes values."""
    return _check(_libc.syscall(ctypes.c_long(number), *arguments))


def drop_capabilities() -> None:
    """A change of user drops them too, but root of a user namespace only has them dropped so."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    syscall(machine(_CAPSET), ctypes.byref(header), ctypes.byref(nothing))


def machine(by_machine: dict) -> object:
    """What the table says for this machine's processor; OSError where it says nothing."""
    name = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    if not sys.platform.startswith("linux"):
        raise OSError(f"this system is {platform.system()}, not Linux")
    if name not in by_machine:
        raise OSError(f"not known for the processor {name}")
    return by_machine[name]


def _check(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
