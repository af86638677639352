"""attention.sliding_window: who is in the window, what a ring keeps of a row, and what it costs."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.models import AttentionLayer, LlamaConfig
from submission.attention.sliding_window import (
    RollingCache,
    SlidingWindowAttention,
    sliding_window_attention,
    window_mask,
)
from submission.provided.models import DelegatingCache, GrowingCache, LayeredLlama
from tests.attention import oracles_window as oracles
from tests.attention.oracles import CacheOracle, out_of_luck
from tests.grading.boundary import call_then_spoil, observe, read_then_spoil, watch
from tests.grading.closeness import assert_close, assert_equal
from tests.grading.refusal import assert_value_error
from tests.grading.shapes import HEAD_RATIOS, around

AXES = "batch heads seq head_dim"


@pytest.mark.group("mask")
class TestMask:
    def test_a_window_of_four(self):
        """W keys, the query's own among them, not W + 1."""
        positions = torch.arange(7)[None]
        assert_equal(
            window_mask(positions, positions, 4).int().tolist(),
            [
                [
                    [1, 0, 0, 0, 0, 0, 0],
                    [1, 1, 0, 0, 0, 0, 0],
                    [1, 1, 1, 0, 0, 0, 0],
                    [1, 1, 1, 1, 0, 0, 0],
                    [0, 1, 1, 1, 1, 0, 0],
                    [0, 0, 1, 1, 1, 1, 0],
                    [0, 0, 0, 1, 1, 1, 1],
                ]
            ],
        )

    def test_sinks_stay_visible(self):
        keys = torch.arange(7)[None]
        mask = window_mask(torch.tensor([[0, 1, 4, 6]]), keys, 2, num_sinks=2)
        expected = [
            [1, 0, 0, 0, 0, 0, 0],  # a sink is not seen before it is there
            [1, 1, 0, 0, 0, 0, 0],
            [1, 1, 0, 1, 1, 0, 0],
            [1, 1, 0, 0, 0, 1, 1],
        ]
        assert_equal(mask.int().tolist(), [expected])

    @pytest.mark.parametrize("num_sinks", [0, 1, 3])
    def test_slots_in_any_order(self, draw, num_sinks):
        """A ring's slots, some of them empty, and rows that are at different places."""
        queries = torch.tensor([[9, 10, 11], [2, 3, 4], [30, 31, 32]])
        keys = torch.stack([draw.permutation(13) + start - 1 for start in (0, 0, 21)])
        keys[2, 3:5] = torch.tensor([-1, 0])
        for window in (1, 4, 11, 50):
            got = window_mask(queries, keys, window, num_sinks)
            assert got.dtype == torch.bool, f"expected a boolean mask, got {got.dtype}"
            expected = oracles.visible(queries, keys, window, num_sinks)
            assert_equal(got, expected, axes="row query slot", what=f"window {window}")

    def test_arguments_are_not_changed(self, draw):
        queries, keys = draw.integers(0, 9, 2, 3), draw.integers(-1, 9, 2, 5)
        _, changed = watch(window_mask, queries, keys, 3, 1)
        assert changed == [], "query_positions (0) or key_positions (1) was changed"


def draw_qkv(draw, heads, kv_heads, num_new, num_keys, *, rows=2, head_dim=10, dtype=torch.float32):
    """Queries, keys and values, different in every row and head."""
    q = draw.normal(rows, heads, num_new, head_dim, dtype=dtype)
    k = draw.normal(rows, kv_heads, num_keys, head_dim, dtype=dtype)
    v = draw.normal(rows, kv_heads, num_keys, head_dim, dtype=dtype)
    return q, k, v


def draw_slots(draw, lengths, num_slots):
    """The last tokens of each row in any order, and empty slots where there are fewer."""
    rows = []
    for length in lengths:
        held = torch.arange(length - num_slots, length).clamp(min=-1)
        rows.append(held[draw.permutation(num_slots)])
    return torch.stack(rows)


def last(lengths, num_new):
    """Positions of the last `num_new` tokens of each row."""
    return torch.tensor(lengths)[:, None] - num_new + torch.arange(num_new)


def assert_attention(got, q, k, v, queries, keys, window, num_sinks=0, level=0.0):
    """`got` is attention(q, k, v), up to what float32 scores near `level` and a result in q's dtype
    cost."""
    assert got.dtype == q.dtype, f"expected the dtype of q, {q.dtype}, got {got.dtype}"
    mask = oracles.visible(queries, keys, window, num_sinks)
    expected = oracles.attention(q, k, v, mask)
    naive = oracles.attention(q, k, v, mask, dtype=torch.float32).to(q.dtype)
    naive = out_of_luck(naive, expected, level).to(q.dtype)
    assert got.isfinite().all(), "the result holds numbers that are not finite"
    assert_close(got, expected, naive=naive, axes=AXES)


def attend_and_check(q, k, v, *where):
    assert_attention(sliding_window_attention(q, k, v, *where), q, k, v, *where)


@pytest.mark.group("attention")
class TestAttention:
    @pytest.mark.parametrize("heads, kv_heads", HEAD_RATIOS)
    def test_whole_sequence(self, draw, heads, kv_heads):
        q, k, v = draw_qkv(draw, heads, kv_heads, num_new=9, num_keys=9)
        attend_and_check(q, k, v, last([9, 9], 9), last([9, 9], 9), 4)

    @pytest.mark.parametrize("num_sinks", [0, 2])
    @pytest.mark.parametrize("heads, kv_heads", HEAD_RATIOS)
    def test_one_new_token(self, draw, heads, kv_heads, num_sinks):
        q, k, v = draw_qkv(draw, heads, kv_heads, num_new=1, num_keys=70, rows=3)
        lengths = [70, 41, 503]
        where = last(lengths, 1), draw_slots(draw, lengths, 70), 30, num_sinks
        attend_and_check(q, k, v, *where)

    def test_neighbours_share_a_kv_head(self, draw):
        for heads, kv_heads in HEAD_RATIOS:
            q, k, v = draw_qkv(draw, heads, kv_heads, num_new=2, num_keys=5)
            v = (1.0 + torch.arange(kv_heads))[:, None, None].expand_as(v)  # says who was read
            got = sliding_window_attention(q, k, v, last([5, 5], 2), last([5, 5], 5), 3)
            read = torch.tensor([1 + head // (heads // kv_heads) for head in range(heads)])
            assert_close(got, read[:, None, None].expand_as(got), axes=AXES)

    def test_a_chunk_at_the_end_of_unequal_rows(self, draw):
        q, k, v = draw_qkv(draw, 6, 2, num_new=5, num_keys=12, rows=3)
        lengths = [12, 5, 40]
        attend_and_check(q, k, v, last(lengths, 5), draw_slots(draw, lengths, 12), 4, 1)

    def test_what_is_not_seen_may_be_huge(self, draw):
        """Keys that left the window or are yet to come, and what an empty slot holds."""
        q, k, v = draw_qkv(draw, 6, 2, num_new=1, num_keys=12, rows=3)
        lengths = [30, 7, 12]
        queries, keys = last(lengths, 1), draw_slots(draw, lengths, 12)
        queries[2] -= 2
        unseen = ~oracles.visible(queries, keys, 5)[:, 0]
        for tensor in (k, v):
            tensor.masked_fill_(unseen[:, None, :, None], oracles.HUGE)
        attend_and_check(q, k, v, queries, keys, 5)

    def test_a_query_that_sees_nothing_gets_zeros(self, draw):
        """An empty row; a window that has moved past all keys; padding before them."""
        q, k, v = draw_qkv(draw, 6, 2, num_new=3, num_keys=6, rows=3)
        keys = torch.stack([torch.full((6,), -1), torch.arange(6), torch.arange(6) + 4])
        queries = torch.tensor([[0, 1, 2], [7, 8, 9], [3, 4, 5]])
        got = sliding_window_attention(q, k, v, queries, keys, 4)
        for row, query in ((0, 0), (0, 2), (1, 2), (2, 0)):
            assert_equal(got[row, :, query], torch.zeros(6, 10), axes="heads head_dim")
        assert_attention(got, q, k, v, queries, keys, 4)

    @pytest.mark.parametrize("level", [-300.0, 300.0])
    def test_most_keys_are_far_outside(self, draw, level):
        """Hundreds of slots before the first that counts, and scores far from 0."""
        q, k, v = self._at_level(draw, level, num_keys=300)
        where = last([300, 300], 3), last([300, 300], 300), 5
        got = sliding_window_attention(q, k, v, *where)
        assert_attention(got, q, k, v, *where, level=level)

    @pytest.mark.parametrize("size", [2**20, 2**40])
    def test_scores_of_any_size(self, draw, size):
        """All scores that count are −size, exactly, and those that do not are 0: a large negative
        number in place of −∞ is not low enough."""
        q, k, v = draw_qkv(draw, 6, 2, num_new=3, num_keys=12, head_dim=16)
        lengths = [30, 12]
        queries, keys = last(lengths, 3), draw_slots(draw, lengths, 12)
        factor = 2 * size**0.5  # 1 / √16 takes the 4 away
        q, k = torch.zeros_like(q), torch.zeros_like(k)
        q[..., 0] = factor
        seen = oracles.visible(queries, keys, 4).any(dim=1)
        k[..., 0] = -factor * seen[:, None]
        attend_and_check(q, k, v, queries, keys, 4)

    def test_bfloat16_scores_stay_apart(self, draw):
        q, k, v = self._at_level(draw, 200.0, num_keys=13, dtype=torch.bfloat16)
        attend_and_check(q, k, v, last([13, 13], 3), last([13, 13], 13), 9)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
    def test_other_dtypes(self, draw, dtype):
        q, k, v = draw_qkv(draw, 6, 2, num_new=5, num_keys=70, dtype=dtype)
        lengths = [90, 71]
        attend_and_check(q, k, v, last(lengths, 5), draw_slots(draw, lengths, 70), 50)

    def test_arguments_are_not_changed(self, draw):
        q, k, v = draw_qkv(draw, 6, 2, num_new=3, num_keys=7)
        _, changed = watch(sliding_window_attention, q, k, v, last([7, 7], 3), last([7, 7], 7), 4)
        assert changed == [], "q (0), k (1), v (2) or positions (3, 4) were changed"

    def _at_level(self, draw, level, num_keys, dtype=torch.float32, head_dim=16):
        """Queries and keys whose scores differ by a few, all of them near `level`."""
        q, k, v = draw_qkv(draw, 6, 2, num_new=3, num_keys=num_keys, head_dim=head_dim)
        size = (abs(level) / head_dim**0.5) ** 0.5
        q = 0.2 * q + size
        k = 0.2 * k + size * (1 if level > 0 else -1)
        return q.to(dtype), k.to(dtype), v.to(dtype)


KV_HEADS, HEAD_DIM = 3, 6


def rolling(draw, window, *, rows=3, dtype=torch.float32, **options):
    cache = RollingCache(rows, window, KV_HEADS, HEAD_DIM, dtype, **options)
    return oracles.Rolling(cache, draw, (rows, KV_HEADS, HEAD_DIM), dtype, window, **options)


@pytest.mark.group("cache")
class TestCache:
    def test_a_ring_of_four(self, draw):
        """Tokens 0 to 3 fill it, token 4 takes the place of token 0 and of no other."""
        ring = rolling(draw, window=4)
        for _ in range(11):
            ring.append(1)
            ring.check()

    @pytest.mark.parametrize("options", [{}, {"num_sinks": 2}, {"num_sinks": 3, "max_rollback": 2}])
    @pytest.mark.parametrize("chunk", [*around(5), *around(8), 23])
    def test_chunks_around_the_window_and_steps(self, draw, chunk, options):
        """Every token of a chunk finds its own window, also when the chunk is longer than that."""
        for num_columns in ((chunk, 1, 1, chunk, 1), (1, 1, chunk, 2, chunk)):
            ring = rolling(draw, window=5, **options)
            for n in num_columns:
                ring.append(n)
                ring.check()

    def test_a_window_of_one(self, draw):
        ring = rolling(draw, window=1, num_sinks=1)
        for num_columns in (1, 1, 3, 1):
            ring.append(num_columns)
            ring.check()

    def test_rows_go_round_by_themselves(self, draw):
        ring = rolling(draw, window=4, num_sinks=1)
        for num_tokens in ([4, 1, 0], [0, 3, 1], [2, 0, 4], [1, 1, 1], [0, 0, 0], [4, 0, 1]):
            ring.append(4, num_tokens)
            ring.check()
            ring.append(1)
            ring.check()
        for num_tokens in ([1, 0, 1], [0, 1, 0], [0, 0, 1]):
            ring.append(1, num_tokens)
            ring.check()

    def test_positions_go_on_for_ever(self, draw):
        ring = rolling(draw, window=3)
        for num_columns, num_tokens in ((6, [6, 2, 0]), (1, None), (30, [30, 7, 29]), (1, None)):
            ring.append(num_columns, num_tokens)
            expected = ring.given.lengths[:, None] + torch.arange(2)
            got = ring.cache.positions(2)
            assert_equal(got, expected, axes="row token", what="positions")
            assert got.dtype == ring.cache.lengths.dtype == torch.int64
            ring.check()

    def test_padding_is_never_kept(self, draw):
        ring = rolling(draw, window=4, num_sinks=1)
        ring.append(6, [6, 3, 0])
        for counts in ([1, 3, 0], [0, 1, 2], [3, 0, 1]):
            k, v = ring.new(3)
            counts = torch.tensor(counts)
            ring.remember(k, v, counts)
            padding = torch.arange(3) >= counts[:, None]
            for tensor in (k, v):
                tensor.masked_fill_(padding[:, None, :, None], torch.nan)
            ring.cache.append(k, v, counts)
            ring.check()
        ring.append(1)
        ring.check()

    def test_one_padding_column(self, draw):
        ring = rolling(draw, window=4)
        ring.append(5)
        k, v = ring.new(1)
        counts = torch.tensor([1, 0, 1])
        ring.remember(k, v, counts)
        k[1], v[1] = torch.nan, torch.nan
        ring.cache.append(k, v, counts)
        ring.check()
        ring.append(1)
        ring.check()

    def test_nothing_to_append_and_nothing_to_read(self, draw):
        ring = rolling(draw, window=4)
        ring.check()
        ring.append(0)
        ring.check()
        ring.append(6)
        ring.append(0)
        ring.check()
        ring.append(1)
        ring.check()

    def test_any_number_of_layers_may_read(self, draw):
        ring = rolling(draw, window=4)
        for num_columns in (6, 1, 3):
            ring.append(num_columns)
            ring.check()
            ring.check()

    def test_layers_do_not_share(self, draw):
        first, second = rolling(draw, window=4), rolling(draw, window=4)
        first.append(5)
        second.append(3)
        first.check()
        second.check()

    @pytest.mark.parametrize("num_columns", [1, 3, 9])
    def test_the_callers_keys_stay_the_callers(self, draw, num_columns):
        for held in (0, 6):
            ring = rolling(draw, window=4)
            ring.append(held)
            k, v = ring.new(num_columns)
            call_then_spoil(ring.cache.append, k.clone(), v.clone())
            ring.remember(k, v)
            ring.check()
            ring.append(1)
            ring.check()

    def test_arguments_are_not_changed(self, draw):
        ring = rolling(draw, window=4)
        k, v = ring.new(5)
        _, changed = watch(ring.cache.append, k, v, torch.tensor([3, 5, 2]))
        assert changed == [], "append changed k (0), v (1) or num_tokens (2) in place"

    def test_lengths_are_a_copy(self, draw):
        ring = rolling(draw, window=4)
        ring.append(6, [6, 1, 3])
        before = ring.cache.lengths
        ring.append(1)
        assert_equal(before, torch.tensor([6, 1, 3]), axes="row", what="lengths read before")
        read_then_spoil(ring.cache, "lengths")
        ring.check()

    def test_num_tokens_outside_the_columns(self, draw):
        ring = rolling(draw, window=4)
        ring.append(6)
        for num_tokens in ([3, 0, -1], [4, 1, 2], [0, 1, 4]):
            what = f"append of 3 columns, num_tokens {num_tokens}"
            assert_value_error(what, ring.cache.append, *ring.new(3), torch.tensor(num_tokens))
            ring.check()
        ring.append(1)
        ring.check()

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
    def test_other_dtypes(self, draw, dtype):
        ring = rolling(draw, window=4, dtype=dtype)
        for num_columns in (1, 5, 1):
            ring.append(num_columns)
            ring.check()

    def test_any_mixture(self, draw):
        ring = rolling(draw, window=5, rows=4, num_sinks=2)
        for _ in range(25):
            columns = int(draw.integers(1, 9, 1))
            ring.append(columns, draw.integers(0, columns + 1, 4).tolist())
            ring.check()


@pytest.mark.group("rollback")
class TestRollback:
    def test_within_the_slack(self, draw):
        """W = 4 and 3 tokens of slack: the window of the token that comes next is all there."""
        for kept in ([20, 17, 18], [19, 20, 17], [17, 17, 17]):
            for num_columns in (1, 2, 6):
                ring = rolling(draw, window=4, max_rollback=3)
                ring.append(20)
                ring.truncate(kept)
                ring.check()
                ring.append(num_columns)
                ring.check()
                ring.append(1)
                ring.check()

    def test_token_by_token(self, draw):
        """As when drafts are rejected: forward three, back two, again and again."""
        ring = rolling(draw, window=4, num_sinks=1, max_rollback=2)
        ring.append(7, [7, 2, 5])
        for _ in range(8):
            for num_tokens in (None, [1, 1, 0], None):
                ring.append(1, num_tokens)
                ring.check()
            ring.truncate((ring.given.lengths - torch.tensor([2, 1, 2])).tolist())
            ring.check()

    def test_too_far_is_refused(self, draw):
        """What would be in the window again has been overwritten; no row has changed."""
        for kept in ([16, 20, 20], [20, 20, 15], [20, 9, 20]):
            ring = rolling(draw, window=4, max_rollback=3)
            ring.append(13)
            ring.append(7)
            assert_refused(ring, kept)

    def test_the_slack_is_counted_from_the_furthest(self, draw):
        ring = rolling(draw, window=4, num_sinks=1, max_rollback=3)
        ring.append(20)
        ring.truncate([18, 20, 17])
        assert_refused(ring, [16, 20, 17])
        assert_refused(ring, [18, 20, 16])
        ring.truncate([17, 17, 17])
        ring.append(2)
        ring.check()

    @pytest.mark.parametrize("most", [9, 10, 14])
    def test_refused_by_the_rule_and_not_by_what_is_left(self, draw, most):
        """9 slots. Layers of one model must refuse alike, however the tokens came in."""
        for chunks in ([most], [most - 1, 1], [most - 6, 6]):
            for kept in range(most + 1):
                ring = rolling(draw, window=4, rows=2, num_sinks=2, max_rollback=3)
                for num_columns in chunks:
                    ring.append(num_columns)
                if most <= 9 or kept <= 2 or kept >= most - 3:
                    ring.truncate([most, kept])
                    ring.check()
                    ring.append(2)
                    ring.check()
                else:
                    assert_refused(ring, [most, kept])

    def test_a_row_that_was_down_to_its_sinks_starts_anew(self, draw):
        for kept in ([0, 20, 2], [1, 18, 0]):
            ring = rolling(draw, window=4, num_sinks=2, max_rollback=3)
            ring.append(20)
            ring.truncate(kept)
            ring.append(5)
            back = [int(n) - 4 for n in ring.given.lengths]
            assert_refused(ring, back)  # row 1 is full, and goes back by 3 at most
            ring.truncate([back[0], back[1] + 1, back[2]])
            ring.check()
            ring.append(4)
            ring.check()

    def test_anywhere_while_nothing_is_overwritten(self, draw):
        for kept in ([0, 5, 2], [1, 0, 4], [3, 3, 0]):
            ring = rolling(draw, window=4, num_sinks=2)
            ring.append(6, [6, 5, 4])
            ring.truncate(kept)
            ring.check()
            ring.append(3)
            ring.check()

    def test_an_empty_row_starts_anew(self, draw):
        ring = rolling(draw, window=4, num_sinks=1)
        ring.append(20)
        ring.truncate([0, 20, 0])
        ring.check()
        for num_tokens in ([2, 1, 3], [3, 3, 0], [1, 0, 2]):
            ring.append(3, num_tokens)
            ring.check()

    def test_lengths_that_are_not_held(self, draw):
        ring = rolling(draw, window=4)
        ring.append(3, [3, 1, 2])
        for lengths in ([4, 1, 2], [3, 2, 2], [2, 1, -1], [3, 3, 3]):
            assert_refused(ring, lengths)

    def test_the_callers_lengths_stay_the_callers(self, draw):
        ring = rolling(draw, window=4)
        ring.append(4)
        call_then_spoil(ring.cache.truncate, torch.tensor([1, 4, 2]))
        ring.cache.append(*ring.new(1))
        assert_equal(ring.cache.lengths, torch.tensor([2, 5, 3]), axes="row", what="lengths")

    def test_any_mixture(self, draw):
        ring = rolling(draw, window=3, rows=4, num_sinks=1, max_rollback=3)
        for _ in range(25):
            columns = int(draw.integers(3, 6, 1))
            ring.append(columns, draw.integers(3, columns + 1, 4).tolist())
            ring.check()
            back = draw.integers(0, 4, 4)
            ring.truncate((ring.given.lengths - back).clamp(min=0).tolist())
            ring.check()


def assert_refused(ring, lengths):
    """truncate(lengths) raises ValueError, and the cache goes on as if it had not been called."""
    assert_value_error(ring.truncation(lengths), ring.cache.truncate, torch.tensor(lengths))
    ring.check()


D_MODEL, THETA = 28, 700.0


def draw_layer(draw, heads, kv_heads, window, num_sinks=0):
    """A layer, and the weights that it was given; without gradients, as decoding runs."""
    layer = SlidingWindowAttention(D_MODEL, heads, kv_heads, HEAD_DIM, window, THETA, num_sinks)
    sizes = {"q": heads, "k": kv_heads, "v": kv_heads}
    weights = {
        f"{name}_proj.weight": draw.normal(n * HEAD_DIM, D_MODEL, scale=D_MODEL**-0.5)
        for name, n in sizes.items()
    }
    scale = (heads * HEAD_DIM) ** -0.5
    weights["o_proj.weight"] = draw.normal(D_MODEL, heads * HEAD_DIM, scale=scale)
    layer.load_state_dict(weights)
    layer.requires_grad_(False)
    return layer, weights


def assert_layer(got, x, weights, window, num_sinks=0, first=0):
    """`got` is the layer's output for the whole sequence x, compared from position `first` on."""
    assert got.dtype == x.dtype, f"expected the dtype of x, {x.dtype}, got {got.dtype}"
    expected, naive = (
        oracles.window_layer(x, weights, HEAD_DIM, THETA, window, num_sinks, dtype)
        for dtype in (torch.float64, x.dtype)
    )
    late = (torch.arange(x.shape[1]) >= first)[:, None]
    got, expected, naive = (y * late for y in (got, expected, naive))
    assert_close(got, expected, naive=naive, axes="batch seq d_model")


@pytest.mark.group("layer")
class TestLayer:
    @pytest.mark.parametrize("heads, kv_heads", [(6, 2), (4, 4), (5, 1)])
    def test_whole_sequence(self, draw, heads, kv_heads):
        for window, num_sinks in ((4, 0), (3, 2), (50, 0)):
            layer, weights = draw_layer(draw, heads, kv_heads, window, num_sinks)
            x = draw.normal(2, 9, D_MODEL)
            assert_layer(layer(x), x, weights, window, num_sinks)

    @pytest.mark.parametrize("chunks", [(14,), (4, 4, 4, 2), (5, 1, 1, 1, 6), (1, 1, 9, 1, 1, 1)])
    def test_chunks_with_a_rolling_cache_equal_one_pass(self, draw, chunks):
        for num_sinks in (0, 2):
            layer, weights = draw_layer(draw, 6, 2, 4, num_sinks)
            x = draw.normal(2, 14, D_MODEL)
            cache = RollingCache(2, 4, 2, HEAD_DIM, num_sinks=num_sinks)
            parts = [layer(part, cache) for part in x.split(chunks, dim=1)]
            assert_layer(torch.cat(parts, dim=1), x, weights, 4, num_sinks)

    @pytest.mark.parametrize("chunks", [(10,), (4, 5, 1), (1, 1, 8)])
    def test_a_cache_that_keeps_everything(self, draw, chunks):
        layer, weights = draw_layer(draw, 6, 2, 4)
        x = draw.normal(2, 10, D_MODEL)
        cache = GrowingCache(batch_size=2)
        parts = [layer(part, cache) for part in x.split(chunks, dim=1)]
        assert_layer(torch.cat(parts, dim=1), x, weights, 4)

    def test_a_cache_whose_slots_are_shuffled(self, draw):
        layer, weights = draw_layer(draw, 6, 2, 4)
        x = draw.normal(2, 10, D_MODEL)
        given = CacheOracle(2, 2, HEAD_DIM, torch.float32)
        cache = DelegatingCache(lambda: given.lengths, given.append, **oracles.shuffled(given))
        parts = [layer(part, cache) for part in x.split((6, 1, 3), dim=1)]
        assert_layer(torch.cat(parts, dim=1), x, weights, 4)

    def test_rows_of_unequal_length(self, draw):
        """Each row goes on as if it were alone, whatever comes in its padding."""
        layer, weights = draw_layer(draw, 6, 2, 4)
        x = draw.normal(3, 16, D_MODEL)
        cache, fed = RollingCache(3, 4, 2, HEAD_DIM), torch.zeros(3, dtype=torch.int64)
        got = torch.zeros_like(x)
        for counts in ([7, 2, 4], [1, 1, 1], [0, 6, 1], [1, 1, 0], [1, 0, 1], [2, 5, 3]):
            part = draw.normal(3, max(counts), D_MODEL)
            for row, count in enumerate(counts):
                part[row, :count] = x[row, fed[row] : fed[row] + count]
            out = layer(part, cache, torch.tensor(counts))
            assert out.isfinite().all(), "the output of padding is not finite"
            for row, count in enumerate(counts):
                got[row, fed[row] : fed[row] + count] = out[row, :count]
            fed += torch.tensor(counts)
        for row, length in enumerate(fed.tolist()):
            assert_layer(got[row : row + 1, :length], x[row : row + 1, :length], weights, 4)

    def test_without_a_cache_padding_changes_nothing(self, draw):
        layer, weights = draw_layer(draw, 6, 2, 4)
        x = draw.normal(2, 7, D_MODEL)
        got = layer(x, num_tokens=torch.tensor([7, 5]))
        assert_layer(got[:1], x[:1], weights, 4)
        assert_layer(got[1:, :5], x[1:, :5], weights, 4)

    def test_after_a_roll_back(self, draw):
        """The cache alone says where the next token stands; a second cache begins anew."""
        layer, weights = draw_layer(draw, 6, 2, 4)
        x = draw.normal(2, 12, D_MODEL)
        for _ in range(2):
            cache = RollingCache(2, 4, 2, HEAD_DIM, max_rollback=3)
            layer(torch.cat([x[:, :7], draw.normal(2, 3, D_MODEL)], dim=1), cache)
            cache.truncate(torch.tensor([7, 7]))
            late = [layer(part, cache) for part in x[:, 7:].split((1, 3, 1), dim=1)]
            whole = torch.cat([torch.zeros(2, 7, D_MODEL), *late], dim=1)
            assert_layer(whole, x, weights, 4, first=7)

    def test_what_left_the_window_is_forgotten(self, draw):
        """Rows that differ enormously, but not in their last four tokens."""
        layer, weights = draw_layer(draw, 6, 2, 4)
        plain = draw.normal(1, 11, D_MODEL)
        x = plain.repeat(2, 1, 1)
        x[1, :7] = 1e15 * draw.normal(7, D_MODEL)
        cache = RollingCache(2, 4, 2, HEAD_DIM)
        stepped = [layer(part, cache) for part in x.split((6, 1, 1, 1, 1, 1), dim=1)]
        for out in (stepped[-1], layer(x)[:, -1:]):
            whole = torch.cat([torch.zeros(1, 10, D_MODEL), out[1:]], dim=1)
            assert_layer(whole, plain, weights, 4, first=10)

    def test_bfloat16_at_positions_that_it_cannot_hold(self, draw):
        layer, weights = draw_layer(draw, 9, 3, 8)
        layer.to(torch.bfloat16)
        weights = {name: weight.bfloat16() for name, weight in weights.items()}
        x = draw.normal(2, 290, D_MODEL, dtype=torch.bfloat16)
        cache = RollingCache(2, 8, 3, HEAD_DIM, torch.bfloat16)
        parts = [layer(part, cache) for part in x.split((280, 1, 8, 1), dim=1)]
        assert_layer(torch.cat(parts, dim=1), x, weights, 8, first=257)

    @pytest.mark.parametrize("windows", [(4, 4, 4), (4, 1000, 4)], ids=["local", "hybrid"])
    def test_a_model_of_such_layers(self, draw, windows):
        """A session, chunked and ragged, gives the logits of one pass over the whole sequence."""
        layers = tuple(AttentionLayer(window=window) for window in windows)
        sizes = {"d_model": D_MODEL, "num_heads": 6, "num_kv_heads": 2, "head_dim": HEAD_DIM}
        config = LlamaConfig(50, len(layers), **sizes, d_ff=40, attention=layers)
        attention, seed = {"local": SlidingWindowAttention}, draw.seed()
        model = LayeredLlama(config, attention, seed)
        tokens = draw.integers(0, 50, 3, 17)
        naive = model(tokens).detach()
        expected = LayeredLlama(config, attention, seed).double()(tokens).detach()

        session = model.session({"local": RollingCache}, 3, 17)
        got, fed = torch.zeros_like(naive), torch.zeros(3, dtype=torch.int64)
        for counts in ([6, 1, 9], [1, 1, 1], [1, 6, 0], [1, 1, 1], [5, 3, 2]):
            part = torch.full((3, max(counts)), 49)
            for row, count in enumerate(counts):
                part[row, :count] = tokens[row, fed[row] : fed[row] + count]
            logits = session(part, torch.tensor(counts))
            for row, count in enumerate(counts):
                got[row, fed[row] : fed[row] + count] = logits[row, :count]
            fed += torch.tensor(counts)
        is_fed = (torch.arange(17) < fed[:, None])[:, :, None]
        got, expected, naive = (x * is_fed for x in (got, expected, naive))
        assert_close(got, expected, naive=naive, axes="batch seq vocab", what="logits")


@pytest.mark.cost("slots")
def test_a_step_reads_the_window_and_no_more(draw, budget):
    """Slots that keys_values shows after one new token, in rows far longer than the window."""
    window, num_sinks = 20, 2
    ring = rolling(draw, window, num_sinks=num_sinks)
    ring.append(90, [90, 60, 71])
    slots = []
    for step in range(30):
        ring.append(1, [1, 1, step % 2])
        slots.append(ring.check())
    longest = int(ring.given.lengths.max())
    budget(max(slots), window + num_sinks, unit="slots", beside={"every token kept": longest})


@pytest.mark.cost("bytes")
def test_bytes_of_a_step(draw, budget):
    """One new token a row behind 900, in a window of 240, and the token is taken back.

    The ideal: the new key and value are gathered once and stored once; the keys and values of the
    window, and q, are read and the result is written once; the scores, small beside them, are gone
    over four times. How long the sequence is plays no part.
    """
    rows, heads, kv_heads, head_dim, window = 2, 6, 3, 256, 240
    lengths = torch.tensor([900, 840])
    cache = RollingCache(rows, window, kv_heads, head_dim, max_rollback=1)
    prompt = [draw.normal(rows, kv_heads, 899, head_dim) for _ in "kv"]
    q, k, v = draw_qkv(draw, heads, kv_heads, 1, 1, rows=rows, head_dim=head_dim)
    cache.append(*prompt, lengths - 1)
    cache.append(v, k)  # what is left to do after a prompt is not a step's
    queries = cache.positions(1)

    append = observe(cache.append, k, v)
    read, where = observe(cache.keys_values), observe(cache.key_positions)
    keys, values = (x.contiguous() for x in read.value)
    arguments = q, keys, values, queries, where.value, window
    attend = observe(sliding_window_attention, *arguments)
    assert_attention(attend.value, *arguments)
    back = observe(cache.truncate, lengths)
    assert_equal(cache.lengths, lengths, axes="row", what="lengths")

    size = q.element_size()
    stored = 2 * (k.numel() + v.numel()) * size  # read and written
    assert append.cost.bytes >= stored, "the new key and value were not stored under the counter"
    parts = {"append": append, "keys_values": read, "attention": attend, "truncate": back}
    parts = {name: seen.cost.bytes for name, seen in parts.items()}

    def ideal(num_slots):
        attended = 2 * rows * num_slots * kv_heads * head_dim + 2 * q.numel()
        return 2 * stored + (attended + 4 * rows * heads * num_slots) * size

    budget(
        sum(parts.values()) + where.cost.bytes,
        ideal(window),
        unit="bytes",
        beside=parts | {"every token kept": ideal(901)},
    )
