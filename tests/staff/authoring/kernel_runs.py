"""What the handout shows of the kernel lab: the worked examples, watched and compiled.

    python -m tests.staff.authoring.kernel_runs [--check]

It writes handout/kernels.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import triton

from assignment.provided.lab.kernel import GPUS, Lab, Launch, examples, lab, predict
from assignment.provided.lab.kernel.compiled import compile_launch
from assignment.provided.lab.kernel.showing import in_words
from tests.staff.authoring import kernel_mistakes
from tests.staff.authoring.source import ROOT

FILE = Path("handout/kernels.json")
LENGTH = 4000  # of the vectors: TILE does not divide it
ROWS, COLUMNS = 8, 1000  # of the matrix
SHOWN = ("registers", "spilled", "shared", "loads", "wide_loads", "tensor_core", "programs_at_once")


def vectors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(LENGTH) / 7, torch.ones(LENGTH)


def watched(function: Callable, *arguments) -> Lab:
    with lab() as seen:
        function(*arguments)
    return seen


def described(launch: Launch) -> dict:
    moved = [
        {"name": name, "way": way, **vars(traffic)}
        for way, by_name in (("loaded", launch.loaded), ("stored", launch.stored))
        for name, traffic in by_name.items()
    ]
    return {
        "kernel": launch.kernel,
        "programs": launch.programs,
        "arguments": moved,
        "flops": launch.vector_flops,
        "seconds": predict([launch], GPUS["H100"]).seconds,
        "faults": [str(problem) for problem in launch.problems],
    }


def runs() -> dict[str, list[dict]]:
    """By function, its launches."""
    x, y = vectors()
    matrix = (torch.arange(ROWS * COLUMNS) % 11 / 3).view(ROWS, COLUMNS)
    given = {
        examples.add: (x, y),
        examples.add_interleaved: (x, y),
        examples.add_without_mask: (x, y),
        examples.softmax: (matrix,),
        examples.softmax_in_three: (matrix,),
        kernel_mistakes.add_overlapping: (x, y),
        kernel_mistakes.add_to_nothing: (x, y),
    }
    return {
        function.__name__: [described(launch) for launch in watched(function, *arguments).launches]
        for function, arguments in given.items()
    }


def shown() -> dict[str, str]:
    """By function, what `show` prints."""
    return {
        function.__name__: in_words(watched(function, *vectors()), GPUS["H100"])
        for function in (examples.add, examples.add_interleaved)
    }


def reports() -> dict[str, list[dict]]:
    """What the compiler makes of the examples, in other sizes, and of products with few rows."""
    return {
        "softmax": [
            {"columns": columns, "num_warps": warps} | softmax_compiled(columns, warps)
            for columns, warps in (
                (1000, 4), (1024, 4), (8192, 4), (16_384, 4), (32_768, 4), (32_768, 16),
            )
        ],
        "add": [
            {"kernel": kernel.fn.__name__, "length": length, "tile": tile}
            | add_compiled(kernel, length, tile)
            for kernel, length, tile in (
                (examples._add_kernel, 4096, 256),
                (examples._add_kernel, 4096, 512),
                (examples._add_kernel, 4001, 512),
                (examples._add_interleaved_kernel, 4096, 512),
            )
        ],
        "scores": [{"rows": rows} | scores_compiled(rows) for rows in (4, 16, 32)],
    }  # fmt: skip


def softmax_compiled(columns: int, warps: int) -> dict:
    x = torch.empty(1, columns)
    named = {"TILE": triton.next_power_of_2(columns), "num_warps": warps}
    return compiled(examples._softmax_kernel, (x, x.clone(), columns), named)


def add_compiled(kernel: triton.JITFunction, length: int, tile: int) -> dict:
    x, y, out = (torch.empty(length) for _ in range(3))
    return compiled(kernel, (x, y, out, length), {"TILE": tile})


def scores_compiled(rows: int) -> dict:
    queries, keys = (torch.empty(n, 128, dtype=torch.float16) for n in (rows, 64))
    sizes = {"ROWS": rows, "TILE": 64, "WIDTH": 128}
    return compiled(kernel_mistakes.scores, (queries, keys, torch.empty(rows, 64)), sizes)


def compiled(kernel: triton.JITFunction, arguments: tuple, named: dict) -> dict:
    report = compile_launch(kernel, arguments, named)
    return {name: getattr(report, name) for name in SHOWN}


def made() -> dict:
    return {
        "triton": triton.__version__,
        "runs": runs(),
        "shown": shown(),
        "compiled": reports(),
    }


def differences(kept: dict) -> list[str]:
    """What of the file is out of date. What is compiled is compared for the same Triton only."""
    stale = [name for name, make in (("runs", runs), ("shown", shown)) if kept.get(name) != make()]
    if kept.get("triton") == triton.__version__ and kept["compiled"] != reports():
        stale.append("compiled")
    return stale


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.staff.authoring.kernel_runs")
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    file = root / FILE
    if not parser.parse_args(arguments).check:
        file.write_text(json.dumps(made(), indent=1) + "\n", encoding="utf-8")
        return 0
    stale = differences(json.loads(file.read_text("utf-8"))) if file.is_file() else ["all of it"]
    if stale:
        print(
            f"{FILE} is out of date ({', '.join(stale)}): "
            "run `python -m tests.staff.authoring.kernel_runs`"
        )
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
