"""System calls that a submission may not make: they fail with "Permission denied".

A filter is a small program that the kernel runs before each system call of the process and of all
that it starts (Linux: Documentation/userspace-api/seccomp_filter.rst).
"""

from __future__ import annotations

import ctypes
import errno
import struct
from typing import NamedTuple

from tests.grading.walls import kernel


class Call(NamedTuple):
    """A system call, refused always, or unless argument & mask == allowed."""

    x86_64: int | None
    aarch64: int | None  # None: this processor has no such call
    error: int = errno.EACCES
    argument: int | None = None
    mask: int = 0
    allowed: int = 0


NETWORK = {  # what leads to other processes, and what outlives its own
    "socket": Call(41, 198),  # of any family: Unix sockets lead to the machine's services
    # A pair of streams is within the process; one of datagrams could be sent anywhere.
    "socketpair": Call(53, 199, argument=1, mask=0xF, allowed=1),
    "io_uring_setup": Call(425, 425),  # makes sockets and opens files past such a filter
    "shmget": Call(29, 194),
    "semget": Call(64, 190),
    "msgget": Call(68, 186),
    "mq_open": Call(240, 180),
    "inotify_init": Call(253, None),
    "inotify_init1": Call(294, 26),
    "fanotify_init": Call(300, 262),
}

_NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW…
DEBUGGING = {
    "ptrace": Call(101, 117),
    "process_vm_readv": Call(310, 270),
    "process_vm_writev": Call(311, 271),
    "pidfd_getfd": Call(438, 438),
    "execve": Call(59, 221),  # also of programs in memory, which Landlock does not see
    "execveat": Call(322, 281),
    "clone": Call(56, 220, argument=0, mask=_NEW_NAMESPACES, allowed=0),
    "clone3": Call(435, 435, error=errno.ENOSYS),  # its flags are in memory; libc then uses clone
    "unshare": Call(272, 97),
    "setns": Call(308, 268),
    "mount": Call(165, 40),
    "fsopen": Call(430, 430),
    "open_tree": Call(428, 428),
    "open_by_handle_at": Call(304, 265),
    "add_key": Call(248, 217),
    "request_key": Call(249, 218),
    "keyctl": Call(250, 219),
    "bpf": Call(321, 280),
    "userfaultfd": Call(323, 282),
    "perf_event_open": Call(298, 241),
    # Space beyond a file's end is taken on the disk, and counts for no limit.
    "fallocate": Call(285, 47, argument=1, mask=0xFFFFFFFF, allowed=0),
}

# Landlock does not ask about these: for a submission that runs as the grader's own user.
ATTRIBUTES = {
    "chmod": Call(90, None), "fchmod": Call(91, 52), "fchmodat": Call(268, 53),
    "fchmodat2": Call(452, 452), "chown": Call(92, None), "fchown": Call(93, 55),
    "lchown": Call(94, None), "fchownat": Call(260, 54), "utime": Call(132, None),
    "utimes": Call(235, None), "futimesat": Call(261, None), "utimensat": Call(280, 88),
    "setxattr": Call(188, 5), "lsetxattr": Call(189, 6), "fsetxattr": Call(190, 7),
    "removexattr": Call(197, 14), "lremovexattr": Call(198, 15), "fremovexattr": Call(199, 16),
}  # fmt: skip

_PROCESSORS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_…
_X32 = 0x40000000  # from here on the numbers are another interface to the same calls

_LOAD, _AND, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x06  # BPF
_NUMBER, _PROCESSOR, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000

_SECCOMP, _SET_MODE_FILTER = {"x86_64": 317, "aarch64": 277}, 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse(calls: dict[str, Call]) -> None:
    """Let these calls fail from now on, here and in every process started from here."""
    processor = kernel.machine({name: name for name in _PROCESSORS})
    instructions = _filter(list(calls.values()), processor)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS)
    program = _Program(len(instructions), b"".join(instructions))
    zero = ctypes.c_ulong(0)
    kernel.syscall(
        kernel.machine(_SECCOMP), ctypes.c_ulong(_SET_MODE_FILTER), zero, ctypes.byref(program)
    )


def _filter(calls: list[Call], processor: str) -> list[bytes]:
    """Each jump counts the instructions to skip if true, and if false."""
    return [
        _instruction(_LOAD, _PROCESSOR),
        _instruction(_EQUAL, _PROCESSORS[processor], 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
        _instruction(_AT_LEAST, _X32, 0, 1),
        _instruction(_RETURN, _REFUSE | errno.EACCES),
        *(part for call in calls for part in _refusal(call, getattr(call, processor))),
        _instruction(_RETURN, _ALLOW),
    ]


def _refusal(call: Call, number: int | None) -> list[bytes]:
    if number is None:
        return []
    unless = []
    if call.argument is not None:  # its lower half: flags are no larger
        unless = [
            _instruction(_LOAD, _ARGUMENTS + 8 * call.argument),
            _instruction(_AND, call.mask),
            _instruction(_EQUAL, call.allowed, 0, 1),
            _instruction(_RETURN, _ALLOW),
        ]
    refused = [*unless, _instruction(_RETURN, _REFUSE | call.error)]
    return [_instruction(_EQUAL, number, 0, len(refused)), *refused]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
