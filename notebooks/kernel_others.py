"""The other kernels on a GPU, for gpu_kernels.py: a task of a model's size each, beside PyTorch."""

from __future__ import annotations

import math

import torch
from kernel_bench import DIFFERENT, Bench, told
from kernel_clock import Timing, in_turns, micro
from kernel_tasks import MAKERS, Task
from torch import Tensor

OFF = 5e-3  # of its norm that an answer in 16 bits may be off
TOKENS_OFF = 0.02  # a number in float32 may fall on either side of an edge


def measure_others(bench: Bench) -> list[dict]:
    """A row for each kernel that is written."""
    rows = []
    for kernel in MAKERS:
        try:
            rows.append(told(row_of(bench, kernel)))
        except NotImplementedError:
            print(f"  left out: {kernel} is not written yet", flush=True)
    return rows


def row_of(bench: Bench, kernel: str) -> dict:
    tasks = [MAKERS[kernel](bench.device, seed) for seed in range(DIFFERENT)]
    works = {
        "ours": lambda number: bench.others[kernel](*tasks[number % DIFFERENT].arguments),
        "torch": lambda number: tasks[number % DIFFERENT].in_torch(),
    }
    row = {"kernel": kernel, "shape": tasks[0].shape}
    with bench.running():
        off = error(works["ours"](0), tasks[0].right())
        found = in_turns(works, bench.clock)
    floor = least_seconds(bench, tasks[0])
    row |= {"error": float(f"{off:.3g}"), "roofline_us": micro(floor)}
    rows = {name: timing.row(floor if name == "ours" else 0) for name, timing in found.items()}
    if not off <= (TOKENS_OFF if kernel == "rejection_sampling" else OFF):
        rows["ours"] = {"refused": f"wrong: the error is {off:.3g}"}
    return row | rows | {"times_torch": ratio(found["torch"], found["ours"])}


def ratio(torch_took: Timing, ours_took: Timing) -> float:
    """How many times as fast as PyTorch."""
    return float(f"{torch_took.seconds / ours_took.seconds:.3g}")


def error(got: Tensor | tuple[Tensor, ...], right: Tensor) -> float:
    """‖got − right‖ / ‖right‖; of tokens, the share that is another one."""
    parts = got if isinstance(got, tuple) else (got,)
    found = torch.cat([part.flatten().to(right.dtype) for part in parts])
    right = right.flatten()
    if right.dtype == torch.int64:
        return float((found != right).double().mean())
    off = float((found - right).norm() / right.norm())
    return off if off == off else math.inf


def least_seconds(bench: Bench, task: Task) -> float:
    """By the roofline; by memory alone for a GPU that the lab does not know."""
    compute = task.flops / bench.gpu.dot_rate(task.dtype) if bench.gpu and task.flops else 0
    return max(task.bytes / bench.bandwidth, compute)
