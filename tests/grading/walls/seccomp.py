"""System calls that a submission may not make: they fail with "Permission denied".

A filter is a small program that the kernel runs before each system call of the process and of all
that it starts (Linux: Documentation/userspace-api/seccomp_filter.rst).
"""

from __future__ import annotations

import ctypes
import errno
import struct

from tests.grading.walls import kernel

# Numbers by processor: x86_64, aarch64.
NETWORK = {  # what leads to other processes, and what outlives its own
    "socket": (41, 198),  # of any family: Unix sockets lead to the machine's services
    "io_uring_setup": (425, 425),  # makes sockets and opens files past such a filter
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
}
DEBUGGING = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
}

_PROCESSORS = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column, AUDIT_ARCH_…
_X32 = 0x40000000  # from here on the numbers are another interface to the same calls

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06  # BPF
_NUMBER, _PROCESSOR = 0, 4  # offsets in struct seccomp_data
_ALLOW, _KILL, _REFUSE = 0x7FFF0000, 0x80000000, 0x00050000 | errno.EACCES

_SECCOMP, _SET_MODE_FILTER = {"x86_64": 317, "aarch64": 277}, 1


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse(calls: dict[str, tuple[int, int]]) -> None:
    """Let these calls fail from now on, here and in every process started from here."""
    column, processor = kernel.machine(_PROCESSORS)
    instructions = _filter([numbers[column] for numbers in calls.values()], processor)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS)
    program = _Program(len(instructions), b"".join(instructions))
    zero = ctypes.c_ulong(0)
    kernel.syscall(
        kernel.machine(_SECCOMP), ctypes.c_ulong(_SET_MODE_FILTER), zero, ctypes.byref(program)
    )


def _filter(numbers: list[int], processor: int) -> list[bytes]:
    """Each jump counts the instructions to skip if true, and if false."""
    refusals = len(numbers) + 1
    return [
        _instruction(_LOAD, _PROCESSOR),
        _instruction(_EQUAL, processor, 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
        _instruction(_AT_LEAST, _X32, refusals, 0),
        *(_instruction(_EQUAL, n, refusals - 1 - i, 0) for i, n in enumerate(numbers)),
        _instruction(_RETURN, _ALLOW),
        _instruction(_RETURN, _REFUSE),
    ]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("<HBBI", code, if_true, if_false, value)
