"""Requests whose latents and rotary keys lie scattered over the blocks of a cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tests.kernels.paged_inputs import draw_tables

HEADS_TOGETHER = 32  # for which the ideal reads a token's row once


@dataclass(frozen=True)
class Latent:
    """Arguments of `latent_decode`, in order; each request's latents, [S, C], and rotary keys."""

    arguments: list
    latents: list[Tensor]
    keys: list[Tensor]

    @property
    def q_latent(self) -> Tensor:
        return self.arguments[0]

    @property
    def q_rope(self) -> Tensor:
        return self.arguments[1]

    @property
    def scale(self) -> float:
        return self.arguments[6]

    @property
    def block_size(self) -> int:
        return self.arguments[2].shape[1]

    @property
    def width(self) -> int:
        return self.arguments[2].shape[2]

    @property
    def lengths(self) -> list[int]:
        return [len(latents) for latents in self.latents]

    @property
    def head_tiles(self) -> int:
        return -(-self.q_latent.shape[1] // HEADS_TOGETHER)


def draw_latent(
    draw,
    heads: int,
    lengths: Sequence[int],
    *,
    latent_dim: int = 48,
    rope_dim: int = 16,
    block_size: int = 16,
    dtype: torch.dtype = torch.float16,
    scale: float | None = None,
    num_splits: int | None = None,
    max_length: int | None = None,
    levels: Sequence[tuple[float, float]] = (),
    mean: float = 0.0,
    shared: int = 0,
) -> Latent:
    """Blocks in random order. Whatever is no token's is NaN.

    scale: by default that of heads with fewer channels than a latent.
    levels: of each request, or of none: lowest and highest of its scores, about; each token has its
        own in between, by its rotary key.
    mean: of the latents.
    shared: how many blocks at the beginning are the same for all requests that are so long.
    """
    scale = (latent_dim // 3 + rope_dim) ** -0.5 if scale is None else scale
    q_latent = draw.normal(len(lengths), heads, latent_dim) / 2
    q_rope = draw.normal(len(lengths), heads, rope_dim)
    if levels:
        q_rope = 1 + 0.2 * q_rope
    common = [draw.normal(shared * block_size, width) for width in (latent_dim, rope_dim)]
    latents, keys = [], []
    for row, length in enumerate(lengths):
        latent, key = (draw.normal(length, width) for width in (latent_dim, rope_dim))
        if levels:
            low, high = levels[row]
            key += (low + (high - low) * draw.uniform(length, 1)) / (scale * rope_dim)
        if length >= len(common[0]):
            latent[: len(common[0])], key[: len(common[1])] = common
        latents.append((latent + mean).to(dtype))
        keys.append(key.to(dtype))
    tables, blocks = draw_tables(draw, lengths, block_size, shared)
    cache = torch.full((blocks * block_size, latent_dim + rope_dim), torch.nan, dtype=dtype)
    for latent, key, table in zip(latents, keys, tables, strict=True):
        place = torch.arange(len(latent))
        slots = table.long()[place // block_size] * block_size + place % block_size
        cache[slots] = torch.cat([latent, key], 1)
    queries = [q_latent.to(dtype), q_rope.to(dtype)]
    most = max(lengths) if max_length is None else max_length
    own = torch.tensor(lengths, dtype=torch.int32)
    arguments = [*queries, cache.unflatten(0, (blocks, block_size)), tables, own, most, scale]
    return Latent([*arguments, num_splits], latents, keys)


def least_bytes(latent: Latent, splits: int) -> int:
    """What `splits` programs for each request and 32 heads move at least, and those that put their
    results together: a token's row once, queries once a split, each length and block's number once
    a program, parts in float32 written and read, outputs once."""
    batch, heads, latent_dim = latent.q_latent.shape
    size = latent.q_latent.element_size()
    rows = latent.head_tiles * sum(latent.lengths) * latent.width * size
    queries = splits * batch * (heads * latent.width * size + 4 * latent.head_tiles)
    blocks = sum(-(-length // latent.block_size) for length in latent.lengths)
    parts = 2 * splits * batch * heads * (latent_dim + 1) * 4 if splits > 1 else 0
    return rows + queries + 4 * blocks * latent.head_tiles + parts + latent.q_latent.numel() * size
