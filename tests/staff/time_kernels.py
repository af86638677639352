"""A kernel whose work can be shared among programs in several ways, for tests of the time model."""

import triton
import triton.language as tl


@triton.jit
def group_scores(
    query, keys, out, tokens,
    MEMBERS: tl.constexpr, GROUP: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr,
    SPLITS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Σ of scores over each split. Keys are [tokens, HEADS // GROUP, WIDTH]; a program serves
    MEMBERS query heads with one load, and pads them to 16."""
    part, split = tl.program_id(0), tl.program_id(1)
    member, column, step = tl.arange(0, 16), tl.arange(0, WIDTH), tl.arange(0, TILE)
    head = part * MEMBERS + member
    there = member < MEMBERS
    q = tl.load(query + head[:, None] * WIDTH + column[None, :], mask=there[:, None], other=0.0)
    kv_head = part * MEMBERS // GROUP
    share = tl.cdiv(tokens, SPLITS)
    total = tl.zeros((16,), tl.float32)
    for first in range(split * share, tl.minimum(split * share + share, tokens), TILE):
        at = first + step
        place = (at * (HEADS // GROUP) + kv_head) * WIDTH
        tile = tl.load(
            keys + place[:, None] + column[None, :], mask=(at < tokens)[:, None], other=0.0
        )
        total += tl.sum(tl.dot(q, tl.trans(tile)), 1)
    tl.store(out + split * HEADS + head, total, mask=there)
