"""Tiles over all elements of all tokens in a row: each element looks up its own token's slot."""

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

LANES = tl.constexpr(512)


@triton.jit
def scatter(k, v, k_cache, v_cache, slots, k_row, v_row, width, total):
    element = tl.program_id(0) * LANES + tl.arange(0, LANES)
    token, column = element // width, element % width
    slot = tl.load(slots + token, mask=element < total, other=-1)
    stored = slot >= 0
    target = tl.where(stored, slot, 0).to(tl.int64) * width + column
    tl.store(k_cache + target, tl.load(k + token * k_row + column, mask=stored), mask=stored)
    tl.store(v_cache + target, tl.load(v + token * v_row + column, mask=stored), mask=stored)


def store_kv(
    k: Float[Tensor, "T K H"],
    v: Float[Tensor, "T K H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    slots: Int[Tensor, "T"],
) -> None:
    if not slots.numel():
        return
    width = k[0].numel()
    total = width * slots.numel()
    grid = (triton.cdiv(total, LANES.value),)
    scatter[grid](k, v, k_cache, v_cache, slots, k.stride(0), v.stride(0), width, total)
