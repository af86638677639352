"""The reference's layers and caches of every kind, together in one given model."""

from functools import partial

import pytest
import torch

from assignment.provided.models import AttentionLayer, LayeredLlama, LlamaConfig
from solutions.attention.cross_layer import SharedAttention, kv_owners
from solutions.attention.grouped_query import GroupedQueryAttention
from solutions.attention.kv_cache import KVCache
from solutions.attention.latent import LatentAttention, LatentCache
from solutions.attention.sliding_window import RollingCache, SlidingWindowAttention

ATTENTION = {
    "full": GroupedQueryAttention,
    "local": SlidingWindowAttention,
    "latent": LatentAttention,
    "shared": SharedAttention,
}
CACHES = {"full": KVCache, "local": partial(RollingCache, max_rollback=3), "latent": LatentCache}
WINDOWS = [4, 4, None, 4, 4, None, 4]


def mixed(share: int) -> LayeredLlama:
    """Local and global layers in blocks, sharing with their kind; at the end one with latents."""
    layers = [
        AttentionLayer(window=window) if owner == index else AttentionLayer(reads=owner)
        for index, (window, owner) in enumerate(
            zip(WINDOWS, kv_owners(WINDOWS, share), strict=True)
        )
    ]
    layers.append(AttentionLayer(latent_dim=10, rope_dim=4))
    sizes = {"d_model": 28, "num_heads": 6, "num_kv_heads": 2, "head_dim": 6, "d_ff": 40}
    config = LlamaConfig(50, len(layers), **sizes, attention=tuple(layers))
    return LayeredLlama(config, ATTENTION, seed=3)


@pytest.fixture
def tokens():
    return torch.randint(50, (3, 30), generator=torch.Generator().manual_seed(5))


@torch.no_grad()
@pytest.mark.parametrize("share", [1, 2, 3])
def test_chunks_of_any_size_equal_one_pass(tokens, share):
    model = mixed(share)
    expected = model(tokens)
    for chunks in ((1,) * 30, (10, 10, 10), (7, 1, 1, 1, 13, 4, 3), (30,)):
        session = model.session(CACHES, 3, 30)
        got = torch.cat([session(part) for part in tokens.split(chunks, dim=1)], dim=1)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_ragged_calls_and_steps_back_equal_one_pass(tokens):
    model = mixed(2)
    expected, session = model(tokens), model.session(CACHES, 3, 30)
    generator = torch.Generator().manual_seed(6)
    while int(session.lengths.min()) < 24:
        room = (30 - session.lengths).clamp(max=5)
        counts = torch.minimum(torch.randint(3, 6, (3,), generator=generator), room)
        starts = session.lengths.tolist()
        part = torch.full((3, 5), 10**9)  # padding: no token at all
        for row, (start, count) in enumerate(zip(starts, counts.tolist(), strict=True)):
            part[row, :count] = tokens[row, start : start + count]
        got = session(part, counts)
        for row, (start, count) in enumerate(zip(starts, counts.tolist(), strict=True)):
            whole = expected[row, start : start + count]
            torch.testing.assert_close(got[row, :count], whole, rtol=1e-4, atol=1e-4)
        back = torch.minimum(torch.randint(0, 3, (3,), generator=generator), counts)
        session.truncate(session.lengths - back)
