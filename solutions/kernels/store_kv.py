"""Write new keys and values into a paged cache: a scatter, and the simplest kernel of a server.

Each step of the engine brings the keys and values of a few tokens, and each belongs in a slot of
its own, anywhere in the cache. Nothing is computed, so bytes are all there is: each is read once
and written once.

Axes: T tokens, which may be none; K KV heads of H channels.
"""

import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor

# BEGIN SOLUTION
TILE = 1024  # elements of a token's K · H that a program moves


@triton.jit
def _store_kernel(
    k, v, k_cache, v_cache, slots, k_stride, v_stride, WIDTH: tl.constexpr, TILE: tl.constexpr
):  # fmt: skip
    """One token's keys and values, TILE elements of its WIDTH."""
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    slot = tl.load(slots + token).to(tl.int64)  # slot · WIDTH passes 2³¹ in a large cache
    wanted = (column < WIDTH) & (slot >= 0)
    key = tl.load(k + token * k_stride + column, mask=wanted, other=0.0)
    value = tl.load(v + token * v_stride + column, mask=wanted, other=0.0)
    tl.store(k_cache + slot * WIDTH + column, key, mask=wanted)
    tl.store(v_cache + slot * WIDTH + column, value, mask=wanted)


# END SOLUTION


def store_kv(
    k: Float[Tensor, "T K H"],
    v: Float[Tensor, "T K H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    slots: Int[Tensor, "T"],
) -> None:
    """Write each token's key and value, in place, into its slot: block · block_size + offset.

    The work is a kernel's: what torch moves beside it counts as bytes, too. The launcher asks the
    GPU for nothing.

    Args:
        k, v: of new tokens, float16, bfloat16 or float32. A token's K · H elements lie together;
            tokens may lie apart, as they do in a slice of a fused projection. Not changed.
        k_cache, v_cache: contiguous, of the same dtype. No other slot changes.
        slots: int64 or int32, different for all tokens; −1 for a token that is not to be stored.

    Hint: a cache of more than 2³¹ elements is an everyday size, and slots may be int32. About 15
    lines with the kernel.
    """
    # BEGIN SOLUTION
    width = k.shape[1] * k.shape[2]
    tile = min(TILE, triton.next_power_of_2(width))
    grid = (len(slots), triton.cdiv(width, tile))
    if len(slots):
        _store_kernel[grid](
            k, v, k_cache, v_cache, slots, k.stride(0), v.stride(0), WIDTH=width, TILE=tile
        )  # fmt: skip
    # END SOLUTION
