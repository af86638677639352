"""What a kernel did wrong, in words that help its author."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from .launch import Launch, Problem

__tracebackhide__ = True

MOST_LINES = 5
ADVICE = {
    "load out of bounds": "what lies there may be anything: tl.load needs a mask",
    "store out of bounds": "it would overwrite what lies there: tl.store needs a mask",
    "race": "programs run at once and in any order: what one writes, no other may read or write",
    "unwritten read": "nobody has written to it since it was allocated",
}
NARROW = (
    "here int32 has {bits} bits, as if memory were {times:,} times as large: numbers need "
    ".to(tl.int64) before they are multiplied into an offset that does not fit"
)


class KernelFault(AssertionError):
    """A kernel did what no kernel may: its message lists what, where, in which program."""


def check(launches: Sequence[Launch], integer_bits: int = 32) -> None:
    """
    Args:
        integer_bits: of int32 in these launches; said first where it is not 32.

    Raises:
        KernelFault: there is a problem in one of the launches.
    """
    first: dict[tuple[str, str, str], Problem] = {}
    count: Counter[tuple[str, str, str]] = Counter()
    for launch in launches:
        for problem in launch.problems:
            alike = (launch.kernel, problem.kind, problem.argument)
            first.setdefault(alike, problem)
            count[alike] += 1
    if first:
        lines = _told(first, count)
        if integer_bits < 32:
            lines.insert(0, NARROW.format(bits=integer_bits, times=2 ** (32 - integer_bits)))
        raise KernelFault("\n".join(lines))


def _told(first: dict, count: Counter) -> list[str]:
    """A line for each sort of problem, and what to do about it after the first of its kind."""
    lines, advised = [], set()
    for alike, problem in list(first.items())[:MOST_LINES]:
        more = count[alike] - 1
        lines.append(f"{alike[0]}: {problem}{f', and {more} more such' if more else ''}")
        if problem.kind not in advised:
            advised.add(problem.kind)
            lines.append(f"  {ADVICE[problem.kind]}")
    left = len(first) - MOST_LINES
    return lines + ([f"… and {left} other arguments"] if left > 0 else [])
