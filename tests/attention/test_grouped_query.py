"""attention.grouped_query: who reads which KV head, who sees which key, and what it costs."""

from __future__ import annotations

import pytest
import torch

from submission.attention.grouped_query import (
    GroupedQueryAttention,
    causal_mask,
    grouped_query_attention,
    pool_kv_heads,
    rope_angles,
)
from submission.provided.models import DelegatingCache, GrowingCache
from tests.attention import oracles
from tests.grading.boundary import observe, watch
from tests.grading.closeness import assert_close, assert_equal
from tests.grading.refusal import assert_value_error
from tests.grading.shapes import HEAD_RATIOS

AXES = "batch heads seq head_dim"
RATIOS = pytest.mark.parametrize("heads, kv_heads", HEAD_RATIOS)


def draw_qkv(draw, heads, kv_heads, num_new, num_keys, *, rows=2, head_dim=10, dtype=torch.float32):
    """Queries, keys and values, different in every row and head."""
    q = draw.normal(rows, heads, num_new, head_dim, dtype=dtype)
    k = draw.normal(rows, kv_heads, num_keys, head_dim, dtype=dtype)
    v = draw.normal(rows, kv_heads, num_keys, head_dim, dtype=dtype)
    return q, k, v


def assert_attention(got, q, k, v, kv_lengths=None, num_tokens=None, level=0.0):
    """`got` is attention(q, k, v), up to what float32 scores near `level` and a result in q's dtype
    cost."""
    assert got.dtype == q.dtype, f"expected the dtype of q, {q.dtype}, got {got.dtype}"
    expected = oracles.attention(q, k, v, kv_lengths, num_tokens)
    naive = oracles.attention(q, k, v, kv_lengths, num_tokens, dtype=torch.float32).to(q.dtype)
    naive = oracles.out_of_luck(naive, expected, level).to(q.dtype)
    assert got.isfinite().all(), "the result holds numbers that are not finite"
    if num_tokens is not None:  # padding queries may get anything finite
        padding = torch.arange(q.shape[2]) >= num_tokens[:, None]
        expected = torch.where(padding[:, None, :, None], got, expected)
        naive = torch.where(padding[:, None, :, None], got, naive)
    assert_close(got, expected, naive=naive, axes=AXES)


@pytest.mark.group("heads")
class TestHeads:
    @RATIOS
    def test_whole_sequence(self, draw, heads, kv_heads):
        q, k, v = draw_qkv(draw, heads, kv_heads, num_new=9, num_keys=9)
        assert_attention(grouped_query_attention(q, k, v), q, k, v)

    @RATIOS
    def test_one_new_token(self, draw, heads, kv_heads):
        q, k, v = draw_qkv(draw, heads, kv_heads, num_new=1, num_keys=101)
        assert_attention(grouped_query_attention(q, k, v), q, k, v)

    def test_neighbours_share_a_kv_head(self, draw):
        for heads, kv_heads in HEAD_RATIOS:
            q, k, v = draw_qkv(draw, heads, kv_heads, num_new=2, num_keys=5)
            v = (1.0 + torch.arange(kv_heads))[:, None, None].expand_as(v)  # says who was read
            got = grouped_query_attention(q, k, v)
            read = torch.tensor([1 + head // (heads // kv_heads) for head in range(heads)])
            assert_close(got, read[:, None, None].expand_as(got), axes=AXES)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
    def test_other_dtypes(self, draw, dtype):
        q, k, v = draw_qkv(draw, 6, 2, num_new=5, num_keys=70, dtype=dtype)
        assert_attention(grouped_query_attention(q, k, v), q, k, v)

    def test_arguments_are_not_changed(self, draw):
        q, k, v = draw_qkv(draw, 6, 2, num_new=3, num_keys=7)
        arguments = [q, k, v, torch.tensor([7, 4]), torch.tensor([3, 2])]
        _, changed = watch(grouped_query_attention, *arguments)
        assert changed == [], "q (0), k (1), v (2), kv_lengths (3) or num_tokens (4) was changed"

    def test_heads_that_do_not_divide(self, draw):
        for heads, kv_heads in [(4, 3), (2, 4), (10, 4)]:
            what = f"{heads} query heads on {kv_heads} KV heads"
            qkv = draw_qkv(draw, heads, kv_heads, num_new=2, num_keys=2)
            assert_value_error(what, grouped_query_attention, *qkv)


@pytest.mark.group("mask")
class TestMask:
    def test_aligned_to_the_last_key(self):
        assert_equal(causal_mask(1, 5).tolist(), [[[True] * 5]])
        assert_equal(causal_mask(2, 5).int().tolist(), [[[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]])
        assert_equal(causal_mask(3, 3).int().tolist(), [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]])
        assert_equal(causal_mask(5, 2).int().tolist(), [[[0, 0], [0, 0], [0, 0], [1, 0], [1, 1]]])

    @pytest.mark.parametrize("num_tokens", [None, [3, 1, 2, 3]])
    @pytest.mark.parametrize("kv_lengths", [None, [7, 3, 5, 2]])
    def test_each_row_has_its_own_end(self, kv_lengths, num_tokens):
        kv_lengths, num_tokens = _tensor(kv_lengths), _tensor(num_tokens)
        got = causal_mask(3, 7, kv_lengths, num_tokens)
        assert got.dtype == torch.bool, f"expected a boolean mask, got {got.dtype}"
        expected = oracles.visible(3, 7, kv_lengths, num_tokens, 4)
        if kv_lengths is None and num_tokens is None:
            expected = expected[:1]
        if num_tokens is not None:  # a padding query's part may be anything
            padding = torch.arange(3) >= num_tokens[:, None]
            expected = torch.where(padding[:, :, None], got, expected)
        assert_equal(got, expected, axes="row query key")

    def test_chunks_equal_one_pass(self, draw):
        q, k, v = draw_qkv(draw, 9, 3, num_new=10, num_keys=10)
        for chunk in (1, 3, 4):
            parts = [
                grouped_query_attention(q[:, :, start:end], k[:, :, :end], v[:, :, :end])
                for start in range(0, 10, chunk)
                for end in [min(start + chunk, 10)]
            ]
            assert_attention(torch.cat(parts, dim=2), q, k, v)

    def test_unequal_rows(self, draw):
        q, k, v = draw_qkv(draw, 6, 2, num_new=4, num_keys=12, rows=4)
        kv_lengths, num_tokens = torch.tensor([12, 5, 9, 3]), torch.tensor([4, 1, 0, 2])
        for row, length in enumerate(kv_lengths):  # loud, so that a single look shows
            k[row, :, length:] *= 8
            v[row, :, length:] = 50.0
        got = grouped_query_attention(q, k, v, kv_lengths, num_tokens)
        assert_attention(got, q, k, v, kv_lengths, num_tokens)

    def test_unequal_rows_of_one_new_token(self, draw):
        q, k, v = draw_qkv(draw, 5, 1, num_new=1, num_keys=12, rows=3)
        kv_lengths = torch.tensor([4, 12, 1])
        got = grouped_query_attention(q, k, v, kv_lengths)
        assert_attention(got, q, k, v, kv_lengths)

    def test_a_query_that_sees_nothing_gets_zeros(self, draw):
        q, k, v = draw_qkv(draw, 6, 2, num_new=5, num_keys=2)
        got = grouped_query_attention(q, k, v)
        assert_equal(got[:, :, :3], torch.zeros(2, 6, 3, 10), axes=AXES)
        assert_attention(got, q, k, v)

    def test_an_empty_row_gets_zeros(self, draw):
        q, k, v = draw_qkv(draw, 6, 2, num_new=2, num_keys=6)
        kv_lengths = torch.tensor([6, 0])
        got = grouped_query_attention(q, k, v, kv_lengths)
        assert_equal(got[1], torch.zeros(6, 2, 10), axes="heads seq head_dim")
        assert_attention(got, q, k, v, kv_lengths)


@pytest.mark.group("numerics")
class TestNumerics:
    @pytest.mark.parametrize("level", [-300.0, 300.0])
    def test_scores_far_from_zero(self, draw, level):
        q, k, v = self._at_level(draw, level)
        kv_lengths = torch.tensor([13, 5])
        k[1, :, 5:] = 0.0  # as a cache leaves it: a score of 0 that must not count
        got = grouped_query_attention(q, k, v, kv_lengths)
        assert_attention(got, q, k, v, kv_lengths, level=level)

    def test_bfloat16_scores_stay_apart(self, draw):
        q, k, v = self._at_level(draw, 200.0, dtype=torch.bfloat16)
        assert_attention(grouped_query_attention(q, k, v), q, k, v)

    def _at_level(self, draw, level, dtype=torch.float32, head_dim=16):
        """Queries and keys whose scores differ by a few, all of them near `level`."""
        q, k, v = draw_qkv(draw, 6, 2, num_new=4, num_keys=13, head_dim=head_dim)
        size = (abs(level) / head_dim**0.5) ** 0.5
        q = 0.2 * q + size
        k = 0.2 * k + size * (1 if level > 0 else -1)
        return q.to(dtype), k.to(dtype), v.to(dtype)


@pytest.mark.group("rope")
class TestRopeAngles:
    @pytest.mark.parametrize("head_dim, theta", [(10, 10_000.0), (64, 500_000.0), (2, 10_000.0)])
    def test_formula(self, draw, head_dim, theta):
        positions = draw.integers(0, 100_000, 3, 7)
        assert_angles(rope_angles(positions, head_dim, theta), positions, head_dim, theta)

    def test_default_theta(self):
        positions = torch.tensor([[0, 1, 2], [255, 256, 257]])
        assert_angles(rope_angles(positions, 12), positions, 12, 10_000.0)


def assert_angles(got, positions, head_dim, theta):
    assert got.dtype == torch.float32, f"expected float32, got {got.dtype}"
    expected = oracles.rope_angles(positions, head_dim, theta, torch.float64)
    turn = expected.amax(dim=(0, 1)).clamp(min=1e-30)
    got, expected = got / turn, expected / turn  # each pair by itself, as the slow ones are small
    naive = (1 + 1e-6) * expected  # how well float32 knows a power of theta
    assert_close(got, expected, naive=naive, axes="batch seq pair")


@pytest.mark.group("layer")
class TestLayer:
    @pytest.mark.parametrize("heads, kv_heads", [(6, 2), (4, 4), (5, 1)])
    def test_whole_sequence(self, draw, heads, kv_heads):
        layer, weights = draw_layer(draw, heads, kv_heads)
        x = draw.normal(2, 7, D_MODEL)
        assert_layer(layer(x), x, weights)

    @pytest.mark.parametrize("chunks", [(10,), (4, 4, 2), (6, 1, 1, 1, 1), (1, 1, 8)])
    def test_chunks_with_a_cache_equal_one_pass(self, draw, chunks):
        layer, weights = draw_layer(draw, 6, 2)
        x = draw.normal(2, 10, D_MODEL)
        cache = GrowingCache(batch_size=2)
        parts = [layer(part, cache) for part in x.split(chunks, dim=1)]
        assert_layer(torch.cat(parts, dim=1), x, weights)

    def test_rows_of_unequal_length(self, draw):
        """A prompt, a roll-back of one row, then steps: each row goes on as if it were alone."""
        layer, weights = draw_layer(draw, 6, 2)
        x = draw.normal(2, 9, D_MODEL)
        cache, oracle = delegating_cache(batch_size=2, kv_heads=2)
        layer(x[:, :5], cache)
        oracle.truncate(torch.tensor([5, 2]))
        rows = [x[0], torch.cat([x[1, :2], x[1, 5:]])]  # what each row has been fed
        late = [layer(part, cache) for part in x[:, 5:].split((1, 3), dim=1)]
        got = torch.cat(late, dim=1)
        for row, tokens in enumerate(rows):
            whole = torch.cat([torch.zeros(1, len(tokens) - 4, D_MODEL), got[row : row + 1]], dim=1)
            assert_layer(whole, tokens[None], weights, first=len(tokens) - 4)

    def test_only_some_of_a_row_may_be_tokens(self, draw):
        """Chunks whose rows hold 3, 0 or 2 tokens of 4: padding is neither stored nor seen."""
        layer, weights = draw_layer(draw, 6, 2)
        cache, oracle = delegating_cache(batch_size=3, kv_heads=2)
        fed, outputs = [[], [], []], [[], [], []]
        for counts in ([3, 0, 4], [1, 2, 0], [4, 4, 1]):
            x = draw.normal(3, 4, D_MODEL)
            got = layer(x, cache, num_tokens=torch.tensor(counts))
            assert got.isfinite().all(), "the result holds numbers that are not finite"
            for row, count in enumerate(counts):
                fed[row].append(x[row, :count])
                outputs[row].append(got[row, :count])
        assert_equal(oracle.lengths.tolist(), [8, 6, 5])
        for tokens, out in zip(fed, outputs, strict=True):
            assert_layer(torch.cat(out)[None], torch.cat(tokens)[None], weights)

    def test_without_a_cache_padding_changes_nothing(self, draw):
        layer, weights = draw_layer(draw, 6, 2)
        x = draw.normal(2, 7, D_MODEL)
        got = layer(x, num_tokens=torch.tensor([7, 4]))
        assert_layer(got[:1], x[:1], weights)
        assert_layer(got[1:, :4], x[1:, :4], weights)

    def test_bfloat16_at_positions_that_it_cannot_hold(self, draw):
        layer, weights = draw_layer(draw, 9, 3)
        layer.to(torch.bfloat16)
        weights = {name: weight.bfloat16() for name, weight in weights.items()}
        x = draw.normal(2, 290, D_MODEL, dtype=torch.bfloat16)
        cache = GrowingCache(batch_size=2)
        parts = [layer(part, cache) for part in x.split((289, 1), dim=1)]
        assert_layer(torch.cat(parts, dim=1), x, weights, first=257)


D_MODEL, HEAD_DIM, THETA = 28, 6, 700.0


def delegating_cache(batch_size, kv_heads):
    """A cache of rows that may differ in length, and the oracle that does its work here."""
    oracle = oracles.CacheOracle(batch_size, kv_heads, HEAD_DIM, torch.float32)

    def keys_values():
        return tuple(oracles.padded(rows) for rows in (oracle.keys, oracle.values))

    return DelegatingCache(lambda: oracle.lengths, oracle.append, keys_values), oracle


def draw_layer(draw, heads, kv_heads):
    """A layer, and the weights that it was given; without gradients, as decoding runs."""
    layer = GroupedQueryAttention(D_MODEL, heads, kv_heads, HEAD_DIM, THETA)
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


def assert_layer(got, x, weights, first=0):
    """`got` is the layer's output for the whole sequence x, compared from position `first` on."""
    assert got.dtype == x.dtype, f"expected the dtype of x, {x.dtype}, got {got.dtype}"
    expected, naive = (
        oracles.attention_layer(x, weights, HEAD_DIM, THETA, dtype)
        for dtype in (torch.float64, x.dtype)
    )
    late = (torch.arange(x.shape[1]) >= first)[:, None]
    got, expected, naive = (y * late for y in (got, expected, naive))
    assert_close(got, expected, naive=naive, axes="batch seq d_model")


@pytest.mark.group("pooling")
class TestPooling:
    def test_mean_of_neighbours(self, draw):
        for old, new in [(6, 2), (9, 3), (12, 4), (5, 1), (3, 3)]:
            weight = draw.normal(old * HEAD_DIM, 7)
            heads = weight.double().split(HEAD_DIM)
            merged = old // new
            groups = [heads[i : i + merged] for i in range(0, old, merged)]
            expected = torch.cat([sum(group) / merged for group in groups])
            assert_close(pool_kv_heads(weight, old, new), expected, axes="row column")

    def test_the_old_weight_and_its_dtype_stay(self, draw):
        weight = draw.normal(6 * HEAD_DIM, 7, dtype=torch.bfloat16)
        pooled, changed = watch(pool_kv_heads, weight, 6, 2)
        assert changed == [], "the weight was changed in place"
        assert pooled.dtype == weight.dtype, f"expected {weight.dtype}, got {pooled.dtype}"

    def test_equal_heads_lose_nothing(self, draw):
        pooled = draw.normal(2 * HEAD_DIM, 7)
        weight = pooled.unflatten(0, (2, HEAD_DIM)).repeat_interleave(3, dim=0).flatten(0, 1)
        assert_close(pool_kv_heads(weight, 6, 2), pooled.double(), axes="row column")

    def test_heads_that_do_not_divide(self, draw):
        for rows, old, new in [(12, 6, 4), (12, 2, 4), (13, 6, 2)]:
            what = f"pool_kv_heads of {rows} rows from {old} heads to {new}"
            assert_value_error(what, pool_kv_heads, draw.normal(rows, 3), old, new)


@pytest.mark.cost("bytes")
def test_a_decode_step_reads_the_cache_once(draw, budget):
    """One new token a row on 300 cached ones.

    The ideal: K, V and q are read and the result is written once, and the scores, small beside the
    cache, are gone over four times. A copy of K and V for every query head comes to 5 times.
    """
    rows, heads, kv_heads, held, head_dim = 2, 6, 3, 300, 256
    q, k, v = draw_qkv(draw, heads, kv_heads, 1, held, rows=rows, head_dim=head_dim)
    kv_lengths = torch.tensor([held, held])  # equal: no right answer reads less than all of K and V
    seen = observe(grouped_query_attention, q, k, v, kv_lengths)
    assert_attention(seen.value, q, k, v, kv_lengths)

    scores = rows * heads * held
    elements = k.numel() + v.numel() + 2 * q.numel() + 4 * scores
    copies = 2 * (heads // kv_heads) * (k.numel() + v.numel())  # written, then read
    budget(
        seen.cost.bytes,
        elements * q.element_size(),
        unit="bytes",
        beside={"K and V copied per query head": (elements + copies) * q.element_size()},
    )


def _tensor(numbers):
    return None if numbers is None else torch.tensor(numbers)
