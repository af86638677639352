"""attention.latent: two forms of one function, a cache of latents, and what each form costs."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.models import AttentionLayer, LlamaConfig
from submission.attention.latent import (
    LatentAttention,
    LatentCache,
    absorbed_attention,
    materialised_attention,
)
from submission.provided.models import LayeredLlama
from tests.attention import oracles_latent as oracles
from tests.attention.latent_inputs import CachePair, Sizes, draw_parts, draw_weights, fed_in_steps
from tests.attention.oracles import out_of_luck
from tests.grading.boundary import call_then_spoil, grad_of, observe, read_then_spoil, watch
from tests.grading.closeness import assert_close, assert_equal
from tests.grading.shapes import around

AXES = "batch heads seq v_dim"
SIZES = [Sizes(3, 10, 6, 14, 20), Sizes(2, 6, 12, 5, 24), Sizes(5, 12, 4, 8, 9)]
SMALL = SIZES[0]
EACH_SIZE = pytest.mark.parametrize("sizes", SIZES, ids=str)


def assert_attention(got, parts, query_positions=None, level=0.0):
    """`got` is the attention of these parts, whose scores are near `level`, up to what float32
    costs and a result in the dtype."""
    dtype = parts[0].dtype
    assert got.dtype == dtype, f"expected the dtype of q_nope, {dtype}, got {got.dtype}"
    assert got.isfinite().all(), "the result holds numbers that are not finite"
    expected = oracles.attention(*parts, query_positions)
    naive = oracles.attention(*parts, query_positions, dtype=torch.float32).to(dtype)
    naive = out_of_luck(naive, expected, level).to(dtype)
    assert_close(got, expected, naive=naive, axes=AXES)


class BothForms:
    """What the two forms must do alike."""

    @EACH_SIZE
    @pytest.mark.parametrize("num_new, num_keys", [(7, 7), (1, 40), (4, 9)])
    def test_whole_sequence_step_and_chunk(self, draw, sizes, num_new, num_keys):
        parts = draw_parts(draw, sizes, num_new, num_keys)
        assert_attention(self.attend(*parts), parts)

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
    def test_other_dtypes(self, draw, dtype):
        parts = draw_parts(draw, SMALL, 5, 30, dtype=dtype)
        assert_attention(self.attend(*parts), parts)

    def test_chunks_equal_one_pass(self, draw):
        parts = draw_parts(draw, SMALL, 10, 10)
        q_nope, q_rope, latent, k_rope, *up = parts
        for chunk in (1, 3, 4):
            outputs = []
            for start in range(0, 10, chunk):
                end = min(start + chunk, 10)
                new = slice(start, end)
                queries, keys = (q_nope[:, :, new], q_rope[:, :, new]), (latent, k_rope)
                outputs.append(self.attend(*queries, *(x[:, :end] for x in keys), *up))
            assert_attention(torch.cat(outputs, dim=2), parts)

    def test_each_query_has_its_own_position(self, draw):
        parts = draw_parts(draw, SMALL, 4, 12, rows=4)
        positions = torch.tensor([[8, 9, 10, 11], [0, 1, 2, 3], [6, 5, 11, 0], [9, 12, 13, 40]])
        parts[2][1, 4:] = 50.0  # unseen, and loud
        assert_attention(self.attend(*parts, positions), parts, positions)

    def test_a_query_that_sees_nothing_gets_zeros(self, draw):
        parts = draw_parts(draw, SMALL, 5, 2)
        got = self.attend(*parts)  # aligned to the last key, the first three queries see none
        assert_equal(got[:, :, :3], torch.zeros(2, SMALL.heads, 3, SMALL.value), axes=AXES)
        assert_attention(got, parts)
        positions = torch.tensor([[-1, 0, 1, 1, -3], [1, -1, 0, -2, 1]])
        got = self.attend(*parts, positions)
        blind = got.transpose(1, 2)[positions < 0]
        assert_equal(blind, torch.zeros(4, SMALL.heads, SMALL.value), axes="query heads v_dim")
        assert_attention(got, parts, positions)

    @pytest.mark.parametrize("level", [-300.0, 300.0])
    def test_scores_far_from_zero(self, draw, level):
        parts = self._at_level(draw, level)
        positions = torch.tensor([[9, 10, 11, 12], [1, 2, 3, 4]])
        parts[3][1, 5:] = 0.0  # as a cache leaves it: a score near 0 that must not count
        assert_attention(self.attend(*parts, positions), parts, positions, level)

    @pytest.mark.parametrize("size", [2**20, 2**40])
    def test_scores_of_any_size(self, draw, size):
        """All scores that count are −size, exactly, and those that do not are 0: a large negative
        number in place of −∞ is not low enough."""
        parts = draw_parts(draw, SMALL, 2, 9)
        factor = (size * (SMALL.nope + SMALL.rope) ** 0.5) ** 0.5  # a power of two
        positions = torch.tensor([[3, 7], [0, 1]])
        for part in (parts[0], parts[1], parts[3]):
            part.zero_()
        parts[1][..., 0] = factor
        parts[3][0, :8, 0] = parts[3][1, :2, 0] = -factor
        assert_attention(self.attend(*parts, positions), parts, positions)

    def test_bfloat16_scores_stay_apart(self, draw):
        parts = self._at_level(draw, 200.0, dtype=torch.bfloat16)
        assert_attention(self.attend(*parts), parts)

    def test_gradients(self, draw):
        parts = draw_parts(draw, SMALL, 4, 6)
        cotangent = draw.normal(2, SMALL.heads, 4, SMALL.value)
        _, got = grad_of(self.attend, *parts, cotangent=cotangent)
        expected = oracle_gradients(parts, cotangent, torch.float64)
        naive = oracle_gradients(parts, cotangent, torch.float32)
        names = ("q_nope", "q_rope", "latent", "k_rope", "k_up", "v_up")
        for name, *gradients in zip(names, got, expected, naive, strict=True):
            assert_gradient(*gradients, name)

    def test_arguments_are_not_changed(self, draw):
        parts = draw_parts(draw, SMALL, 3, 7)
        _, changed = watch(self.attend, *parts, torch.tensor([[4, 5, 6], [0, 1, 2]]))
        assert changed == [], "an argument was changed, by its number: q_nope is 0"

    def _at_level(self, draw, level, dtype=torch.float32):
        """Parts whose scores differ by a few, all of them near `level`."""
        parts = draw_parts(draw, SMALL, 4, 13)
        per_dim = abs(level) * (SMALL.nope + SMALL.rope) ** 0.5 / SMALL.rope
        parts[1] = 0.2 * parts[1] + per_dim**0.5
        parts[3] = 0.2 * parts[3] + per_dim**0.5 * (1 if level > 0 else -1)
        return [part.to(dtype) for part in parts]


def assert_gradient(got, expected, naive, name):
    is_used = bool(got.any())
    unused = f"the result does not depend on `{name}` for autograd"
    assert is_used, f"∂ / ∂ {name} is 0 throughout: {unused}"
    assert_close(got, expected, naive=naive, what=f"∂ / ∂ {name}")


def oracle_gradients(parts, cotangent, dtype):
    leaves = [part.to(dtype).requires_grad_() for part in parts]
    value = oracles.attention(*leaves, dtype=dtype)
    return torch.autograd.grad(value, leaves, cotangent.to(dtype))


@pytest.mark.group("materialised")
class TestMaterialised(BothForms):
    attend = staticmethod(materialised_attention)


@pytest.mark.group("absorbed")
class TestAbsorbed(BothForms):
    attend = staticmethod(absorbed_attention)


CAPACITY = 11


def pair_of(draw, capacity=CAPACITY, latent_dim=7, rope_dim=4, dtype=torch.float32):
    cache = LatentCache(3, capacity, latent_dim, rope_dim, dtype)
    return CachePair(draw, cache, 3, capacity, latent_dim, rope_dim, dtype)


@pytest.mark.group("cache")
class TestCache:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
    def test_prompt_and_steps_are_read_back(self, draw, dtype):
        pair = pair_of(draw, dtype=dtype)
        pair.check()
        for num_columns in (6, 1, 0, 1, 3):
            pair.append(num_columns)
            pair.check()

    def test_unequal_rows_stay_apart(self, draw):
        for num_tokens in ([4, 1, 3], [0, 4, 2], [2, 3, 0]):
            pair = pair_of(draw)
            pair.append(4, num_tokens)
            pair.check()
            pair.append(1)  # a decode step: each row's token goes behind its own
            pair.check()
            pair.append(4, num_tokens[::-1])
            pair.check()

    def test_padding_is_never_stored(self, draw):
        pair = pair_of(draw)
        pair.append(2, [2, 1, 0])
        new, num_tokens = pair.new(3), torch.tensor([1, 3, 0])
        pair.oracle.append(*new, num_tokens)
        for row, count in enumerate(num_tokens):
            for part in new:
                part[row, count:] = torch.nan
        pair.cache.append(*new, num_tokens)
        pair.check()
        pair.append(1, [0, 0, 1])  # row 2 grows into what its padding would have spoilt
        pair.check()

    def test_unwritten_slots_are_zero(self, draw):
        pair = pair_of(draw)
        pair.append(7, [7, 2, 0])
        for held in pair.cache.latents():
            assert_equal(held[1, 2:], torch.zeros(5, held.shape[2]), axes="slot dim")
            assert_equal(held[2], torch.zeros(7, held.shape[2]), axes="slot dim")

    def test_positions_count_each_rows_own_tokens(self, draw):
        cache = pair_of(draw).cache
        assert_equal(cache.positions(2), torch.tensor([[0, 1]] * 3), axes="row token")
        cache.append(*pair_of(draw).new(7), torch.tensor([2, 5, 0]))
        assert_equal(cache.positions(2), torch.tensor([[2, 3], [5, 6], [0, 1]]), axes="row token")
        cache.truncate(torch.tensor([1, 5, 0]))
        assert_equal(cache.positions(1), torch.tensor([[1], [5], [0]]), axes="row token")
        assert cache.positions(1).dtype == cache.lengths.dtype == torch.int64

    def test_lengths_are_a_copy(self, draw):
        pair = pair_of(draw)
        pair.append(3, [3, 1, 2])
        read_then_spoil(pair.cache, "lengths")
        pair.check()

    @pytest.mark.parametrize("total", around(CAPACITY))
    def test_exactly_full_fits_and_one_more_does_not(self, draw, total):
        pair = pair_of(draw)
        assert pair.cache.capacity == CAPACITY
        pair.append(5)
        if total > CAPACITY:
            pair.check_append_refused(*pair.new(total - 5))
        else:
            pair.append(total - 5)
            pair.check()

    @pytest.mark.parametrize("held, new", [([10, 3, 9], [0, 4, 3]), ([11, 2, 8], [0, 0, 4])])
    def test_one_row_without_room(self, draw, held, new):
        pair = pair_of(draw)
        pair.append(CAPACITY, held)
        pair.check_append_refused(*pair.new(4), torch.tensor(new))
        pair.append(4, [0, 2, 2])  # 4 columns are too many, 2 tokens are not
        pair.check()

    def test_num_tokens_outside_the_columns(self, draw):
        pair = pair_of(draw)
        pair.append(2)
        for num_tokens in ([3, 0, -1], [4, 1, 2]):
            pair.check_append_refused(*pair.new(3), torch.tensor(num_tokens))

    def test_what_follows_a_roll_back_overwrites(self, draw):
        for lengths in ([5, 2, 6], [0, 3, 1], [7, 7, 7]):
            pair = pair_of(draw)
            pair.append(7)
            pair.truncate(lengths)
            pair.check()
            pair.append(2, [1, 0, 2])
            pair.check()
            pair.append(2)
            pair.check()

    def test_lengths_that_are_not_held(self, draw):
        pair = pair_of(draw)
        pair.append(5, [3, 5, 2])
        for lengths in ([4, 5, 1], [1, 6, 2], [2, 1, -1]):
            pair.check_truncate_refused(lengths)

    def test_arguments_stay_the_callers(self, draw):
        pair = pair_of(draw)
        new, num_tokens = pair.new(CAPACITY), torch.tensor([11, 3, 4])
        _, changed = watch(pair.cache.append, *new, num_tokens)
        assert changed == [], "append changed latent (0), k_rope (1) or num_tokens (2) in place"
        pair.cache.truncate(torch.tensor([0, 0, 0]))
        call_then_spoil(pair.cache.append, *(part.clone() for part in new))
        pair.oracle.append(*new)
        call_then_spoil(pair.cache.truncate, torch.tensor([9, 2, 5]))
        pair.oracle.truncate(torch.tensor([9, 2, 5]))
        pair.append(1)
        pair.check()


D_MODEL, THETA = 28, 700.0


def draw_layer(draw, sizes, d_model=D_MODEL):
    """A layer, and the weights that it was given; without gradients, as decoding runs."""
    dims = (sizes.heads, sizes.latent, sizes.nope, sizes.rope, sizes.value)
    layer = LatentAttention(d_model, *dims, THETA)
    weights = draw_weights(draw, sizes, d_model)
    layer.load_state_dict(weights)
    layer.requires_grad_(False)
    return layer, weights


def assert_layer(got, x, weights, sizes, first=0):
    """`got` is the layer's output for the whole sequences x from position `first` on. Float32
    knows an angle at position 300 up to 300 · 2⁻²⁴; a tenth of that is left in a mean over keys."""
    assert got.dtype == x.dtype, f"expected the dtype of x, {x.dtype}, got {got.dtype}"
    expected, naive = (
        oracles.layer(x, weights, sizes, THETA, dtype)[:, first:]
        for dtype in (torch.float64, x.dtype)
    )
    naive = out_of_luck(naive, expected, level=16.0).to(x.dtype)
    assert_close(got, expected, naive=naive, axes="batch seq d_model")


# Columns, how many of each row's are tokens, and the lengths to go back to afterwards.
STEPS = [
    (5, [5, 2, 0], [3, 2, 0]),
    (3, [1, 3, 2], None),
    (1, None, None),
    (4, [4, 0, 3], [7, 6, 1]),
    (1, [0, 0, 1], None),
    (8, [3, 4, 8], None),
]
LENGTH = 10  # of each row, in the end


@pytest.mark.group("layer")
class TestLayer:
    @EACH_SIZE
    def test_whole_sequence(self, draw, sizes):
        layer, weights = draw_layer(draw, sizes)
        x = draw.normal(2, 7, D_MODEL)
        assert_layer(layer(x), x, weights, sizes)

    @EACH_SIZE
    @pytest.mark.parametrize("chunks", [(10,), (4, 4, 2), (6, 1, 1, 1, 1), (1, 1, 8)], ids=str)
    def test_chunks_with_a_cache_equal_one_pass(self, draw, sizes, chunks):
        layer, weights = draw_layer(draw, sizes)
        x = draw.normal(2, 10, D_MODEL)
        cache = LatentCache(2, 12, sizes.latent, sizes.rope)
        parts = [layer(part, cache) for part in x.split(chunks, dim=1)]
        assert_layer(torch.cat(parts, dim=1), x, weights, sizes)

    def test_the_cache_holds_latents_and_rotated_keys(self, draw):
        layer, weights = draw_layer(draw, SMALL)
        x = draw.normal(2, 6, D_MODEL)
        cache = LatentCache(2, 9, SMALL.latent, SMALL.rope)
        for part in x.split((4, 2), dim=1):
            layer(part, cache)
        expected, naive = (
            oracles.cached(x, weights, THETA, dtype) for dtype in (torch.float64, torch.float32)
        )
        for got, exact, rounded in zip(cache.latents(), expected, naive, strict=True):
            assert_close(got, exact, naive=rounded, axes="batch slot dim", what="latents()")

    def test_without_a_cache_padding_changes_nothing(self, draw):
        layer, weights = draw_layer(draw, SMALL)
        x = draw.normal(2, 7, D_MODEL)
        got = layer(x, num_tokens=torch.tensor([7, 4]))
        assert_layer(got[:1], x[:1], weights, SMALL)
        assert_layer(got[1:, :4], x[1:, :4], weights, SMALL)

    def test_a_cache_that_another_filled(self, draw):
        """All that a layer knows of the past is in the latents."""
        layer, weights = draw_layer(draw, SMALL)
        x = draw.normal(2, 9, D_MODEL)
        cache = LatentCache(2, 9, SMALL.latent, SMALL.rope)
        cache.append(*(part[:, :6] for part in oracles.cached(x, weights, THETA, torch.float32)))
        got = torch.cat([layer(part, cache) for part in x[:, 6:].split((1, 2), dim=1)], dim=1)
        assert_layer(got, x, weights, SMALL, first=6)

    def test_rows_of_unequal_length(self, draw):
        """Ragged prompts, roll-backs, steps: each row goes on as if it were alone."""
        layer, weights = draw_layer(draw, SMALL)
        x = draw.normal(3, LENGTH, D_MODEL)
        cache = LatentCache(3, LENGTH, SMALL.latent, SMALL.rope)
        got = fed_in_steps(lambda *new: layer(new[0], cache, new[1]), cache.truncate, x, STEPS)
        assert_layer(got, x, weights, SMALL)

    def test_bfloat16_at_positions_that_it_cannot_hold(self, draw):
        layer, weights = draw_layer(draw, SMALL)
        layer.to(torch.bfloat16)
        weights = {name: weight.bfloat16() for name, weight in weights.items()}
        x = draw.normal(2, 290, D_MODEL, dtype=torch.bfloat16)
        cache = LatentCache(2, 290, SMALL.latent, SMALL.rope, torch.bfloat16)
        parts = [layer(part, cache) for part in x.split((289, 1), dim=1)]
        assert_layer(torch.cat(parts, dim=1)[:, 257:], x, weights, SMALL, first=257)

    def test_it_can_be_trained_through(self, draw):
        layer, weights = draw_layer(draw, SMALL)
        layer.requires_grad_()
        x, cotangent = (draw.normal(2, 5, D_MODEL) for _ in range(2))
        _, (got,) = grad_of(layer, x, cotangent=cotangent)
        expected, naive = (
            oracles.layer_gradient(x, weights, SMALL, THETA, cotangent, dtype)
            for dtype in (torch.float64, torch.float32)
        )
        assert_gradient(got, expected, naive, "x")

    def test_in_a_model(self, draw):
        """With and without a cache, a model of such layers says the same."""
        kinds = (AttentionLayer(latent_dim=14, rope_dim=4),) * 2
        config = LlamaConfig(
            61, 2, 20, 3, 3, head_dim=6, d_ff=24, rope_theta=THETA, attention=kinds
        )
        oracle = oracles.model(config, draw.seed())
        model = LayeredLlama(config, {"latent": LatentAttention})
        model.load_state_dict(dict(oracle.state_dict()))

        tokens = draw.integers(0, config.vocab_size, 3, LENGTH)
        with torch.no_grad():
            naive, expected = oracle(tokens), oracle.double()(tokens)
        assert_close(model(tokens), expected, naive=naive, axes="batch seq token")
        session = model.session({"latent": LatentCache}, 3, LENGTH)
        got = fed_in_steps(session, session.truncate, tokens, STEPS)
        assert_close(got, expected, naive=naive, axes="batch seq token")


def decode_step(draw):
    """One new token a row on a long cache, through the absorbed form; and what it may cost."""
    rows, held, n = 2, 2400, Sizes(heads=4, nope=168, rope=24, value=136, latent=320)
    parts = draw_parts(draw, n, 1, held, rows=rows)
    seen = observe(absorbed_attention, *parts)
    assert_attention(seen.value, parts)
    pairs = rows * n.heads * held
    return n, rows, parts, pairs, seen.cost


@pytest.mark.cost("bytes")
def test_a_decode_step_goes_through_the_latents_twice(draw, budget):
    """Once as keys, once as values, for all heads together.

    The ideal: beside that, every other argument is read once, the absorbed queries and the weighted
    sums are written and read, the result is written, and the scores are gone over four times.
    """
    n, rows, parts, pairs, cost = decode_step(draw)
    latent, k_rope = parts[2:4]
    heads = rows * n.heads
    small = sum(x.numel() for x in (*parts[:2], *parts[4:])) + heads * (4 * n.latent + n.value)
    ideal = 2 * latent.numel() + k_rope.numel() + small + 4 * pairs
    rebuilt, up = pairs * (n.nope + n.value), parts[4].numel() + parts[5].numel()
    glued = latent.numel() + k_rope.numel()
    elements = {
        "k_up and v_up copied per row": ideal + 2 * rows * up,
        "latent and k_rope glued together": ideal + 2 * glued,
        "keys and values rebuilt": ideal + 2 * rebuilt,
        "latents copied per head": ideal + 4 * (n.heads - 1) * latent.numel(),
    }
    # A fused kernel may read the latents once, as keys and values in one, and write no scores.
    possible = 4 * (latent.numel() + k_rope.numel() + sum(x.numel() for x in parts[:2]))
    spent = max(cost.bytes, 4 * ideal) if cost.bytes >= possible else cost.bytes
    budget(spent, 4 * ideal, unit="bytes", beside={k: 4 * v for k, v in elements.items()})


@pytest.mark.cost("flops")
def test_a_decode_step_attends_to_the_latents(draw, budget):
    """The ideal: products only. A pair costs C + R and C multiplications, and the up-projections
    are gone through once for each query."""
    n, rows, _, pairs, cost = decode_step(draw)
    queries = rows * n.heads
    up = 2 * n.latent * (n.nope + n.value)
    ideal = queries * up + pairs * 2 * (2 * n.latent + n.rope)
    rebuilt = pairs * (up + 2 * (n.nope + n.rope + n.value))
    budget(cost.flops, ideal, unit="FLOPs", beside={"keys and values rebuilt": rebuilt})


D_COSTS, COSTS = 48, Sizes(heads=3, nope=24, rope=10, value=20, latent=192)


def flops_of_a_layer(rows, num_new, num_keys, n):
    """(the projections of all new tokens, then absorbed attention, then materialised)."""
    widths = n.heads * (n.nope + n.rope) + n.latent + n.rope + n.heads * n.value
    projections = 2 * rows * num_new * D_COSTS * widths
    up = 2 * rows * n.heads * n.latent * (n.nope + n.value)
    pairs = rows * n.heads * num_new * num_keys
    absorbed = up * num_new + pairs * (2 * (2 * n.latent + n.rope) + 6)  # 6: scale and softmax
    rebuilt = up * num_keys + pairs * (2 * (n.nope + n.rope + n.value) + 6)
    return projections, absorbed, rebuilt


@pytest.mark.cost("flops")
def test_a_step_of_the_layer_is_absorbed(draw, budget):
    layer, weights = draw_layer(draw, COSTS, D_COSTS)
    x = draw.normal(2, 301, D_COSTS)
    cache = LatentCache(2, 310, COSTS.latent, COSTS.rope)
    layer(x[:, :300], cache)
    seen = observe(layer, x[:, 300:], cache)
    assert_layer(seen.value, x, weights, COSTS, first=300)
    projections, absorbed, rebuilt = flops_of_a_layer(2, 1, 301, COSTS)
    beside = {"keys and values rebuilt": projections + rebuilt}
    budget(seen.cost.flops, projections + absorbed, unit="FLOPs", beside=beside)


@pytest.mark.cost("flops")
def test_a_whole_sequence_of_the_layer_is_materialised(draw, budget):
    """As many queries as keys: the up-projections cost the same, and the pairs decide."""
    layer, weights = draw_layer(draw, COSTS, D_COSTS)
    x = draw.normal(2, 200, D_COSTS)
    seen = observe(layer, x)
    assert_layer(seen.value, x, weights, COSTS)
    projections, absorbed, rebuilt = flops_of_a_layer(2, 200, 200, COSTS)
    ideal = projections + rebuilt
    got = max(seen.cost.flops, ideal)  # pairs that the mask hides may be left out
    budget(got, ideal, unit="FLOPs", beside={"absorbed": projections + absorbed})


@pytest.mark.cost("bytes")
def test_what_is_held_stays_where_it_is(draw, budget):
    """Steps, reads and roll-backs of a long ragged cache move the new tokens and nothing else.

    The ideal: each new column is gathered once and stored once, each a read and a write. Storing it
    directly is half of that and earns no more.
    """
    pair = pair_of(draw, capacity=150, latent_dim=192, rope_dim=40)
    pair.append(100, [100, 60, 97])
    moved = columns = tokens = 0
    for num_columns, num_tokens in [(1, None), (4, [4, 1, 3]), (1, [1, 1, 0])] * 8:
        new, counts = pair.new(num_columns), _tensor(num_tokens)
        pair.oracle.append(*new, counts)
        append = observe(pair.cache.append, *new, counts)
        moved += append.cost.bytes + observe(pair.cache.latents).cost.bytes
        columns += 3 * num_columns
        tokens += 3 * num_columns if counts is None else int(counts.sum())
    pair.check()
    kept = torch.tensor([90, 30, 2])
    moved += observe(pair.cache.truncate, kept).cost.bytes
    pair.oracle.truncate(kept)
    pair.check()
    size = 4 * (192 + 40)
    assert moved >= 2 * size * tokens, "the new tokens were not stored under the counter"
    ideal = 4 * size * columns
    budget(max(moved, ideal), ideal, unit="bytes")


def _tensor(numbers):
    return None if numbers is None else torch.tensor(numbers)
