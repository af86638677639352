"""How much a submission may use. Limits by process hold on every system."""

from __future__ import annotations

import contextlib
import resource

MiB, GiB = 2**20, 2**30

SCRATCH = 64 * MiB  # in files of its own, all together
FILES = 4096
OUTPUT = 64 * MiB  # the largest file it can write, and so what it can print
PROCESSES = 64  # and threads, all together
OPEN_FILES = 256
MEMORY = 2 * GiB  # a process, beyond what the grader gave it
MEMORY_TOGETHER = 3 * GiB
GRADER = 8 * GiB  # the grader itself
CPU_PER_TEST = 240  # seconds, on all cores: the grader's patience ends long before
CPU = 4 * 3600


def set_limits(own_user: bool) -> None:
    """Limit this process and each that it starts; `own_user`: it shares its user with no other."""
    _limit("CORE", 0)
    _limit("FSIZE", OUTPUT)
    _limit("NOFILE", OPEN_FILES)
    _limit("CPU", CPU)
    with contextlib.suppress(OSError):  # only Linux has the file, and only there do these hold
        size, _, _, _, _, data, _ = _pages()
        _limit("AS", size * resource.getpagesize() + 2 * MEMORY)
        _limit("DATA", data * resource.getpagesize() + MEMORY)
        _limit("NPROC", PROCESSES if own_user else PROCESSES + _threads())  # counted by user
    allow_cpu_for_a_test()


def limit_the_grader() -> None:
    """What a submission answers may make it run out of memory: then a test fails, and not more."""
    with contextlib.suppress(OSError, ValueError):
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        resource.setrlimit(resource.RLIMIT_DATA, (GRADER, hard))


def allow_cpu_for_a_test() -> None:
    """A second clock for one test, should the grader's own not ring."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = int(usage.ru_utime + usage.ru_stime)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    with contextlib.suppress(ValueError, OSError):  # beyond the hard limit: then that one holds
        resource.setrlimit(resource.RLIMIT_CPU, (used + CPU_PER_TEST, hard))


def _limit(name: str, most: int) -> None:
    kind = getattr(resource, f"RLIMIT_{name}")
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _pages() -> list[int]:
    with open("/proc/self/statm") as file:
        return [int(word) for word in file.read().split()]


def _threads() -> int:
    """How many threads the machine runs: no fewer than the user has."""
    with open("/proc/loadavg") as file:
        return int(file.read().split()[3].partition("/")[2])
