"""Sessions and the given cache: every way of feeding the same tokens gives the same logits."""

import math

import pytest
import torch

from assignment.provided.models import (
    CachedSession,
    GrowingCache,
    LayerCache,
    Llama,
    LlamaConfig,
    ReplaySession,
    Session,
    TableLM,
)

CONFIG = LlamaConfig(
    vocab_size=31, num_layers=2, d_model=20, num_heads=6, num_kv_heads=2, head_dim=6, d_ff=24
)


class ListCache:
    """A cache in the plainest Python: a list of (key, value) per row."""

    def __init__(self, batch_size, capacity=100):
        self.rows = [[] for _ in range(batch_size)]
        self.capacity, self.events = capacity, []

    @property
    def lengths(self):
        return torch.tensor([len(row) for row in self.rows])

    def positions(self, num_new):
        self.events.append("positions")
        return torch.tensor([[len(row) + i for i in range(num_new)] for row in self.rows])

    def append(self, k, v, num_tokens=None):
        self.events.append("append")
        counts = [k.shape[2]] * len(self.rows) if num_tokens is None else num_tokens.tolist()
        if any(len(row) + n > self.capacity for row, n in zip(self.rows, counts, strict=True)):
            raise ValueError("full")
        for b, count in enumerate(counts):
            self.rows[b] += [(k[b, :, t], v[b, :, t]) for t in range(count)]

    def keys_values(self):
        longest = max(map(len, self.rows))
        shape = (len(self.rows), CONFIG.num_kv_heads, longest, CONFIG.head_dim)
        k, v = torch.zeros(shape), torch.zeros(shape)
        for b, row in enumerate(self.rows):
            for s, (key, value) in enumerate(row):
                k[b, :, s], v[b, :, s] = key, value
        return k, v

    def truncate(self, lengths):
        self.events.append("truncate")
        self.rows = [row[:n] for row, n in zip(self.rows, lengths.tolist(), strict=True)]


def slow_attention(q, k, v, kv_lengths=None, num_tokens=None):
    out = torch.zeros_like(q)
    batch, heads, columns, _ = q.shape
    counts = [columns] * batch if num_tokens is None else num_tokens.tolist()
    for b in range(batch):
        for t in range(counts[b]):
            seen = int(kv_lengths[b]) - counts[b] + t + 1
            for n in range(heads):
                kv = n // (heads // k.shape[1])
                scores = k[b, kv, :seen] @ q[b, n, t] / math.sqrt(q.shape[-1])
                out[b, n, t] = scores.softmax(0) @ v[b, kv, :seen]
    return out


def cached_session(model, batch_size, capacities=(100, 100)):
    caches = [ListCache(batch_size, capacity) for capacity in capacities]
    return CachedSession(model, caches, slow_attention)


def make(kind, model, batch_size):
    return (
        ReplaySession(model, batch_size) if kind == "replay" else cached_session(model, batch_size)
    )


kinds = pytest.mark.parametrize("kind", ["replay", "cached"])


@pytest.fixture(scope="module")
def model():
    return Llama(CONFIG, seed=2)


@kinds
def test_any_mix_of_feeding_and_going_back_equals_one_pass(kind, model):
    generator = torch.Generator().manual_seed(0)
    session, rows = make(kind, model, 3), [[], [], []]
    for _ in range(12):
        columns = int(torch.randint(1, 5, (), generator=generator))
        tokens = torch.randint(CONFIG.vocab_size, (3, columns), generator=generator)
        counts = torch.randint(0, columns + 1, (3,), generator=generator)
        logits = session(tokens, counts)
        assert logits.shape == (3, columns, CONFIG.vocab_size) and logits.isfinite().all()
        for b, count in enumerate(counts.tolist()):
            rows[b] += tokens[b, :count].tolist()
            if count:
                alone = model(torch.tensor([rows[b]]))[0, -count:]
                torch.testing.assert_close(logits[b, :count], alone, rtol=1e-4, atol=1e-4)
        keep = torch.tensor([max(0, len(row) - b) for b, row in enumerate(rows)])
        session.truncate(keep)
        rows = [row[:n] for row, n in zip(rows, keep.tolist(), strict=True)]
        assert session.lengths.tolist() == [len(row) for row in rows]
        assert session.lengths.dtype == torch.int64


@kinds
def test_all_columns_count_by_default(kind, model):
    tokens = torch.tensor([[3, 4, 5], [6, 7, 8]])
    session = make(kind, model, 2)
    torch.testing.assert_close(session(tokens), model(tokens), rtol=1e-4, atol=1e-4)
    assert session.lengths.tolist() == [3, 3]


@kinds
def test_padding_may_hold_any_number(kind, model):
    tokens, counts = torch.tensor([[3, 4, 5], [6, -1, 10**6]]), torch.tensor([3, 1])
    zeros = torch.tensor([[3, 4, 5], [6, 0, 0]])
    logits, expected = (make(kind, model, 2)(t, counts) for t in (tokens, zeros))
    assert torch.equal(logits[0], expected[0]) and torch.equal(logits[1, :1], expected[1, :1])


@kinds
def test_no_gradients_are_recorded(kind, model):
    session = make(kind, model, 1)
    assert not session(torch.tensor([[1, 2]])).requires_grad


@kinds
@pytest.mark.parametrize(
    ("counts", "got"), [([1, 4], r"\[1, 4\]"), ([-1, 2], r"\[-1, 2\]"), ([1], r"\[1\]")]
)
def test_impossible_numbers_of_tokens_are_refused(kind, counts, got, model):
    session = make(kind, model, 2)
    with pytest.raises(ValueError, match=f"num_tokens.*{got}"):
        session(torch.zeros(2, 3, dtype=torch.int64), torch.tensor(counts))
    assert session.lengths.tolist() == [0, 0]


@pytest.mark.parametrize("shape", [(3, 2), (2,)])
def test_tokens_of_another_batch_are_refused(shape, model):
    with pytest.raises(ValueError, match="tokens: expected shape"):
        ReplaySession(model, 2)(torch.zeros(shape, dtype=torch.int64))


@pytest.mark.parametrize("lengths", [[3, 0], [-1, 0], [1]])
def test_replay_goes_back_only_to_where_it_was(lengths, model):
    session = ReplaySession(model, 2)
    session(torch.tensor([[1, 2], [3, 4]]))
    with pytest.raises(ValueError, match="lengths"):
        session.truncate(torch.tensor(lengths))
    assert session.lengths.tolist() == [2, 2]


def test_replay_works_with_any_causal_model():
    table = TableLM(5)
    tokens = torch.tensor([[1, 2, 3]])
    session = ReplaySession(table, 1)
    session(tokens[:, :2])
    assert torch.equal(session(tokens[:, 2:]), table(tokens)[:, 2:])


# CachedSession as plumbing


@pytest.mark.parametrize("capacities", [(4, 100), (100, 4)])
def test_a_call_that_does_not_fit_changes_nothing(capacities, model):
    session, tokens = cached_session(model, 2, capacities), torch.tensor([[1, 2, 3], [4, 5, 6]])
    session(tokens)
    with pytest.raises(ValueError, match="full"):
        session(tokens, torch.tensor([1, 2]))
    assert [cache.lengths.tolist() for cache in session.caches] == [[3, 3]] * 2
    more = session(tokens[:, :1], torch.tensor([1, 0]))
    whole = model(torch.tensor([[1, 2, 3, 1]]))
    torch.testing.assert_close(more[0], whole[0, 3:], rtol=1e-4, atol=1e-4)


def test_a_cache_without_rollback_does_not_hide_the_error(model):
    def unwritten(*args, **kwargs):
        raise NotImplementedError("attention")

    session = CachedSession(model, [GrowingCache(1), GrowingCache(1)], unwritten)
    with pytest.raises(NotImplementedError, match="attention"):
        session(torch.tensor([[1, 2]]))


def test_positions_are_taken_once_before_anything_is_appended(model):
    session = cached_session(model, 1)
    session(torch.tensor([[1, 2]]))
    session(torch.tensor([[3]]))
    assert session.caches[0].events == ["positions", "append"] * 2
    assert session.caches[1].events == ["append"] * 2


@pytest.mark.parametrize("counts", [None, torch.tensor([2, 1])])
def test_attention_gets_lengths_after_the_append(counts, model):
    seen = []

    def attention(q, k, v, **given):
        seen.append(given)
        return slow_attention(q, k, v, **given)

    session = CachedSession(model, [ListCache(2), ListCache(2)], attention)
    session(torch.tensor([[1, 2], [3, 4]]), counts)
    lengths = [2, 2] if counts is None else [2, 1]
    assert len(seen) == 2
    for given in seen:
        assert sorted(given) == ["kv_lengths", "num_tokens"]
        assert given["kv_lengths"].tolist() == lengths
        assert given["num_tokens"] is counts


def test_one_cache_per_layer(model):
    with pytest.raises(ValueError, match="caches: expected one per layer, 2, got 1"):
        CachedSession(model, [GrowingCache()], slow_attention)


def test_protocols(model):
    assert isinstance(GrowingCache(), LayerCache)
    assert isinstance(ListCache(1), LayerCache)
    assert isinstance(ReplaySession(model, 1), Session)
    assert isinstance(cached_session(model, 1), Session)
    assert isinstance(TableLM(4).session(1), Session)


# GrowingCache


def test_growing_caches_serve_a_whole_model(model):
    session = CachedSession(model, [GrowingCache(), GrowingCache()], slow_attention)
    tokens = torch.tensor([[1, 2, 3, 4], [9, 8, 7, 6]])
    parts = [session(tokens[:, :2]), session(tokens[:, 2:3]), session(tokens[:, 3:])]
    torch.testing.assert_close(torch.cat(parts, 1), model(tokens), rtol=1e-4, atol=1e-4)


def test_a_growing_cache_keeps_order_and_counts():
    cache, k, v = GrowingCache(), torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5)
    assert cache.positions(2).tolist() == [[0, 1]]
    cache.append(k[:, :, :3], v[:, :, :3])
    cache.append(k[:, :, 3:], v[:, :, 3:], torch.tensor([1, 1]))
    assert all(torch.equal(*pair) for pair in zip(cache.keys_values(), (k, v), strict=True))
    assert cache.lengths.tolist() == [4, 4]
    assert cache.positions(2).tolist() == [[4, 5], [4, 5]]
    assert GrowingCache(batch_size=3).positions(1).tolist() == [[0]] * 3


def test_a_growing_cache_says_what_it_cannot_do():
    cache, k = GrowingCache(), torch.randn(2, 3, 4, 5)
    with pytest.raises(ValueError, match="empty"):
        cache.keys_values()
    with pytest.raises(ValueError, match="num_tokens"):
        cache.append(k, k, torch.tensor([4, 3]))
    cache.append(k, k)
    for wrong in (k[:1], k[:, :2], k[..., :4]):
        with pytest.raises(ValueError, match="k, v: expected"):
            cache.append(wrong, wrong)
    with pytest.raises(ValueError, match="k, v: expected"):
        cache.append(k, k[:, :, :2])
    with pytest.raises(RuntimeError, match="roll back"):
        cache.truncate(torch.tensor([1, 1]))
    assert cache.lengths.tolist() == [4, 4]
