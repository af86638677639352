"""accounting.memory against real models: what their caches hold, and that caching changes nothing.

A LayeredLlama of each mix of layers, made of the reference's attention layers and caches.
"""

from __future__ import annotations

import pytest
import torch

from assignment.provided.models import AttentionLayer, LayeredLlama, LlamaConfig, key_positions
from solutions.accounting.memory import kv_bytes, kv_bytes_per_token, parameters
from solutions.attention.cross_layer import SharedAttention, kv_owners
from solutions.attention.generate import generate, generate_uncached
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
CACHES = {"full": KVCache, "local": RollingCache, "latent": LatentCache}
VOCAB, CAPACITY = 53, 24


def shared_with(windows: list[int | None], share: int) -> list[AttentionLayer]:
    """Layers with these windows, of which each kind shares in groups of `share`."""
    owners = enumerate(kv_owners(windows, share))
    return [
        AttentionLayer(window=windows[i]) if i == owner else AttentionLayer(reads=owner)
        for i, owner in owners
    ]


FULL, LATENT = AttentionLayer(), AttentionLayer(latent_dim=11, rope_dim=4)
LOCAL, WIDE = AttentionLayer(window=5), AttentionLayer(window=16)
MIXES = {
    "full": [FULL, FULL],
    "local": [LOCAL, AttentionLayer(window=1), WIDE],
    "latent": [LATENT, AttentionLayer(latent_dim=3, rope_dim=10)],
    "one in three full": [LOCAL, LOCAL, FULL, LOCAL, LOCAL, FULL],
    "neighbours share": [FULL, AttentionLayer(reads=0), FULL, AttentionLayer(reads=2)],
    "one owner for all": [FULL, *[AttentionLayer(reads=0)] * 3],
    "shared window": [LOCAL, FULL, AttentionLayer(reads=0), AttentionLayer(reads=1)],
    "latent and local": [LATENT, LOCAL, LATENT],
    "hybrid, sharing": shared_with([6, 6, None, 6, 6, None, 6], share=2),
    "hybrid, sharing in threes": shared_with([None, 4, 4, 4, 4, None, None, 4], share=3),
    "everything": [LATENT, LOCAL, FULL, AttentionLayer(reads=1), WIDE, AttentionLayer(reads=2)],
}
OF_EACH_MIX = pytest.mark.parametrize("mix", MIXES)
HEADS = [(6, 2), (9, 3), (4, 4), (5, 1), (8, 4)]


def make(mix: str, heads: tuple[int, int] = (6, 2), dtype=torch.float64, tied=True):
    layers = MIXES[mix]
    sizes = {"vocab_size": VOCAB, "num_layers": len(layers), "d_model": 22, "d_ff": 30}
    sizes |= {"num_heads": heads[0], "num_kv_heads": heads[1], "head_dim": 8}
    config = LlamaConfig(**sizes, tie_embeddings=tied, attention=tuple(layers))
    return LayeredLlama(config, ATTENTION, seed=3).to(dtype)


def draw_tokens(rows: int, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows * 100 + columns)
    return torch.randint(VOCAB, (rows, columns), generator=generator)


def shown(cache) -> tuple[list[torch.Tensor], torch.Tensor]:
    """What a cache shows to attention, [B, S, …] each, and which slots [B, S] hold a token."""
    if isinstance(cache, LatentCache):
        tensors = list(cache.latents())
        return tensors, torch.arange(tensors[0].shape[1]) < cache.lengths[:, None]
    return [x.transpose(1, 2) for x in cache.keys_values()], key_positions(cache) >= 0


def held_bytes(session) -> int:
    """Bytes of the slots that hold a token, over all caches; after a step of one column a rolling
    cache shows its ring and nothing else."""
    total = 0
    for cache in session.caches:
        tensors, is_token = shown(cache)
        total += sum(x[is_token].numel() * x.element_size() for x in tensors)
    return total


def allocated_bytes(session) -> int:
    """Bytes of all floating-point memory behind what the caches show."""
    tensors = [x for cache in session.caches for x in shown(cache)[0]]
    storages = {x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}
    return sum(storages.values())


@OF_EACH_MIX
@pytest.mark.parametrize("heads", HEADS)
def test_caches_hold_what_the_formula_says(mix, heads):
    """A ragged batch, token by token: at every length, below, at and above each window."""
    model = make(mix, heads)
    session = model.session(CACHES, 3, CAPACITY)
    lengths = [0, 0, 0]
    for step in range(CAPACITY):
        new = [1, step % 2, int(step % 3 == 0)]
        session(draw_tokens(3, 1), torch.tensor(new))
        lengths = [held + more for held, more in zip(lengths, new, strict=True)]
        assert session.lengths.tolist() == lengths
        assert held_bytes(session) == kv_bytes(model.config, lengths, bytes_per_number=8)
    assert lengths == [24, 12, 8]


@OF_EACH_MIX
@pytest.mark.parametrize("dtype, size", [(torch.float32, 4), (torch.bfloat16, 2)])
def test_full_caches_have_allocated_no_more(mix, dtype, size):
    """All rows filled to the capacity, and past every window: no byte lies idle."""
    model = make(mix, (9, 3), dtype)
    session = model.session(CACHES, 2, CAPACITY)
    session(draw_tokens(2, CAPACITY - 1))
    session(draw_tokens(2, 1))
    expected = kv_bytes(model.config, [CAPACITY] * 2, size)
    assert allocated_bytes(session) == held_bytes(session) == expected


@OF_EACH_MIX
def test_one_more_token(mix):
    """The first token of a row adds kv_bytes_per_token: no window is full, the smallest has one."""
    model = make(mix)
    session = model.session(CACHES, 1, CAPACITY)
    session(draw_tokens(1, 1))
    assert held_bytes(session) == kv_bytes_per_token(model.config, 8)


@OF_EACH_MIX
@pytest.mark.parametrize("heads", HEADS)
def test_parameters(mix, heads):
    for tied in (True, False):
        model = make(mix, heads, tied=tied)
        matrices = [weight for weight in model.parameters() if weight.dim() == 2]
        assert parameters(model.config) == sum(weight.numel() for weight in matrices)


@OF_EACH_MIX
@pytest.mark.parametrize("chunks", [(24,), (1,) * 24, (10, 1, 1, 12), (3, 4, 8, 9), (20, 1, 3)])
def test_cached_logits_are_the_uncached(mix, chunks):
    for heads in HEADS[-2:]:
        model, tokens = make(mix, heads), draw_tokens(2, CAPACITY)
        with torch.no_grad():
            expected = model(tokens)
        session = model.session(CACHES, 2, CAPACITY)
        got = torch.cat([session(part) for part in tokens.split(chunks, dim=1)], dim=1)
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@OF_EACH_MIX
def test_rows_of_a_ragged_batch_are_as_if_alone(mix):
    model, tokens = make(mix), draw_tokens(3, CAPACITY)
    fed: list[list[torch.Tensor]] = [[], [], []]  # the logits of each row
    session = model.session(CACHES, 3, CAPACITY)
    for counts in ([7, 2, 5], [1, 1, 0], [1, 0, 1], [4, 9, 1], [1, 1, 1], [8, 0, 3]):
        starts = session.lengths.tolist()
        columns = torch.full((3, max(counts)), -99)  # padding is no token
        for row, (start, count) in enumerate(zip(starts, counts, strict=True)):
            columns[row, :count] = tokens[row, start : start + count]
        logits = session(columns, torch.tensor(counts))
        for row, count in enumerate(counts):
            fed[row].append(logits[row, :count])
    for row, parts in enumerate(fed):
        got = torch.cat(parts)
        with torch.no_grad():
            alone = model(tokens[row : row + 1, : len(got)])[0]
        torch.testing.assert_close(got, alone, rtol=1e-9, atol=1e-9)


@OF_EACH_MIX
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_generate_runs_them_unchanged(mix, temperature):
    model, tokens = make(mix, (8, 4)), draw_tokens(3, 9)
    prompts = [tokens[0].tolist(), tokens[1, :1].tolist(), tokens[2, :4].tolist()]
    uniforms = torch.rand(3, 14, generator=torch.Generator().manual_seed(8))
    options = {"temperature": temperature, "uniforms": uniforms, "max_length": CAPACITY}
    session = model.session(CACHES, 3, CAPACITY)
    got = generate(session, prompts, 14, **options)
    with torch.no_grad():
        expected = generate_uncached(model, prompts, 14, **options)
    assert got == expected
    assert [len(new) for new in got] == [14, 14, 14]
    # The last token of a row is never fed.
    held = [len(prompt) + 13 for prompt in prompts]
    assert held_bytes(session) == kv_bytes(model.config, held, 8)
