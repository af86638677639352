"""attention.cross_layer: which layer owns, and what a layer reads that has no keys of its own."""

from __future__ import annotations

import pytest
import torch

from submission.attention.cross_layer import SharedAttention, kv_owners
from submission.provided.models import DelegatingCache, GrowingCache
from tests.attention import oracles_window as oracles
from tests.attention.oracles import CacheOracle, padded
from tests.grading.boundary import watch
from tests.grading.closeness import assert_close, assert_equal
from tests.grading.refusal import assert_value_error
from tests.grading.shapes import HEAD_RATIOS

D_MODEL, HEAD_DIM, THETA = 28, 6, 700.0


@pytest.mark.group("owners")
class TestOwners:
    def test_neighbours_of_one_kind(self):
        for window in (None, 1024):
            assert_owners([window] * 6, 2, [0, 0, 2, 2, 4, 4])
            assert_owners([window] * 6, 3, [0, 0, 0, 3, 3, 3])

    def test_the_last_group_may_be_smaller(self):
        assert_owners([None] * 7, 2, [0, 0, 2, 2, 4, 4, 6])
        assert_owners([8] * 8, 3, [0, 0, 0, 3, 3, 3, 6, 6])

    def test_every_layer_owns(self):
        assert_owners([8, 8, None, 4, None], 1, [0, 1, 2, 3, 4])

    def test_one_owner_for_all(self):
        assert_owners([None] * 4, 9, [0, 0, 0, 0])
        assert_owners([8, None, 8, None, None], 5, [0, 1, 0, 1, 1])

    def test_one_global_layer_in_six(self):
        """Local layers share over the global one between them, global ones over whole blocks."""
        windows = ([1024] * 5 + [None]) * 3
        first_two = [0, 0, 2, 2, 4, 5, 4, 7, 7, 9, 9, 5]
        assert_owners(windows, 2, [*first_two, 12, 12, 14, 14, 16, 17])
        first_two = [0, 0, 0, 3, 3, 5, 3, 7, 7, 7, 10, 5]
        assert_owners(windows, 3, [*first_two, 10, 10, 14, 14, 14, 5])

    def test_windows_of_unequal_size_are_kinds(self):
        assert_owners([4, 8, 4, None, 8, 8, 4], 2, [0, 1, 0, 3, 1, 5, 6])

    def test_any_mixture(self, draw):
        for share in (1, 2, 3, 4):
            windows = [[None, 4, 1024][kind] for kind in draw.integers(0, 3, 23).tolist()]
            expected = []
            for index, window in enumerate(windows):
                kin = [i for i in range(index + 1) if windows[i] == window]
                groups = [kin[start : start + share] for start in range(0, len(kin), share)]
                expected.append(groups[-1][0])
            assert_owners(windows, share, expected)

    def test_no_layers(self):
        assert_owners([], 2, [])

    def test_share_below_one(self):
        for share in (0, -2):
            what = f"kv_owners([None, None], {share})"
            assert_value_error(what, kv_owners, [None, None], share)

    def test_arguments_are_not_changed(self):
        _, changed = watch(kv_owners, [8, 8, None], 2)
        assert changed == [], "windows (0) was changed"


def assert_owners(windows, share, expected):
    got = kv_owners(windows, share)
    assert_equal(list(got), expected, what=f"owners for windows {windows} and share {share}")


class Owner:
    """The owner's side: its cache, to which each chunk is given before the sharing layer runs."""

    def __init__(self, draw, rows, kv_heads, show=None, dtype=torch.float32):
        """`show` makes the methods of the cache that read, from the tokens that it was given."""
        self.draw, self.shape, self.dtype = draw, (rows, kv_heads), dtype
        self.given = CacheOracle(rows, kv_heads, HEAD_DIM, dtype)
        self.appended = []  # by the layer, which must not
        reading = show(self.given) if show else {"keys_values": self._keys_values}
        self.cache = DelegatingCache(
            lambda: self.given.lengths,
            lambda *arguments: self.appended.append(arguments),
            **reading,
        )

    def append(self, num_columns, num_tokens=None, k=None):
        shape = (*self.shape, num_columns, HEAD_DIM)
        drawn, v = (self.draw.normal(*shape, dtype=self.dtype) for _ in "kv")
        self.given.append(drawn if k is None else k, v, num_tokens)

    def _keys_values(self):
        return tuple(padded(rows).to(self.dtype) for rows in (self.given.keys, self.given.values))


def draw_layer(draw, heads, kv_heads, window=None):
    """A layer, and the weights that it was given; without gradients, as decoding runs."""
    layer = SharedAttention(D_MODEL, heads, kv_heads, HEAD_DIM, window, THETA)
    width = heads * HEAD_DIM
    weights = {
        "q_proj.weight": draw.normal(width, D_MODEL, scale=D_MODEL**-0.5),
        "o_proj.weight": draw.normal(D_MODEL, width, scale=width**-0.5),
    }
    layer.load_state_dict(weights)
    layer.requires_grad_(False)
    return layer, weights


def assert_layer(got, x, weights, keys, values, window=None, first=0):
    """`got` is the layer's output for one whole sequence x [T, D], from position `first` on."""
    assert got.dtype == x.dtype, f"expected the dtype of x, {x.dtype}, got {got.dtype}"
    tensors = (x[None], weights, keys[None], values[None])
    expected, naive = (
        oracles.shared_layer(*tensors, HEAD_DIM, THETA, window, dtype)[0]
        for dtype in (torch.float64, x.dtype)
    )
    got, expected, naive = (y[first:] for y in (got, expected, naive))
    assert_close(got, expected, naive=naive, axes="seq d_model")


def feed(draw, layer, owner, x, counts_of_calls):
    """The layer's outputs [row][token], called as a model calls it, its owner first."""
    rows = [[] for _ in x]
    for counts in counts_of_calls:
        part = draw.normal(len(x), max(counts), D_MODEL, dtype=x.dtype)  # padding: anything
        for row, count in enumerate(counts):
            start = len(rows[row])
            part[row, :count] = x[row, start : start + count]
        num_tokens = torch.tensor(counts)
        owner.append(part.shape[1], num_tokens)
        out = layer(part, owner.cache, num_tokens)
        assert list(out.shape) == list(part.shape), f"expected {list(part.shape)}: {out.shape}"
        assert out.isfinite().all(), "the output holds numbers that are not finite"
        for row, count in enumerate(counts):
            rows[row] += out[row, :count]
    assert not owner.appended, "the layer appended to its owner's cache"
    return [torch.stack(row) for row in rows]


def assert_rows(rows, x, weights, owner, window=None, first=0):
    given = zip(rows, x, owner.given.keys, owner.given.values, strict=True)
    for got, inputs, keys, values in given:
        inputs = inputs[: len(got)]
        assert_layer(got, inputs, weights, keys, values, window, first)


def assert_far_below_zero(draw, size, window=None):
    """One new token whose visible scores are equal and below −size, and the hidden ones are not: a
    large negative number in place of −∞ is not low enough."""
    layer, weights = draw_layer(draw, 6, 2, window)
    slowest, factor = HEAD_DIM // 2 - 1, 2 * size**0.5
    weights["q_proj.weight"] = torch.zeros(6 * HEAD_DIM, D_MODEL)
    weights["q_proj.weight"][slowest::HEAD_DIM, 0] = 1.0  # hardly turned by its position
    layer.load_state_dict(weights)
    ends, x = (9, 6), draw.normal(2, 9, D_MODEL)
    x[:, :, 0] = factor
    k = torch.zeros(2, 2, 9, HEAD_DIM)
    for row, end in enumerate(ends):
        k[row, :, end - (window or end) : end, slowest] = -factor
    owner = Owner(draw, 2, 2)
    owner.append(9, torch.tensor(ends), k)
    out = layer(torch.stack([x[row, end - 1 : end] for row, end in enumerate(ends)]), owner.cache)
    for row, end in enumerate(ends):
        whole = torch.cat([torch.zeros(end - 1, D_MODEL), out[row]])
        tensors = owner.given.keys[row], owner.given.values[row]
        assert_layer(whole, x[row, :end], weights, *tensors, window, first=end - 1)


RAGGED = [[5, 2, 3], [1, 1, 1], [0, 4, 1], [1, 0, 1], [3, 2, 4], [1, 1, 1]]


@pytest.mark.group("layer")
class TestLayer:
    def test_it_has_no_keys_and_values_of_its_own(self, draw):
        layer, _ = draw_layer(draw, 6, 2)
        assert_equal(sorted(layer.state_dict()), ["o_proj.weight", "q_proj.weight"])

    @pytest.mark.parametrize("heads, kv_heads", HEAD_RATIOS)
    def test_whole_sequence(self, draw, heads, kv_heads):
        layer, weights = draw_layer(draw, heads, kv_heads)
        owner, x = Owner(draw, 2, kv_heads), draw.normal(2, 7, D_MODEL)
        owner.append(7)
        assert_rows(layer(x, owner.cache), x, weights, owner)

    @pytest.mark.parametrize("chunks", [(10,), (4, 4, 2), (6, 1, 1, 1, 1), (1, 1, 8)])
    def test_chunks_equal_one_pass(self, draw, chunks):
        layer, weights = draw_layer(draw, 6, 2)
        owner, x = Owner(draw, 2, 2), draw.normal(2, 10, D_MODEL)
        parts = []
        for part in x.split(chunks, dim=1):
            owner.append(part.shape[1])
            parts.append(layer(part, owner.cache))
        assert not owner.appended, "the layer appended to its owner's cache"
        assert_rows(torch.cat(parts, dim=1), x, weights, owner)

    def test_rows_of_unequal_length(self, draw):
        for heads, kv_heads in ((6, 2), (5, 1)):
            layer, weights = draw_layer(draw, heads, kv_heads)
            owner, x = Owner(draw, 3, kv_heads), draw.normal(3, 12, D_MODEL)
            assert_rows(feed(draw, layer, owner, x, RAGGED), x, weights, owner)

    def test_roll_back_of_the_owner(self, draw):
        layer, weights = draw_layer(draw, 6, 2)
        owner, x = Owner(draw, 2, 2), draw.normal(2, 9, D_MODEL)
        owner.append(8)
        owner.given.truncate(torch.tensor([4, 7]))
        owner.append(2)
        ends = (6, 9)
        part = torch.stack([x[row, end - 2 : end] for row, end in enumerate(ends)])
        out = layer(part, owner.cache)
        for row, end in enumerate(ends):
            whole = torch.cat([torch.zeros(end - 2, D_MODEL), out[row]])
            tensors = owner.given.keys[row], owner.given.values[row]
            assert_layer(whole, x[row, :end], weights, *tensors, first=end - 2)

    def test_several_layers_read_one_cache(self, draw):
        owner, x = Owner(draw, 2, 2), draw.normal(2, 6, D_MODEL)
        layers = [draw_layer(draw, 6, 2), draw_layer(draw, 4, 2)]
        owner.append(6)
        for layer, weights in layers:
            assert_rows(layer(x, owner.cache), x, weights, owner)

    def test_a_cache_without_key_positions(self, draw):
        layer, weights = draw_layer(draw, 6, 2)
        owner, x = Owner(draw, 2, 2), draw.normal(2, 9, D_MODEL)
        cache = GrowingCache(batch_size=2)
        owner.append(9)
        k, v = torch.stack(owner.given.keys), torch.stack(owner.given.values)
        parts = []
        for start, end in ((0, 5), (5, 6), (6, 9)):
            cache.append(k[:, :, start:end], v[:, :, start:end])
            parts.append(layer(x[:, start:end], cache))
            assert_equal(cache.lengths, torch.tensor([end, end]), axes="row", what="lengths")
        assert_rows(torch.cat(parts, dim=1), x, weights, owner)

    @pytest.mark.parametrize("size", [2**20, 2**40])
    def test_scores_of_any_size(self, draw, size):
        assert_far_below_zero(draw, size)

    def test_arguments_are_not_changed(self, draw):
        layer, _ = draw_layer(draw, 6, 2)
        owner, x = Owner(draw, 2, 2), draw.normal(2, 3, D_MODEL)
        num_tokens = torch.tensor([3, 2])
        owner.append(3, num_tokens)
        _, changed = watch(layer, x, owner.cache, num_tokens)
        assert changed == [], "x (0) or num_tokens (2) was changed"

    def test_bfloat16_at_positions_that_it_cannot_hold(self, draw):
        layer, weights = draw_layer(draw, 9, 3)
        layer.to(torch.bfloat16)
        weights = {name: weight.bfloat16() for name, weight in weights.items()}
        owner = Owner(draw, 2, 3, dtype=torch.bfloat16)
        x = draw.normal(2, 290, D_MODEL, dtype=torch.bfloat16)
        rows = feed(draw, layer, owner, x, [[280, 279], [1, 1], [8, 9], [1, 1]])
        assert_rows(rows, x, weights, owner, first=257)


@pytest.mark.group("window")
class TestWindow:
    def test_a_window_of_four(self, draw):
        """Four keys, the query's own among them, of a cache that keeps more."""
        for heads, kv_heads in ((6, 2), (5, 1), (4, 4)):
            layer, weights = draw_layer(draw, heads, kv_heads, window=4)
            owner, x = Owner(draw, 2, kv_heads), draw.normal(2, 9, D_MODEL)
            owner.append(9)
            assert_rows(layer(x, owner.cache), x, weights, owner, window=4)

    @pytest.mark.parametrize("size", [2**20, 2**40])
    def test_scores_of_any_size(self, draw, size):
        assert_far_below_zero(draw, size, window=4)

    @pytest.mark.parametrize("window", [1, 4, None])
    def test_slots_in_any_order(self, draw, window):
        """A cache that shows its tokens shuffled, and huge rubbish in the slots between them."""
        layer, weights = draw_layer(draw, 6, 2, window)
        owner, x = Owner(draw, 3, 2, oracles.shuffled), draw.normal(3, 12, D_MODEL)
        rows = feed(draw, layer, owner, x, RAGGED)
        assert_rows(rows, x, weights, owner, window)

    @pytest.mark.parametrize("chunks", [(4, 1, 1, 5, 1, 1), (1, 11, 1), (13,)])
    def test_a_ring_that_has_forgotten(self, draw, chunks):
        """The cache shows what the new tokens may see, and nothing older."""
        layer, weights = draw_layer(draw, 6, 2, window=3)
        seen = []  # tokens shown for this call

        def show(given):
            def keys_values():
                return tuple(torch.stack(x)[:, :, seen] for x in (given.keys, given.values))

            return {"keys_values": keys_values, "key_positions": lambda: torch.tensor([seen, seen])}

        owner, x = Owner(draw, 2, 2, show), draw.normal(2, 13, D_MODEL)
        parts, start = [], 0
        for part in x.split(chunks, dim=1):
            owner.append(part.shape[1])
            end = start + part.shape[1]
            seen[:] = reversed(range(max(start - 2, 0), end))
            parts.append(layer(part, owner.cache))
            start = end
        assert_rows(torch.cat(parts, dim=1), x, weights, owner, window=3)
