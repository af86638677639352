"""How long launches would take on a GPU, from what the lab saw of them.

A launch takes at least as long as its slowest part; the model says that it takes just so long:

memory      bytes of all sectors that it touched ÷ bandwidth. No cache helps: what is asked for
            twice is paid for twice.
arithmetic  products ÷ their rate, plus all other FLOPs ÷ the rate of FP32. The sum, as in most
            kernels one waits for the other: a softmax for the scores, the next product for the
            softmax.
busiest     the multiprocessor that ends last. Programs are dealt in the order of the grid, the
            first axis fastest, each to the multiprocessor that is free first, one at a time
            (several at a time would share it, and end no earlier). A program takes the longer
            of two: the bytes that it asks for ÷ what one multiprocessor can move, and its FLOPs
            ÷ what one can compute.

So one giant program is slow, however few bytes it moves; and 133 equal programs that compute take
twice as long as 132 on an H100.

Left out: caches, and what they save; latency, and so whether loads are in flight while a program
computes; how many programs fit a multiprocessor at once, bank conflicts, spills (the compiler's
report tells of these); starting a launch, some microseconds each. A real kernel takes longer, or
less where a cache helps, by a factor that differs from kernel to kernel. So the model is good for
ranking: of two ways to do the same, the one that it finds much faster is the faster one. It is no
clock.

The memory and arithmetic parts alone are the roofline of Williams, Waterman and Patterson, 2009.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from .gpus import GPU, gpu_called
from .launch import Launch
from .memory import SECTOR


@dataclass(frozen=True)
class Prediction:
    """Of one launch, or of several one after the other: then sums.

    seconds; memory, arithmetic, busiest: its parts, in seconds. bytes: moved to and from memory, in
    whole sectors. limit: which part decides ("memory", "arithmetic" or "multiprocessor"); of
    several launches, in the longest. launches: the same of each.
    """

    seconds: float
    memory: float
    arithmetic: float
    busiest: float
    bytes: int
    limit: str
    launches: tuple["Prediction", ...] = field(default=(), repr=False)


def predict(launches: Sequence[Launch], gpu: GPU | str) -> Prediction:
    """The time of launches that wait for each other, on a GPU or one of `GPUS` by name.

    Raises:
        NoRate: the GPU has no rate for a product in them.
        ValueError: no GPU has this name.
    """
    gpu = gpu_called(gpu)
    each = tuple(_predict(launch, gpu) for launch in launches)
    longest = max(each, key=lambda one: one.seconds, default=None)
    return Prediction(
        seconds=sum(one.seconds for one in each),
        memory=sum(one.memory for one in each),
        arithmetic=sum(one.arithmetic for one in each),
        busiest=sum(one.busiest for one in each),
        bytes=sum(one.bytes for one in each),
        limit=longest.limit if longest else "memory",
        launches=each,
    )


def _predict(launch: Launch, gpu: GPU) -> Prediction:
    sectors = sum(t.sectors for t in (*launch.loaded.values(), *launch.stored.values()))
    memory = SECTOR * sectors / gpu.bandwidth
    arithmetic = _arithmetic(launch.dot_flops, launch.vector_flops, gpu)
    busiest = _busiest(launch, gpu)
    parts = {"memory": memory, "arithmetic": arithmetic, "multiprocessor": busiest}
    limit = max(parts, key=parts.__getitem__)
    return Prediction(parts[limit], memory, arithmetic, busiest, SECTOR * sectors, limit)


def _arithmetic(dot_flops: dict[str, int], vector_flops: int, gpu: GPU) -> float:
    """Seconds that all of the GPU needs."""
    products = sum(flops / gpu.dot_rate(dtype) for dtype, flops in dot_flops.items() if flops)
    return products + vector_flops / gpu.fp32_flops_per_second


def _busiest(launch: Launch, gpu: GPU) -> float:
    """When the last multiprocessor is done."""
    ends = [0.0] * gpu.multiprocessors
    for program in _as_dealt(launch.grid):
        heapq.heapreplace(ends, ends[0] + _alone(launch, program, gpu))
    return max(ends)


def _as_dealt(grid: tuple[int, int, int]) -> list[int]:
    """Indices of programs, whose last axis runs fastest, in the order in which its first does."""
    x, y, z = grid
    return [(i * y + j) * z + k for k, j, i in product(range(z), range(y), range(x))]


def _alone(launch: Launch, program: int, gpu: GPU) -> float:
    """Seconds of one program on a multiprocessor of its own."""
    dot = {dtype: flops[program] for dtype, flops in launch.program_dot_flops.items()}
    vector = launch.program_flops[program] - sum(dot.values())
    moving = launch.program_bytes[program] / (gpu.bytes_per_clock * gpu.clock)
    return max(moving, _arithmetic(dot, vector, gpu) * gpu.multiprocessors)
