"""A kernel of one cache, launched for the keys and for the values; a loop along K · H."""

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor


@triton.jit
def store_one(new, cache, slots, row, WIDTH: tl.constexpr, STEP: tl.constexpr):
    token = tl.program_id(0)
    slot = tl.load(slots + token)
    if slot >= 0:
        source = new + token * row
        target = cache + slot.to(tl.int64) * WIDTH
        for start in range(0, WIDTH, STEP):
            at = start + tl.arange(0, STEP)
            tl.store(target + at, tl.load(source + at, mask=at < WIDTH), mask=at < WIDTH)


def store_kv(
    k: Float[Tensor, "T K H"],
    v: Float[Tensor, "T K H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    slots: Int[Tensor, "T"],
) -> None:
    tokens, heads, head_dim = k.shape
    for new, cache in ((k, k_cache), (v, v_cache)):
        if tokens:
            width = heads * head_dim
            store_one[(tokens,)](new, cache, slots, new.stride(0), WIDTH=width, STEP=256)
