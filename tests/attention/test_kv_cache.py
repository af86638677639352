"""attention.kv_cache: every row gets back what was appended to it, in order, and nothing else."""

from __future__ import annotations

import pytest
import torch

from submission.attention.kv_cache import KVCache
from tests.attention.oracles import CacheOracle
from tests.grading.boundary import call_then_spoil, observe, read_then_spoil, watch
from tests.grading.closeness import assert_equal
from tests.grading.refusal import assert_value_error
from tests.grading.shapes import around

CAPACITY, HEADS, HEAD_DIM = 11, 3, 5
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


class Pair:
    """A cache under test and the oracle beside it: both get every call, `check` compares them."""

    def __init__(self, draw, batch_size=3, capacity=CAPACITY, dtype=torch.float32):
        self.draw, self.batch_size, self.dtype = draw, batch_size, dtype
        self.cache = KVCache(batch_size, capacity, HEADS, HEAD_DIM, dtype)
        self.oracle = CacheOracle(batch_size, HEADS, HEAD_DIM, dtype)

    def new(self, num_columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        shape = (self.batch_size, HEADS, num_columns, HEAD_DIM)
        k, v = (self.draw.normal(*shape, dtype=self.dtype) for _ in "kv")
        return k, v

    def append(self, num_columns: int, num_tokens: list[int] | None = None) -> None:
        k, v = self.new(num_columns)
        counts = None if num_tokens is None else torch.tensor(num_tokens)
        self.cache.append(k, v, counts)
        self.oracle.append(k, v, counts)

    def truncate(self, lengths: list[int]) -> None:
        self.cache.truncate(torch.tensor(lengths))
        self.oracle.truncate(torch.tensor(lengths))

    def check(self) -> None:
        assert_equal(self.cache.lengths, self.oracle.lengths, axes="row", what="lengths")
        keys, values = self.cache.keys_values()
        assert_holds(keys, self.oracle.keys, "keys")
        assert_holds(values, self.oracle.values, "values")


def assert_holds(got, rows, what) -> None:
    """Row b of `got` begins with rows[b]; what follows may be anything finite."""
    lengths = [row.shape[1] for row in rows]
    heads, _, head_dim = rows[0].shape
    shape = [len(rows), heads, max(lengths), head_dim]
    assert list(got.shape) == shape, f"{what}: expected shape {shape}, got {list(got.shape)}"
    assert got.dtype == rows[0].dtype, f"{what}: expected {rows[0].dtype}, got {got.dtype}"
    for row, head, slot, _ in (~got.isfinite()).nonzero().tolist():
        pytest.fail(
            f"{what}: row {row}, head {head}, slot {slot} holds a number that is not finite"
        )
    expected = got.clone()  # the padding, which is unspecified, is compared with itself
    for row, tokens in enumerate(rows):
        expected[row, :, : lengths[row]] = tokens
    assert_equal(got, expected, axes="row head slot dim", what=what)


def assert_positions(cache, expected) -> None:
    got = cache.positions(len(expected[0]))
    assert_equal(got, torch.tensor(expected), axes="row token", what="positions")


@pytest.mark.group("append")
class TestAppend:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_prompt_and_steps_are_read_back(self, draw, dtype):
        pair = Pair(draw, dtype=dtype)
        for num_columns in (6, 1, 1, 3):
            pair.append(num_columns)
            pair.check()

    def test_unequal_rows_stay_apart(self, draw):
        for num_tokens in ([4, 1, 3], [1, 4, 2], [2, 3, 4]):
            pair = Pair(draw)
            pair.append(4, num_tokens)
            pair.check()
            pair.append(1)  # a decode step: each row's token goes behind its own
            pair.check()
            pair.append(4, num_tokens[::-1])
            pair.check()

    def test_layers_do_not_share(self, draw):
        first, second = Pair(draw), Pair(draw)
        first.append(4)
        second.append(2)
        first.check()
        second.check()


@pytest.mark.group("ragged")
class TestRagged:
    def test_some_rows_get_nothing(self, draw):
        pair = Pair(draw)
        for num_tokens in ([2, 0, 3], [0, 0, 1], [0, 0, 0], [1, 3, 0]):
            pair.append(3, num_tokens)
            pair.check()

    def test_no_columns_at_all(self, draw):
        pair = Pair(draw)
        pair.append(0)
        pair.append(2)
        pair.append(0)
        pair.check()

    def test_an_empty_cache_is_read(self, draw):
        Pair(draw).check()

    def test_the_callers_keys_stay_the_callers(self, draw):
        pair = Pair(draw)
        k, v = pair.new(CAPACITY)
        call_then_spoil(pair.cache.append, k.clone(), v.clone())
        pair.oracle.append(k, v)
        pair.check()

    def test_padding_is_never_stored(self, draw):
        pair = Pair(draw)
        pair.append(2, [2, 1, 0])
        k, v = pair.new(3)
        num_tokens = torch.tensor([1, 3, 0])
        pair.oracle.append(k, v, num_tokens)
        for row, tokens in enumerate(num_tokens):
            k[row, :, tokens:] = torch.nan
            v[row, :, tokens:] = torch.nan
        pair.cache.append(k, v, num_tokens)
        pair.check()
        pair.append(1, [0, 0, 1])  # row 2 grows into what its padding would have spoilt
        pair.check()

    def test_unwritten_slots_are_zero(self, draw):
        pair = Pair(draw)
        pair.append(7, [7, 2, 0])
        for held in pair.cache.keys_values():
            assert_equal(held[1, :, 2:], torch.zeros(HEADS, 5, HEAD_DIM), axes="head slot dim")
            assert_equal(held[2], torch.zeros(HEADS, 7, HEAD_DIM), axes="head slot dim")

    def test_arguments_are_not_changed(self, draw):
        pair = Pair(draw)
        k, v = pair.new(4)
        _, changed = watch(pair.cache.append, k, v, torch.tensor([3, 1, 2]))
        assert changed == [], "append changed k (0), v (1) or num_tokens (2) in place"


@pytest.mark.group("positions")
class TestPositions:
    def test_steps_after_a_prompt_count_on(self, draw):
        pair = Pair(draw, batch_size=2)
        pair.append(6)
        for position in (6, 7, 8):
            assert_positions(pair.cache, [[position], [position]])
            pair.append(1)

    def test_each_row_counts_its_own_tokens(self, draw):
        pair = Pair(draw)
        pair.append(7, [2, 5, 0])  # 7 columns of input, most of them padding
        assert_positions(pair.cache, [[2], [5], [0]])
        pair.append(2, [0, 1, 2])
        assert_positions(pair.cache, [[2, 3, 4], [6, 7, 8], [2, 3, 4]])

    def test_roll_back_takes_positions_back(self, draw):
        pair = Pair(draw, batch_size=2)
        pair.append(8)
        pair.truncate([5, 7])
        assert_positions(pair.cache, [[5, 6], [7, 8]])

    def test_empty_cache_starts_at_zero(self, draw):
        cache = Pair(draw, batch_size=2).cache
        assert_equal(cache.lengths, torch.zeros(2), axes="row", what="lengths")
        assert_positions(cache, [[0, 1, 2], [0, 1, 2]])

    def test_they_are_integers(self, draw):
        cache = Pair(draw).cache
        assert cache.lengths.dtype == cache.positions(2).dtype == torch.int64

    def test_lengths_are_a_copy(self, draw):
        pair = Pair(draw)
        pair.append(3, [3, 1, 2])
        lengths = pair.cache.lengths
        pair.append(1)
        assert_equal(lengths, torch.tensor([3, 1, 2]), axes="row", what="lengths read before")
        read_then_spoil(pair.cache, "lengths")
        pair.check()


@pytest.mark.group("capacity")
class TestCapacity:
    @pytest.mark.parametrize("total", around(CAPACITY))
    def test_exactly_full_fits_and_one_more_does_not(self, draw, total):
        pair = Pair(draw)
        pair.append(5)
        if total > CAPACITY:
            assert_refused(pair, *pair.new(total - 5))
        else:
            pair.append(total - 5)
            pair.check()

    def test_a_step_beyond_the_end(self, draw):
        pair = Pair(draw)
        pair.append(CAPACITY)
        assert_refused(pair, *pair.new(1))

    def test_one_row_without_room(self, draw):
        for full_row in range(3):
            pair = Pair(draw)
            held = [CAPACITY - 1 if row == full_row else 3 + row for row in range(3)]
            pair.append(CAPACITY, held)
            assert_refused(pair, *pair.new(2))
            pair.append(2, [1 if row == full_row else 2 for row in range(3)])
            pair.check()

    def test_one_row_without_room_for_its_share(self, draw):
        pair = Pair(draw)
        pair.append(CAPACITY, [9, 10, 4])
        assert_refused(pair, *pair.new(4), torch.tensor([2, 2, 4]))

    @pytest.mark.parametrize(
        "held, new", [([4, 10, 8], [4, 1, 4]), ([10, 3, 9], [0, 4, 3]), ([11, 2, 8], [0, 0, 4])]
    )
    def test_a_row_without_room_that_is_not_the_longest(self, draw, held, new):
        pair = Pair(draw)
        pair.append(CAPACITY, held)
        assert_refused(pair, *pair.new(4), torch.tensor(new))

    def test_padding_needs_no_room(self, draw):
        pair = Pair(draw)
        pair.append(9)
        pair.append(6, [2, 0, 1])  # 9 + 6 columns are too many, 9 + 2 tokens are not
        pair.check()
        pair.append(3, [0, 2, 0])
        pair.check()

    def test_num_tokens_outside_the_columns(self, draw):
        pair = Pair(draw)
        pair.append(2)
        for num_tokens in ([3, 0, -1], [4, 1, 2]):
            assert_refused(pair, *pair.new(3), torch.tensor(num_tokens))

    def test_capacity_is_known(self, draw):
        assert Pair(draw, capacity=7).cache.capacity == 7


def assert_refused(pair: Pair, k, v, num_tokens=None) -> None:
    """append(k, v, num_tokens) raises ValueError, and the cache is as it was before."""
    counts = "None" if num_tokens is None else num_tokens.tolist()
    what = (
        f"append of {k.shape[2]} columns, num_tokens {counts}, to rows that hold "
        f"{pair.oracle.lengths.tolist()} of {CAPACITY}"
    )
    assert_value_error(what, pair.cache.append, k, v, num_tokens)
    pair.check()


@pytest.mark.group("rollback")
class TestRollback:
    def test_what_follows_overwrites(self, draw):
        for lengths in ([5, 2, 6], [0, 3, 1], [7, 7, 7], [0, 0, 0]):
            pair = Pair(draw)
            pair.append(7)
            pair.truncate(lengths)
            pair.check()
            pair.append(2)
            pair.check()
            pair.append(2, [1, 0, 2])
            pair.check()

    def test_room_comes_back(self, draw):
        pair = Pair(draw)
        pair.append(CAPACITY)
        pair.truncate([CAPACITY - 2] * 3)
        assert_refused(pair, *pair.new(3))
        pair.append(2)
        pair.check()

    def test_lengths_that_are_not_held(self, draw):
        pair = Pair(draw)
        pair.append(5, [3, 5, 2])
        for lengths in ([4, 5, 1], [1, 6, 2], [2, 1, -1], [3, 3, 3]):
            what = f"truncate({lengths}) of rows that hold [3, 5, 2]"
            assert_value_error(what, pair.cache.truncate, torch.tensor(lengths))
            pair.check()

    def test_the_callers_lengths_stay_the_callers(self, draw):
        pair = Pair(draw)
        pair.append(4)
        call_then_spoil(pair.cache.truncate, torch.tensor([1, 4, 2]))
        pair.cache.append(*pair.new(1))
        expected = torch.tensor([2, 5, 3])
        assert_equal(pair.cache.lengths, expected, axes="row", what="lengths")

    def test_any_mixture(self, draw):
        pair = Pair(draw, batch_size=4, capacity=9)
        for _ in range(25):
            held = pair.oracle.lengths
            kept = [int(draw.integers(n // 2, n + 1, 1)) for n in held.tolist()]
            pair.truncate(kept)
            room = (9 - torch.tensor(kept)).clamp(max=4)
            pair.append(4, [int(draw.integers(0, n + 1, 1)) for n in room.tolist()])
            pair.check()


@pytest.mark.cost("bytes")
def test_a_step_moves_its_own_token_only(draw, budget):
    """Append to a long ragged cache, read it, and take the tokens back: the worst of three steps.

    The ideal: the new keys and values are gathered once and stored once, each a read and a write.
    Storing them directly is half of that and earns no more.
    """
    steps = [(1, None), (1, [1, 1, 0]), (4, [4, 1, 3])]  # columns, num_tokens
    worst = max((_bytes_of_a_step(draw, *step) for step in steps), key=lambda step: step[0])
    ratio, once, parts = worst
    budget(max(ratio, 1) * 2 * once, 2 * once, unit="bytes", beside=parts)


def _bytes_of_a_step(draw, columns, num_tokens):
    """(bytes moved ÷ ideal, bytes of one read and write of the columns, bytes by method)."""
    heads, held, head_dim = 8, torch.tensor([100, 60, 97]), 128
    cache = KVCache(3, 150, heads, head_dim)
    oracle = CacheOracle(3, heads, head_dim, torch.float32)
    prompt, new = ([draw.normal(3, heads, n, head_dim) for _ in range(2)] for n in (100, columns))
    counts = None if num_tokens is None else torch.tensor(num_tokens)
    for target in (cache, oracle):
        target.append(*prompt, held)
    append = observe(cache.append, *new, counts)
    oracle.append(*new, counts)
    read = observe(cache.keys_values)
    keys, values = read.value
    assert_holds(keys, oracle.keys, "keys")
    assert_holds(values, oracle.values, "values")
    truncate = observe(cache.truncate, held)
    assert_equal(cache.lengths, held, axes="row", what="lengths")
    moved = {"append": append, "keys_values": read, "truncate": truncate}
    parts = {name: seen.cost.bytes for name, seen in moved.items()}
    once = 2 * sum(x.numel() * x.element_size() for x in new)  # read and written
    least = once * (1 if counts is None else int(counts.sum()) / (3 * columns))
    assert append.cost.bytes >= least, "the new keys and values were not stored under the counter"
    return sum(parts.values()) / (2 * once), once, parts


@pytest.mark.cost("bytes")
def test_memory_is_allocated_once(draw, budget):
    """Fill a cache step by step: a storage that grows on demand copies all it holds each time."""
    batch_size, heads, capacity, head_dim = 2, 8, 70, 128
    cache = KVCache(batch_size, capacity, heads, head_dim)
    oracle = CacheOracle(batch_size, heads, head_dim, torch.float32)
    moved = 0
    for _ in range(capacity):
        step = [draw.normal(batch_size, heads, 1, head_dim) for _ in range(2)]
        moved += observe(cache.append, *step).cost.bytes
        oracle.append(*step)
    for got, rows, what in zip(
        cache.keys_values(), (oracle.keys, oracle.values), "kv", strict=True
    ):
        assert_holds(got, rows, what)
    once = capacity * 2 * sum(x.numel() * x.element_size() for x in step)  # read and written
    assert moved >= once, "the new keys and values were not stored under the counter"
    budget(max(moved, 2 * once), 2 * once, unit="bytes")
