"""`paged_attention` on a GPU, for gpu_kernels.py: beside PyTorch's attention, and in versions."""

from __future__ import annotations

from dataclasses import replace

import torch
from kernel_baselines import attention, gathered
from kernel_bench import Bench, num_caches, some_cases, timed, told
from kernel_cases import Case, Shape
from kernel_clock import micro
from kernel_variants import (
    Variant,
    default_splits,
    metered,
    programs,
    rank_correlation,
    recorded,
    tile_of,
    variants,
)
from torch import Tensor
from triton.runtime.errors import OutOfResources

from assignment.provided.lab.kernel import predict

BATCHES, CONTEXTS = (1, 16, 128), (1024, 8192, 32_768)
COMPARED = ((1, 8192), (64, 1024), (16, 8192))  # batch and context of the versions


def measure_decode(bench: Bench) -> list[dict]:
    shapes = [Shape((context,) * batch) for batch in BATCHES for context in CONTEXTS]
    return [told(decode_row(bench, shape)) for shape in shapes]


def decode_row(bench: Bench, shape: Shape) -> dict:
    row = {
        "batch": shape.batch,
        "context": shape.lengths[0],
        "roofline_us": micro(shape.bytes / bench.bandwidth),
    }
    needed = 1.1 * shape.kv_bytes * (2 * num_caches(bench, shape) + 1)  # gathered, and once more
    if needed > bench.free():
        return row | {"left_out": f"needs {needed / 1e9:.0f} GB"}
    try:
        return row | beside_torch(bench, shape)
    except torch.OutOfMemoryError:  # some of PyTorch's ways copy the keys for each query head
        return row | {"left_out": "out of memory"}


def beside_torch(bench: Bench, shape: Shape) -> dict:
    cases = some_cases(bench, shape)
    at_hand = {id(case.k_cache): gathered(case) for case in cases}
    works = {
        "ours": lambda case: bench.attention(*case.arguments()),
        "sdpa": lambda case: attention(case, *at_hand[id(case.k_cache)]),
        "gather and sdpa": lambda case: attention(case, *gathered(case)),
    }
    with bench.running():
        rows = timed(bench, works, cases)
    return rows | predicted(bench, cases[0])


def measure_variants(bench: Bench) -> list[dict]:
    return [told(compare_variants(bench, Shape((context,) * batch))) for batch, context in COMPARED]


def compare_variants(bench: Bench, shape: Shape) -> dict:
    """All that run, in turns."""
    cases, rows, works = some_cases(bench, shape), {}, {}
    for variant in different_variants(bench, cases[0]):
        rows[variant] = vars(variant) | variant_row(bench, variant, cases[0])
        if "does_not_run" not in rows[variant]:
            works[variant] = lambda case, variant=variant: launched(bench, variant, case)
    for variant, row in timed(bench, works, cases).items():
        rows[variant] |= row
    both = [row for row in rows.values() if "us" in row and "predicted_us" in row]
    order = rank_correlation(*([row[key] for row in both] for key in ("predicted_us", "us")))
    return {
        "batch": shape.batch,
        "context": shape.lengths[0],
        "compared": len(both),
        "rank_correlation": round(order, 3) if order == order else None,
        "variants": list(rows.values()),
    }


def different_variants(bench: Bench, case: Case) -> list[Variant]:
    """With the number of splits that each takes by default, None if it cannot be told; of those
    that launch the same, the first."""
    found = {}
    for variant in variants(bench.module):
        with tile_of(bench.module, variant.tile):
            splits = variant.splits or default_splits(bench.attention, case)
            launches = recorded(bench.attention, case, splits)
        found.setdefault((str(launches), variant.warps), replace(variant, splits=splits))
    return list(found.values())


def variant_row(bench: Bench, variant: Variant, case: Case) -> dict:
    try:
        launched(bench, variant, case)
    except OutOfResources as error:  # registers or shared memory that the GPU does not have
        return {"does_not_run": str(error)}
    with tile_of(bench.module, variant.tile):
        case = replace(case, shape=replace(case.shape, splits=variant.splits))
        return predicted(bench, case, variant.tile)


def launched(bench: Bench, variant: Variant, case: Case) -> Tensor:
    with tile_of(bench.module, variant.tile), bench.running(variant.warps):
        return bench.attention(*case.arguments()[:-1], variant.splits)


def predicted(bench: Bench, case: Case, tile: int | None = None) -> dict:
    """By the lab's model; nothing where one request and one KV head cannot speak for all."""
    splits = case.shape.splits or default_splits(bench.attention, case)
    if bench.gpu is None or splits is None:
        return {}
    launches = metered(bench.attention, replace(case.shape, splits=splits), tile)
    really = programs(recorded(bench.attention, case, splits))
    if [launch.programs for launch in launches] != really:
        return {}
    prediction = predict(launches, bench.gpu)
    return {"predicted_us": micro(prediction.seconds), "limit": prediction.limit}
