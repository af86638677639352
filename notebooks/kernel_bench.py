"""What the parts of gpu_kernels.py share: where kernels run, what times them, what is refused."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import torch
from kernel_cases import Case, Shape, allowed, error, make_case
from kernel_clock import Clock, Timing, in_turns, micro
from torch import Tensor

from assignment.provided.lab.kernel import GPU, GPUS
from tests.grading.results import write_whole

COPIED = 2**30  # bytes
DIFFERENT = 4  # inputs that take turns, at least
TIMES_THE_CACHE = 3  # as many bytes as the L2 holds have their caches, together
MOST = 64  # caches


@dataclass(frozen=True)
class Bench:
    """attention, store: the launchers of two kernels; module: that of `attention`. others: of the
    rest, by name.

    clock: seconds that a call takes. running(warps): inside, launches run. gpu: the lab's GPU of
    this one's name, if there is one. bandwidth: bytes/s that no kernel can surpass. cache: bytes of
    the L2 cache. free(): bytes of memory.
    """

    attention: Callable
    store: Callable
    module: ModuleType
    clock: Clock
    running: Callable[..., AbstractContextManager]
    gpu: GPU | None
    bandwidth: float
    cache: int
    free: Callable[[], float]
    device: str = "cuda"
    others: Mapping[str, Callable] = field(default_factory=dict)


Part = Callable[[Bench], object]


def run(parts: Mapping[str, Part], bench: Bench, measured_with: dict, file: Path) -> dict:
    """What the parts find, each written when it is done, beside other parts from the same machine.

    A part whose kernel is not written yet is left out.
    """
    found = json.loads(file.read_text("utf-8")) if file.is_file() else {}
    if any(found.get(name) != value for name, value in measured_with.items()):
        found = dict(measured_with)
    for name, part in parts.items():
        print(name, flush=True)
        started = time.perf_counter()
        try:
            found[name] = part(bench)
        except NotImplementedError:
            print("  left out: the kernel is not written yet", flush=True)
            continue
        write_whole(json.dumps(found, indent=1) + "\n", file)
        print(f"  {time.perf_counter() - started:.0f} s", flush=True)
    return found


def gpu_of(name: str) -> GPU | None:
    """That of the lab: for "NVIDIA H100 80GB HBM3" its H100."""
    return next((gpu for key, gpu in GPUS.items() if re.search(rf"\b{key}\b", name)), None)


def roofline_bandwidth(gpu: GPU | None, properties: object) -> float:
    """The data sheet's, or that of the memory's clock and bus if it is more; bytes/s.

    Infinite for a GPU of which neither is known: nothing is refused then.
    """
    clock = 1e3 * getattr(properties, "memory_clock_rate", 0)  # of which each tick moves two bits
    told = 2 * clock * getattr(properties, "memory_bus_width", 0) / 8
    return max(told, gpu.chip.bandwidth if gpu else 0) or math.inf


def measure_clock(bench: Bench) -> dict:
    one = torch.zeros(1, device=bench.device)
    source, target = torch.ones(2, COPIED, dtype=torch.uint8, device=bench.device)
    works = {"smallest": lambda _: one.zero_(), "copy": lambda _: target.copy_(source)}
    found = in_turns(works, bench.clock)
    known = bench.bandwidth < math.inf
    return {
        "smallest_launch_us": micro(found["smallest"].seconds),
        "copied_bytes_per_second": float(f"{2 * COPIED / found['copy'].seconds:.4g}"),
        "roofline_bytes_per_second": float(f"{bench.bandwidth:.4g}") if known else None,
    }


def some_cases(bench: Bench, shape: Shape) -> list[Case]:
    """Inputs that take turns. A cache too large for copies of it comes with several queries."""
    cases = [make_case(shape, bench.device, seed) for seed in range(num_caches(bench, shape))]
    while len(cases) < DIFFERENT:
        cases.append(replace(cases[0], q=torch.randn_like(cases[0].q)))
    return cases


def num_caches(bench: Bench, shape: Shape) -> int:
    return max(1, min(MOST, math.ceil(TIMES_THE_CACHE * bench.cache / shape.kv_bytes)))


def timed(
    bench: Bench,
    works: Mapping[object, Callable[[Case], Tensor]],
    cases: list[Case],
) -> dict[object, dict]:
    """How long each takes, as a row for a file, if its last answer was right."""
    last: dict[object, tuple[Case, Tensor]] = {}

    def in_round(name: object) -> Callable[[int], None]:
        def work(number: int) -> None:
            case = cases[number % len(cases)]
            last[name] = case, works[name](case)

        return work

    found = in_turns({name: in_round(name) for name in works}, bench.clock)
    floor = cases[0].shape.bytes / bench.bandwidth
    return {name: if_right(found[name], floor, *last[name]) for name in works}


def if_right(timing: Timing, floor: float, case: Case, out: Tensor) -> dict:
    """The first and the last request are looked at."""
    off = error(case, out, sorted({0, case.shape.batch - 1}))
    if off > allowed(case.shape.dtype):
        return {"refused": f"wrong: the error is {off:.3g}"}
    return timing.row(floor)


def told(row: dict) -> dict:
    """The row, printed as soon as it is there."""
    words = []
    for name, value in row.items():
        if isinstance(value, dict):
            value = f"{value['us']} µs" if "us" in value else value["refused"]
        words += [f"{name} {value}"] if not isinstance(value, list) else []
    print("  " + ", ".join(words), flush=True)
    return row
