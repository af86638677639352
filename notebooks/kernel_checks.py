"""Are the compiled kernels right? For gpu_kernels.py: random inputs, and float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from kernel_bench import Bench, told
from kernel_cases import Shape, allowed, error, make_case
from torch import Tensor

HALF, BRAIN, SINGLE = torch.float16, torch.bfloat16, torch.float32

SHAPES = (
    # the graded ones
    Shape((8192,), 8, 4, 64),
    Shape((1024,) * 64, 4, 1, 32),
    Shape((1500, 1400, 100, 700, 300, 1200, 900, 1100, 256, 511, 1024, 600), 4, 1, 64),
    # of a model's size, ragged
    Shape((8192, 1, 0, 517, 2048, 1023, 33, 4096)),
    # heads, channels and blocks that divide nothing; requests with no token, or one
    Shape((7, 0, 23), 6, 2, 16, 5, SINGLE),
    Shape((17, 1, 150), 9, 3, 80, 16, HALF),
    Shape((64, 65, 63, 0), 8, 1, 64, 1, BRAIN),
    Shape((500, 40), 28, 4, 128, 32, BRAIN),
    Shape((129, 16), 4, 4, 64, 16, SINGLE),
    # splits, some of them without a token
    Shape((300, 5), 32, 8, 128, 16, HALF, splits=7),
    Shape((17, 1, 150), 9, 3, 80, 16, SINGLE, splits=40),
    # windows: inside a block, of one token, longer than a request
    Shape((100, 33), 28, 4, 64, 16, BRAIN, window=19),
    Shape((4096, 7), 32, 8, 128, 16, HALF, window=1000),
    Shape((100, 3), 6, 2, 64, 16, SINGLE, window=1, splits=2),
)


@dataclass(frozen=True)
class Stored:
    """New tokens for a cache."""

    tokens: int
    kv_heads: int = 8
    head_dim: int = 128
    dtype: torch.dtype = HALF
    slots: torch.dtype = torch.int64

    def __str__(self) -> str:
        kinds = [str(kind).removeprefix("torch.") for kind in (self.dtype, self.slots)]
        sizes = f"{self.tokens} tokens, {self.kv_heads} heads of {self.head_dim}"
        return f"{sizes}, {kinds[0]}, slots {kinds[1]}"

    def arguments(self, device: str, seed: int) -> tuple[Tensor, ...]:
        """Of `store_kv`: slices of a fused projection, slots of chance, every fifth −1."""
        generator = torch.Generator(device).manual_seed(seed)
        fused = torch.randn(
            self.tokens, 3, self.kv_heads, self.head_dim, generator=generator, device=device
        ).to(self.dtype)
        size = (self.tokens // 16 + 3, 16, self.kv_heads, self.head_dim)
        caches = [torch.full(size, math.nan, dtype=self.dtype, device=device) for _ in range(2)]
        order = torch.randperm(size[0] * 16, generator=generator, device=device)[: self.tokens]
        order[4::5] = -1
        return fused[:, 1], fused[:, 2], *caches, order.to(self.slots)


STORED = (
    Stored(1),
    Stored(256),
    Stored(5000, dtype=BRAIN, slots=torch.int32),
    Stored(77, 9, 20, SINGLE, torch.int32),
    Stored(33, 3, 80),
)


def measure_checks(bench: Bench) -> list[dict]:
    """A row for each shape; of a kernel that is not written yet, none."""
    rows = []
    with bench.running():
        for kernel, check in (("store_kv", check_store), ("paged_attention", check_attention)):
            try:
                rows += check(bench)
            except NotImplementedError:
                print(f"  left out: {kernel} is not written yet", flush=True)
    for row in rows:
        if not row["right"]:
            told(row)
    return rows


def check_attention(bench: Bench) -> list[dict]:
    rows = []
    for seed, shape in enumerate(SHAPES):
        case = make_case(shape, bench.device, seed)
        found = judged(lambda case: error(case, bench.attention(*case.arguments())), case)
        rows.append({"kernel": "paged_attention", "shape": str(shape)} | found)
        rows[-1]["right"] = rows[-1].get("error", math.inf) <= allowed(shape.dtype)
    return rows


def check_store(bench: Bench) -> list[dict]:
    rows = []
    for seed, stored in enumerate(STORED):
        case = stored.arguments(bench.device, seed)
        found = judged(lambda case: wrong_share(bench.store, *case), case)
        rows.append({"kernel": "store_kv", "shape": str(stored)} | found)
        rows[-1]["right"] = rows[-1].get("error") == 0
    return rows


def judged(error_of: Callable[[object], float], case: object) -> dict:
    """The error, or what was raised: by the compiler, the launch or the submission."""
    try:
        return {"error": float(f"{error_of(case):.3g}")}
    except NotImplementedError:
        raise
    except Exception as failure:
        told = str(failure).strip().splitlines() or [""]
        return {"failed": f"{type(failure).__name__}: {told[0]}"}


def wrong_share(store: Callable, k: Tensor, v: Tensor, *rest: Tensor) -> float:
    """Of the bytes of both caches, those that are not what they should be."""
    *caches, slots = rest
    right = [cache.clone() for cache in caches]
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            for cache, new in zip(right, (k, v), strict=True):
                cache.flatten(0, 1)[slot] = new[row]
    store(k, v, *caches, slots)
    wrong = [
        (cache.view(torch.uint8) != good.view(torch.uint8)).double().mean()
        for cache, good in zip(caches, right, strict=True)
    ]
    return float(sum(wrong) / 2)
