"""Time on a GPU, for gpu_kernels.py: what a call takes with none of its data in a cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import quantiles

import torch

ROUNDS, WARM_UP = 50, 3
SWEPT = 4  # times as many bytes as the L2 cache holds
WAIT = 1_000_000  # cycles, about 0.6 ms

Clock = Callable[[Callable[[], object]], float]  # seconds that a call takes


class CudaClock:
    """Seconds of GPU time, by its own events.

    Before each call a pass over a large tensor puts everything else out of the L2 cache. It only
    reads: what was written would still be on its way to memory while the call runs. Then the GPU
    waits, until the launches of the call are queued: the time that Python needs is not in it.
    """

    def __init__(self) -> None:
        cache = torch.cuda.get_device_properties(0).L2_cache_size
        self._sweep = torch.zeros(SWEPT * cache // 4, device="cuda")

    def __call__(self, work: Callable[[], object]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._sweep.sum()
        torch.cuda._sleep(WAIT)
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / 1000


@dataclass(frozen=True)
class Timing:
    """Seconds: the median, and the quartiles about it."""

    low: float
    seconds: float
    high: float

    def row(self, floor: float) -> dict:
        """For a file. A time below `floor`, which nothing can be, is refused: the clock is wrong,
        or not all the work was done."""
        if self.seconds < floor:
            too_fast = f"{micro(self.seconds)} µs, and {micro(floor)} µs is the roofline's"
            return {"refused": too_fast}
        return {
            "us": micro(self.seconds),
            "quartiles": [micro(self.low), micro(self.high)],
        }


def in_turns(works: Mapping[str, Callable[[int], object]], clock: Clock) -> dict[str, Timing]:
    """Time each of `works` in every round, one after the other, so that none has a better hour.

    Each is called with the number of its round, to take other inputs than in the one before. The
    first WARM_UP rounds, which may compile, do not count.
    """
    taken = {name: [] for name in works}
    for number in range(WARM_UP + ROUNDS):
        for name, work in works.items():
            seconds = clock(partial(work, number))
            if number >= WARM_UP:
                taken[name].append(seconds)
    return {name: Timing(*quantiles(seconds)) for name, seconds in taken.items()}


def micro(seconds: float) -> float:
    """Microseconds, to four digits."""
    return float(f"{1e6 * seconds:.4g}")
