"""Check and time your kernels on a GPU: `make bench BENCH=kernels` writes gpu_kernels.json.

    python notebooks/gpu_kernels.py                  all parts, under 5 minutes
    python notebooks/gpu_kernels.py checks variants  some of them

What is done is written at once, in the place of the old figures. The parts:

    clock     time of the smallest launch; bandwidth of a copy, which reads and writes
    checks    both of these, compiled, against float64 on random inputs of many shapes
    decode    `paged_attention` by batch and context, 32 query heads on 8 KV heads of 128, float16,
              blocks of 16. Beside it PyTorch's scaled_dot_product_attention, over keys and values
              that were gathered before ("sdpa"), and gathered in the timed call ("gather and sdpa")
    store     `store_kv`, beside index_put_, by number of new tokens
    variants  of `paged_attention`: tile, splits and warps. For each shape, Spearman's correlation
              of predicted with measured time, over all that fit on the GPU
    others    the other six kernels: a task of a model's size each, the error against float64, and
              how many times as fast as PyTorch's own operations, whose weights are not quantised

Times, in microseconds, are medians of many calls, each with other inputs than the one before and
none of them in a cache; candidate and baselines take turns. What would be faster than the bytes
allow, or has come out wrong, is refused. "predicted_us" is by the lab's time model, for the GPU
that this one is called after; the counts are metered on the CPU for one request and one KV head,
and multiplied, where the grid shows that each program works for one of each.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    import torch
    import triton
except ModuleNotFoundError as error:
    print(f"the bench of the kernels needs {error.name}, which there is for Linux")
    sys.exit()

from jaxtyping import config

import tests.grading.notebook  # noqa: F401  (makes `submission` importable)
from submission.kernels.paged_attention import paged_attention
from submission.kernels.store_kv import store_kv
from tests.grading.errors import SubmissionError

# isort: split
# After the path to the repository is known.
from kernel_bench import Bench, gpu_of, measure_clock, roofline_bandwidth, run
from kernel_checks import measure_checks
from kernel_clock import CudaClock
from kernel_decode import measure_decode, measure_variants
from kernel_others import measure_others
from kernel_store import measure_store
from kernel_tasks import MAKERS
from kernel_variants import on_gpu

FILE = Path(__file__).with_suffix(".json")
COMMAND = "make bench BENCH=kernels"
NO_GPU = "the bench of the kernels needs a GPU of NVIDIA's, and PyTorch finds none here"
PARTS = {
    "clock": measure_clock,
    "checks": measure_checks,
    "decode": measure_decode,
    "store": measure_store,
    "variants": measure_variants,
    "others": measure_others,
}


def main(asked: list[str]) -> int:
    if unknown := [name for name in asked if name not in PARTS]:
        print(f"no part {unknown[0]!r}: there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    if not torch.cuda.is_available():
        print(NO_GPU)
        return 0
    config.update("jaxtyping_disable", True)
    try:
        found = run({name: PARTS[name] for name in asked or PARTS}, bench_here(), head(), FILE)
    except SubmissionError as error:
        print(error, file=sys.stderr)
        return 1
    return 0 if all(row["right"] for row in found.get("checks", [])) else 1


def bench_here() -> Bench:
    properties = torch.cuda.get_device_properties(0)
    gpu = gpu_of(properties.name)
    return Bench(
        attention=paged_attention,
        store=store_kv,
        module=sys.modules[paged_attention.__module__],
        clock=CudaClock(),
        running=on_gpu,
        gpu=gpu,
        bandwidth=roofline_bandwidth(gpu, properties),
        cache=properties.L2_cache_size,
        free=free,
        others={
            name: getattr(import_module(f"submission.kernels.{name}"), name) for name in MAKERS
        },
    )


def kernel(name: str) -> Callable:
    return getattr(import_module(f"submission.kernels.{name}"), name)


def free() -> int:
    """Bytes of the GPU's memory, when PyTorch has given back what it keeps for later."""
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info()[0]


def head() -> dict:
    """What the figures are measured with."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "machine": f"{properties.name}, {properties.multi_processor_count} multiprocessors",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "command": COMMAND,
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
