"""Landlock: a process gives up access to all files but some, for itself and all it starts.

Unlike file permissions it needs no other user and no privilege
(Linux: Documentation/userspace-api/landlock.rst).
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable

from tests.grading.walls import kernel

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446  # the same on every processor
_VERSION = 1  # a flag: tell the version

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_KINDS_OF_ACCESS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}  # by version; later ones have 16
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE
_TCP = 0b11  # bind, connect: since version 4
_SIGNALS_AND_ABSTRACT_SOCKETS = 0b11  # since version 6


class _Ruleset(ctypes.Structure):
    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _BeneathPath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("access", ctypes.c_uint64), ("folder", ctypes.c_int32))


def restrict(readable: Iterable[str], writable: Iterable[str]) -> None:
    """From now on, read beneath `readable` only, and beneath `writable` do all but execute.

    Paths that do not exist, or that this user cannot reach, are passed over.
    """
    version = kernel.syscall(_CREATE, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    everything = (1 << _KINDS_OF_ACCESS.get(version, 16)) - 1
    handled = _Ruleset(
        everything,
        _TCP if version >= 4 else 0,
        _SIGNALS_AND_ABSTRACT_SOCKETS if version >= 6 else 0,
    )
    size = ctypes.c_size_t(ctypes.sizeof(handled))
    rules = kernel.syscall(_CREATE, ctypes.byref(handled), size, ctypes.c_uint32(0))
    try:
        for path in readable:
            _allow(rules, path, _READ_FILE | _READ_DIR)
        for path in writable:
            _allow(rules, path, everything & ~_EXECUTE)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS)
        kernel.syscall(_RESTRICT, ctypes.c_int(rules), ctypes.c_uint32(0))
    finally:
        os.close(rules)


def _allow(rules: int, path: str, access: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return
    try:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        rule = _BeneathPath(access if is_folder else access & _ON_FILES, descriptor)
        kernel.syscall(
            _ADD_RULE, ctypes.c_int(rules), ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0)
        )
    finally:
        os.close(descriptor)
