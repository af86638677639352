"""The given model of mixed attention layers, and its caches' plumbing.

The layers here are made for these tests: plain, and with no student's file behind them.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

from assignment.provided.models import (
    AttentionLayer,
    DelegatingCache,
    GrowingCache,
    LayerCache,
    LayeredLlama,
    LayeredSession,
    Llama,
    LlamaConfig,
    key_positions,
    rotate_at,
)
from tests.attention.oracles import CacheOracle, padded

FULL, LOCAL = AttentionLayer(), AttentionLayer(window=4)
LATENT = AttentionLayer(latent_dim=5, rope_dim=2)
ALL_KINDS = (FULL, LOCAL, LATENT, AttentionLayer(reads=0), AttentionLayer(reads=1))
SIZES = {"d_model": 12, "num_heads": 4, "num_kv_heads": 2, "head_dim": 6, "d_ff": 20}
CONFIG = LlamaConfig(31, 5, **SIZES, rope_theta=300.0, attention=ALL_KINDS)
TOKENS = torch.tensor([[5, 1, 30, 2, 2, 17, 9, 3, 3], [0, 8, 8, 8, 21, 3, 4, 30, 1]])


class Attends(nn.Module):
    """Attention with or without a window, and with or without keys and values of its own."""

    def __init__(self, width, heads, kv_heads, head_dim, window=None, theta=1e4, owns=True):
        super().__init__()
        self.heads, self.group, self.theta = heads, heads // kv_heads, theta
        self.window, self.owns = window or math.inf, owns
        self.q = nn.Linear(width, heads * head_dim, bias=False)
        if owns:
            self.k = nn.Linear(width, kv_heads * head_dim, bias=False)
            self.v = nn.Linear(width, kv_heads * head_dim, bias=False)
        self.o = nn.Linear(heads * head_dim, width, bias=False)

    def forward(self, x, cache, num_tokens=None):
        q = self.q(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        cache = GrowingCache(len(x)) if cache is None else cache
        counts = torch.full((len(x),), x.shape[1]) if num_tokens is None else num_tokens
        start = cache.lengths if self.owns else cache.lengths - counts
        at = start[:, None] + torch.arange(x.shape[1])
        if self.owns:
            k, v = (
                project(x).unflatten(-1, (-1, q.shape[-1])).transpose(1, 2)
                for project in (self.k, self.v)
            )
            cache.append(rotate_at(k, at, self.theta), v, num_tokens)
        k, v = (y.repeat_interleave(self.group, dim=1) for y in cache.keys_values())
        key, query = key_positions(cache)[:, None], at[:, :, None]
        hidden = (key < 0) | (key > query) | (query - key >= self.window)
        scores = rotate_at(q, at, self.theta) @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        weights = scores.masked_fill(hidden[:, None], -math.inf).softmax(-1).nan_to_num()
        return self.o((weights @ v).transpose(1, 2).flatten(2))


class Pointwise(nn.Module):
    """Stands in where attention itself does not matter, and has to be given its cache."""

    def __init__(self, width):
        super().__init__()
        self.o = nn.Linear(width, width, bias=False)

    def forward(self, x, cache, num_tokens):
        if cache is not None:
            cache.append(x[:, None], x[:, None], num_tokens)
        return self.o(x)


ATTENTION = {
    "full": lambda *sizes: Attends(*sizes[:4], None, sizes[4]),
    "local": Attends,
    "latent": lambda width, *sizes: Pointwise(width),
    "shared": lambda *sizes: Attends(*sizes, owns=False),
}


def tidy_cache(batch_size, capacity, kv_heads, head_dim, dtype=torch.float32, least=0):
    """A cache of ragged rows that refuses to hold too much, or to go back below `least`."""
    oracle = CacheOracle(batch_size, kv_heads, head_dim, dtype)

    def append(k, v, num_tokens):
        counts = k.shape[2] if num_tokens is None else num_tokens
        if (oracle.lengths + counts > capacity).any():
            raise ValueError("full")
        oracle.append(k, v, num_tokens)

    def truncate(lengths):
        if (lengths < least).any():
            raise ValueError("too far back")
        oracle.truncate(lengths)

    def keys_values():
        return tuple(padded(rows).to(dtype) for rows in (oracle.keys, oracle.values))

    return DelegatingCache(lambda: oracle.lengths, append, keys_values, truncate)


def roomy(batch_size, window, *sizes):
    """In place of a rolling cache: keeps all tokens, the layer looks at its window only."""
    return tidy_cache(batch_size, 1000, *sizes)


CACHES = {
    "full": tidy_cache,
    "local": roomy,
    "latent": lambda rows, capacity, *sizes: tidy_cache(rows, capacity, 1, CONFIG.d_model),
}


def feed_ragged(session, tokens, calls):
    """Logits [row][token] of calls with so many tokens a row."""
    rows = [[] for _ in tokens]
    for counts in calls:
        part = torch.full((len(tokens), max(counts)), 10**9)  # padding: no token at all
        for row, count in enumerate(counts):
            part[row, :count] = tokens[row, len(rows[row]) : len(rows[row]) + count]
        logits = session(part, torch.tensor(counts))
        for row, count in enumerate(counts):
            rows[row] += logits[row, :count]
    return [torch.stack(row) for row in rows]


# What layers and caches are made with


def recorder(made, kind):
    def make(*sizes):
        made.append((kind, sizes))
        return Pointwise(sizes[0])

    return make


def test_each_kind_of_layer_is_made_with_its_sizes():
    made = []
    LayeredLlama(CONFIG, {kind: recorder(made, kind) for kind in ATTENTION})
    assert made == [
        ("full", (12, 4, 2, 6, 300.0)),
        ("local", (12, 4, 2, 6, 4, 300.0)),
        ("latent", (12, 4, 5, 6, 2, 6, 300.0)),
        ("shared", (12, 4, 2, 6, None, 300.0)),
        ("shared", (12, 4, 2, 6, 4, 300.0)),
    ]


def test_each_kind_of_cache_is_made_with_its_sizes():
    made = []

    def record(kind):
        return lambda *sizes: made.append((kind, sizes)) or CACHES[kind](*sizes)

    model = LayeredLlama(CONFIG, ATTENTION).to(torch.bfloat16)
    model.session({kind: record(kind) for kind in CACHES}, 3, 50)
    assert made == [
        ("full", (3, 50, 2, 6, torch.bfloat16)),
        ("local", (3, 4, 2, 6, torch.bfloat16)),
        ("latent", (3, 50, 5, 2, torch.bfloat16)),
    ]


@pytest.mark.parametrize("missing", list(ATTENTION))
def test_a_missing_kind_is_named(missing):
    attention = {kind: make for kind, make in ATTENTION.items() if kind != missing}
    with pytest.raises(ValueError, match=rf"attention.*'{missing}'"):
        LayeredLlama(CONFIG, attention)
    if missing != "shared":
        caches = {kind: make for kind, make in CACHES.items() if kind != missing}
        with pytest.raises(ValueError, match=rf"caches.*'{missing}'"):
            LayeredLlama(CONFIG, ATTENTION).session(caches, 2, 9)


def test_a_config_without_layers_is_full():
    model = LayeredLlama(replace(CONFIG, attention=()), {"full": ATTENTION["full"]})
    assert [type(layer.attention) for layer in model.layers] == [Attends] * 5
    assert model(TOKENS).shape == (2, 9, 31)


# With and without caches


@torch.no_grad()
def test_it_is_the_llama_when_every_layer_is_full():
    config = replace(CONFIG, attention=(), num_layers=2, tie_embeddings=False)
    plain, layered = Llama(config, seed=3), LayeredLlama(config, {"full": ATTENTION["full"]})
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
    state = plain.state_dict()
    for short, long in names.items():
        for name in [name for name in state if f".{long}." in name]:
            state[name.replace(long, short)] = state.pop(name)
    layered.load_state_dict(state)
    torch.testing.assert_close(layered(TOKENS), plain(TOKENS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("chunks", [(9,), (1,) * 9, (5, 1, 3)])
def test_a_session_equals_one_pass(chunks):
    model = LayeredLlama(CONFIG, ATTENTION)
    session = model.session(CACHES, 2, 9)
    got = torch.cat([session(part) for part in TOKENS.split(chunks, dim=1)], dim=1)
    torch.testing.assert_close(got, model(TOKENS), rtol=1e-4, atol=1e-5)
    assert session.lengths.tolist() == [9, 9]


def test_a_ragged_session_equals_one_pass():
    model = LayeredLlama(CONFIG, ATTENTION)
    calls = [[4, 1], [1, 1], [0, 3], [1, 0], [3, 4]]
    rows = feed_ragged(model.session(CACHES, 2, 9), TOKENS, calls)
    for got, expected in zip(rows, model(TOKENS), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


def test_one_pass_over_ragged_rows():
    model = LayeredLlama(CONFIG, ATTENTION)
    whole = model(TOKENS)
    got = model(TOKENS[:, :6], num_tokens=torch.tensor([6, 4]))
    torch.testing.assert_close(got[0], whole[0, :6], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got[1, :4], whole[1, :4], rtol=1e-4, atol=1e-5)


def test_the_window_and_the_owner_matter():
    """Each layer sees what its own kind lets it see."""
    wide = replace(CONFIG, attention=(FULL, replace(LOCAL, window=5), *ALL_KINDS[2:]))
    other = replace(CONFIG, attention=(*ALL_KINDS[:4], AttentionLayer(reads=0)))
    logits = [LayeredLlama(config, ATTENTION)(TOKENS) for config in (CONFIG, wide, other)]
    assert torch.equal(logits[0][:, :4], logits[1][:, :4])  # up to there a window of 4 sees all
    for changed in logits[1:]:
        assert not torch.allclose(changed[:, 5:], logits[0][:, 5:])


def test_each_layer_gets_the_cache_of_its_owner():
    seen = []

    class Spy(Pointwise):
        def forward(self, x, cache, num_tokens):
            seen.append((cache, num_tokens))
            return self.o(x)

    model = LayeredLlama(CONFIG, dict.fromkeys(ATTENTION, lambda width, *sizes: Spy(width)))
    caches, num_tokens = {0: "a", 1: "b", 2: "c"}, torch.tensor([9, 9])
    model(TOKENS, caches, num_tokens)
    assert [cache for cache, _ in seen] == ["a", "b", "c", "a", "b"]
    assert all(given is num_tokens for _, given in seen)

    seen.clear()
    model(TOKENS)
    first, second, none, *readers = [cache for cache, _ in seen]
    assert none is None and isinstance(first, GrowingCache) and first is not second
    assert readers == [first, second]


@pytest.mark.parametrize("owners", [(), (0, 1), (0, 1, 2, 3)])
def test_a_cache_too_few_or_too_many_is_refused(owners):
    caches = {index: tidy_cache(2, 9, 2, 6) for index in owners}
    with pytest.raises(ValueError, match=r"caches: expected .*\[0, 1, 2\]"):
        LayeredLlama(CONFIG, ATTENTION)(TOKENS, caches)


# Going back


def test_a_failed_call_has_fed_nothing():
    model = LayeredLlama(CONFIG, ATTENTION)
    small = {**CACHES, "latent": lambda rows, *sizes: tidy_cache(rows, 5, 1, CONFIG.d_model)}
    session = model.session(small, 2, 9)
    first = session(TOKENS[:, :3])
    with pytest.raises(ValueError, match="full"):  # in the third layer; two have appended
        session(TOKENS[:, 3:6])
    assert all(cache.lengths.tolist() == [3, 3] for cache in session.caches)
    got = torch.cat([first, session(TOKENS[:, 3:5])], dim=1)
    torch.testing.assert_close(got, model(TOKENS[:, :5]), rtol=1e-4, atol=1e-5)


def test_truncate_goes_back_in_every_layer():
    model = LayeredLlama(CONFIG, ATTENTION)
    session = model.session(CACHES, 2, 20)
    session(TOKENS)
    session.truncate(torch.tensor([6, 2]))
    assert all(cache.lengths.tolist() == [6, 2] for cache in session.caches)
    got = session(torch.tensor([[9, 3, 3], [8, 8, 21]]))
    expected = model(TOKENS)
    torch.testing.assert_close(got[0], expected[0, 6:], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(got[1], expected[1, 2:5], rtol=1e-4, atol=1e-5)


def test_the_smallest_window_is_asked_first():
    """It is the one that refuses to go back; then nothing has changed anywhere."""
    layers = (FULL, AttentionLayer(window=8), LOCAL, AttentionLayer(window=4))
    config = replace(CONFIG, num_layers=4, attention=layers)
    caches = {**CACHES, "local": lambda rows, window, *sizes: refusing(rows, window, *sizes)}

    def refusing(rows, window, *sizes):
        return tidy_cache(rows, 1000, *sizes, least=9 - window)

    session = LayeredLlama(config, ATTENTION).session(caches, 2, 20)
    session(TOKENS)
    with pytest.raises(ValueError, match="too far back"):
        session.truncate(torch.tensor([7, 4]))
    assert all(cache.lengths.tolist() == [9, 9] for cache in session.caches)
    session.truncate(torch.tensor([7, 5]))
    assert session.lengths.tolist() == [7, 5]


def test_a_session_from_caches_of_ones_own():
    model = LayeredLlama(CONFIG, ATTENTION)
    caches = {0: GrowingCache(2), 1: GrowingCache(2), 2: GrowingCache(2)}
    session = LayeredSession(model, caches)
    got = torch.cat([session(part) for part in TOKENS.split(4, dim=1)], dim=1)
    torch.testing.assert_close(got, model(TOKENS), rtol=1e-4, atol=1e-5)


# Seeds


def test_the_seed_alone_decides_the_weights():
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first, again = LayeredLlama(CONFIG, ATTENTION, seed=7), LayeredLlama(CONFIG, ATTENTION, seed=7)
    other = LayeredLlama(CONFIG, ATTENTION, seed=8)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
        assert value.dim() == 1 or not torch.equal(value, other.state_dict()[name])
        if value.dim() == 1:
            assert torch.equal(value, torch.ones_like(value))  # a norm


def test_an_untied_head():
    model = LayeredLlama(replace(CONFIG, tie_embeddings=False), ATTENTION)
    before = model(TOKENS)
    with torch.no_grad():
        model.head.weight.zero_()
    assert before.abs().max() > 0 and model(TOKENS).abs().max() == 0


# Which token is in which slot


def test_slots_in_order():
    cache = tidy_cache(3, 9, 2, 6)
    cache.append(*torch.zeros(2, 3, 2, 4, 6), torch.tensor([4, 0, 2]))
    expected = [[0, 1, 2, 3], [-1] * 4, [0, 1, -1, -1]]
    assert key_positions(cache).tolist() == expected

    growing = GrowingCache()
    growing.append(*torch.zeros(2, 2, 2, 3, 6))
    assert key_positions(growing).tolist() == [[0, 1, 2]] * 2


def test_a_cache_that_says_itself():
    slots = torch.tensor([[4, -1, 3]])
    nothing = (torch.zeros(1, 2, 3, 6),) * 2
    cache = DelegatingCache(
        lambda: torch.tensor([5]), lambda *new: None, lambda: nothing, key_positions=lambda: slots
    )
    assert key_positions(cache) is slots
    assert cache.positions(2).tolist() == [[5, 6]]
    assert isinstance(cache, LayerCache)
    with pytest.raises(RuntimeError, match="roll back"):
        cache.truncate(torch.tensor([4]))


def test_rotation_by_position():
    """Position p turns pair i by p · theta^(−2i / H), in float32 whatever x is."""
    x, positions = torch.randn(2, 3, 4, 6), torch.tensor([[0, 1, 7, 300], [256, 257, 2, 9]])
    frequencies = torch.tensor([700.0 ** (-2 * i / 6) for i in range(3)]).double()
    turn = torch.polar(torch.ones(1).double(), positions[..., None] * frequencies)[:, None]
    pairs = torch.complex(x[..., :3].double(), x[..., 3:].double()) * turn
    expected = torch.cat([pairs.real, pairs.imag], dim=-1).float()
    torch.testing.assert_close(rotate_at(x, positions, 700.0), expected, rtol=1e-3, atol=1e-4)
    rounded = rotate_at(x.bfloat16(), positions, 700.0)
    assert rounded.dtype == torch.bfloat16
    torch.testing.assert_close(rounded.float(), expected, rtol=2e-2, atol=2e-2)
