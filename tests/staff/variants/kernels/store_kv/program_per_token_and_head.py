"""A program for each token and head, which adds up block and offset with the strides."""

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor


@triton.jit
def move_head(source, cache, token, head, block, offset, stride, shape, dim, inside):
    """One head of one token."""
    size, heads, width = shape
    value = tl.load(source + token * stride + head * width + dim, mask=inside)
    place = ((block * size + offset) * heads + head) * width
    tl.store(cache + place + dim, value, mask=inside)


@triton.jit
def store_heads(
    k, v, k_cache, v_cache, slots, k_stride, v_stride,
    SIZE: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    head, token = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + token)
    if slot != -1:
        block, offset = (slot // SIZE).to(tl.int64), slot % SIZE
        dim = tl.arange(0, PADDED)
        inside = dim < WIDTH
        shape = (SIZE, HEADS, WIDTH)
        move_head(k, k_cache, token, head, block, offset, k_stride, shape, dim, inside)
        move_head(v, v_cache, token, head, block, offset, v_stride, shape, dim, inside)


def store_kv(
    k: Float[Tensor, "T K H"],
    v: Float[Tensor, "T K H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    slots: Int[Tensor, "T"],
) -> None:
    tokens, heads, width = k.shape
    size = k_cache.shape[1]
    padded = triton.next_power_of_2(width)
    store_heads[(heads, tokens)](
        k, v, k_cache, v_cache, slots, k.stride(0), v.stride(0),
        SIZE=size, HEADS=heads, WIDTH=width, PADDED=padded, num_warps=1,
    )  # fmt: skip
