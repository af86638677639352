"""`store_kv` on a GPU, for gpu_kernels.py: beside PyTorch's index_put_."""

from __future__ import annotations

from collections.abc import Callable

import torch
from kernel_baselines import index_put
from kernel_bench import DIFFERENT, Bench, told
from kernel_clock import in_turns, micro
from torch import Tensor

from assignment.provided.lab.kernel import lab, predict

NEW_TOKENS = (16, 128, 2048, 16_384)
METERED = 2048  # of them: more would take the CPU minutes
KV_HEADS, HEAD_DIM, BLOCK_SIZE = 8, 128, 16
BLOCKS = 32_768  # 1 GiB for a cache

Tokens = tuple[Tensor, Tensor, Tensor]  # keys, values, slots


def measure_store(bench: Bench) -> list[dict]:
    return [told(store_row(bench, tokens)) for tokens in NEW_TOKENS]


def store_row(bench: Bench, tokens: int) -> dict:
    size = (BLOCKS, BLOCK_SIZE, KV_HEADS, HEAD_DIM)
    caches = [torch.zeros(size, dtype=torch.float16, device=bench.device) for _ in range(2)]
    inputs = [new_tokens(tokens, BLOCKS * BLOCK_SIZE, bench.device) for _ in range(DIFFERENT)]
    stores = {"ours": bench.store, "index_put": index_put}

    def in_round(store: Callable) -> Callable[[int], None]:
        def work(number: int) -> None:
            k, v, slots = inputs[number % DIFFERENT]
            store(k, v, *caches, slots)

        return work

    floor = least_bytes(tokens, bench.cache) / bench.bandwidth
    row = {"tokens": tokens, "roofline_us": micro(floor)}
    with bench.running():
        found = in_turns({name: in_round(store) for name, store in stores.items()}, bench.clock)
        for name, store in stores.items():
            right = is_right(store, inputs[-1], caches)
            row[name] = found[name].row(floor) if right else {"refused": "wrong"}
    return row | predicted(bench, tokens)


def least_bytes(tokens: int, cache: int) -> int:
    """That pass between memory and the chip: what is written may still lie in the L2 cache."""
    moved = 2 * tokens * KV_HEADS * HEAD_DIM * torch.float16.itemsize
    return moved + max(0, moved - cache)


def new_tokens(tokens: int, slots: int, device: str) -> Tokens:
    k, v = torch.randn(2, tokens, KV_HEADS, HEAD_DIM, device=device).half()
    return k, v, torch.randperm(slots, device=device)[:tokens]


def is_right(store: Callable, given: Tokens, caches: list[Tensor]) -> bool:
    """Every slot of the caches, as far as an untimed call tells."""
    *new, slots = given
    for cache in caches:
        cache.zero_()
    store(*new, *caches, slots)
    for cache, tokens in zip(caches, new, strict=True):
        flat = cache.flatten(0, 1)
        if not torch.equal(flat[slots], tokens):
            return False
        flat[slots] = 0
    return not any(cache.any() for cache in caches)


def predicted(bench: Bench, tokens: int) -> dict:
    """Metered as it is, on the CPU."""
    if bench.gpu is None or tokens > METERED:
        return {}
    *new, slots = new_tokens(tokens, tokens, "cpu")
    size = (2, -(-tokens // BLOCK_SIZE), BLOCK_SIZE, KV_HEADS, HEAD_DIM)
    caches = torch.zeros(size, dtype=torch.float16)
    with lab() as seen:
        bench.store(*new, *caches, slots)
    prediction = predict(seen.launches, bench.gpu)
    return {"predicted_us": micro(prediction.seconds), "limit": prediction.limit}
