"""Two-dimensional tiles, some tokens by some columns; offsets as int64 come from the launcher."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor


@triton.jit
def store_tile(
    k, v, k_cache, v_cache, starts, k_row, v_row, tokens, width,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    start = tl.load(starts + row, mask=row < tokens, other=-1)[:, None]
    mask = (start >= 0) & (column < width)
    key = tl.load(k + row[:, None] * k_row + column, mask=mask, other=0)
    tl.store(k_cache + start + column, key, mask=mask)
    value = tl.load(v + row[:, None] * v_row + column, mask=mask, other=0)
    tl.store(v_cache + start + column, value, mask=mask)


def store_kv(
    k: Float[Tensor, "T K H"],
    v: Float[Tensor, "T K H"],
    k_cache: Float[Tensor, "blocks block_size K H"],
    v_cache: Float[Tensor, "blocks block_size K H"],
    slots: Int[Tensor, "T"],
) -> None:
    tokens = slots.shape[0]
    width = k.shape[1] * k.shape[2]
    starts = slots.to(torch.int64) * width
    grid = (triton.cdiv(width, 128), triton.cdiv(tokens, 4))
    store_tile[grid](
        k, v, k_cache, v_cache, starts, k.stride(0), v.stride(0), tokens, width,
        ROWS=4, COLUMNS=128,
    )  # fmt: skip
