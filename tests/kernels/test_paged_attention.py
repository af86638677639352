"""kernels.paged_attention: the textbook's outputs, and each byte of the cache once."""

from __future__ import annotations

import pytest
import torch

from submission.kernels.paged_attention import paged_attention
from tests.grading.closeness import assert_equal
from tests.grading.kernels.boundary import Seen, in_lab
from tests.grading.shapes import around
from tests.kernels.kernel_costs import (
    H100,
    assert_asks_nothing,
    assert_fits,
    assert_kernels_work,
    by_one_program,
    charge_bytes,
    charge_code,
    charge_time,
)
from tests.kernels.kernel_inputs import DTYPES, FAR, GROUPS, bits
from tests.kernels.oracles_paged import assert_attention, attention
from tests.kernels.paged_inputs import Paged, draw_paged, least_bytes
from tests.kernels.rounding import root_mean_square, tf32_is_told

ARGUMENTS = ("q", "k_cache", "v_cache", "block_tables", "lengths")
SHAPES = pytest.mark.parametrize("heads, kv_heads, head_dim, block_size", GROUPS)


def check(draw, paged: Paged, seed: int | None = None, integer_bits: int = 32) -> Seen:
    """Programs run in an order of chance. Outputs are right, and arguments as they were."""
    before = [bits(argument).clone() for argument in paged.arguments[:5]]
    lab = {"seed": draw.seed() if seed is None else seed, "integer_bits": integer_bits}
    seen = in_lab(paged_attention, *paged.arguments, **lab)
    assert seen.launches, "no kernel was launched"
    with tf32_is_told(seen):
        assert_attention(seen.value, paged)
    for name, old, new in zip(ARGUMENTS, before, seen.arguments, strict=False):
        assert_equal(bits(new), old, what=f"bits of {name}, afterwards")
    return seen


@pytest.mark.group("decode")
class TestDecode:
    """One program for each request and KV head, but where it is said."""

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_dtypes(self, draw, dtype):
        options = {"head_dim": 80, "dtype": dtype, "num_splits": 1}
        check(draw, draw_paged(draw, 6, 2, [17, 130, 1], **options))

    @SHAPES
    def test_heads_and_blocks(self, draw, heads, kv_heads, head_dim, block_size):
        lengths = [1, *around(max(2, block_size)), 130, 65]
        options = {"head_dim": head_dim, "block_size": block_size, "num_splits": 1}
        check(draw, draw_paged(draw, heads, kv_heads, lengths, **options))

    def test_lengths_around_the_end_of_a_tile(self, draw):
        lengths = [length for tile in (16, 32, 64, 128) for length in around(tile)]
        check(draw, draw_paged(draw, 6, 2, lengths, num_splits=1))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_scores_far_from_zero(self, draw, dtype):
        options = {"block_size": 5, "dtype": dtype, "levels": FAR, "num_splits": 1}
        for lengths in ([130, 1, 140], [40, 150, 1]):
            check(draw, draw_paged(draw, 6, 2, lengths, head_dim=64, **options))

    def test_many_tiles(self, draw):
        """The largest score comes anywhere: what was summed before is worth less from then on."""
        levels = [(0, 0), (-8, 8), (-300, 300)]
        check(draw, draw_paged(draw, 6, 2, [700, 900, 400], levels=levels, num_splits=1))

    @pytest.mark.parametrize("scale", [0.05, 0.7])
    def test_other_scales(self, draw, scale):
        check(draw, draw_paged(draw, 6, 2, [70, 9], scale=scale, num_splits=1))

    def test_shared_blocks(self, draw):
        """Three of the requests begin with the same 4 blocks."""
        paged = draw_paged(draw, 6, 2, [90, 30, 64, 71], shared=4, num_splits=1)
        tables = paged.arguments[3]
        assert_equal(tables[0, :4], tables[3, :4])
        check(draw, paged)

    @pytest.mark.parametrize("lengths", [[5, 0, 40], [0, 0]], ids=str)
    def test_rows_without_tokens(self, draw, lengths):
        check(draw, draw_paged(draw, 6, 2, lengths, max_length=50, num_splits=1))

    def test_sums_are_those_of_float32(self, draw):
        """As close as a result that is rounded once. (Sums that are rounded after each tile are two
        or three times as far off, which a usual tolerance of bfloat16 forgives.)"""
        paged = draw_paged(draw, 4, 1, [4000], dtype=torch.bfloat16, mean=1, num_splits=1)
        got = check(draw, paged).value.double()
        expected = attention(paged)
        off, rounded = (root_mean_square(x.double() - expected) for x in (got, expected.bfloat16()))
        assert off < 1.5 * rounded, (
            f"the mean distance from the exact results is {off:.2g}; rounding them once costs "
            f"{rounded:.2g}"
        )

    @pytest.mark.parametrize("length", [1, 17, 300])
    def test_one_request_in_as_many_splits_as_it_likes(self, draw, length):
        check(draw, draw_paged(draw, 9, 3, [length]))

    def test_lengths_far_below_the_largest(self, draw):
        """With as many splits as a batch of longer requests would have."""
        check(draw, draw_paged(draw, 6, 2, [100, 3], max_length=1500))

    def test_kernels_do_the_work(self, draw):
        paged = draw_paged(draw, 6, 2, [150, 90], head_dim=64)
        assert_kernels_work(check(draw, paged), 4 * sum(paged.visible) * 6 * 64)


@pytest.mark.group("splits")
class TestSplits:
    """Some have no token, of a short request beside a long one."""

    @pytest.mark.parametrize("splits", [2, 3, 7])
    def test_numbers_of_splits(self, draw, splits):
        check(draw, draw_paged(draw, 6, 2, [130, 1, 67, 16], num_splits=splits))

    @SHAPES
    def test_heads_and_blocks(self, draw, heads, kv_heads, head_dim, block_size):
        options = {"head_dim": head_dim, "block_size": block_size, "num_splits": 3}
        check(draw, draw_paged(draw, heads, kv_heads, [130, 1, 67], **options))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_scores_far_from_zero(self, draw, dtype):
        """Splits whose largest scores are hundreds apart, or all far below 0."""
        options = {"head_dim": 64, "dtype": dtype, "levels": FAR, "num_splits": 7}
        check(draw, draw_paged(draw, 6, 2, [200, 67, 500], **options))

    def test_blocks_beyond_what_int32_reaches(self, draw):
        """The lab's int32 has 16 bits here: a cache of 140,000 elements is as one of 9 · 10⁹. (All
        else is small: 1,120 slots, 2,240 rows of a head, 1,536 elements of two splits.)"""
        options = {"head_dim": 64, "num_splits": 2}
        check(draw, draw_paged(draw, 4, 2, [400, 300, 33], **options), integer_bits=16)

    def test_any_order_of_programs(self, draw):
        paged = draw_paged(draw, 6, 2, [70, 201], num_splits=3)
        for seed in range(3):
            check(draw, paged, seed)

    @pytest.mark.parametrize("lengths", [[30, 0], [0, 0]], ids=str)
    def test_rows_without_tokens(self, draw, lengths):
        check(draw, draw_paged(draw, 6, 2, lengths, max_length=50, num_splits=5))

    def test_more_splits_than_tokens(self, draw):
        check(draw, draw_paged(draw, 6, 2, [19, 1], num_splits=23))


@pytest.mark.group("window")
class TestWindow:
    @pytest.mark.parametrize("window", [1, 5, 16, 70, 1000])
    def test_windows(self, draw, window):
        """Most begin within a block. Blocks before them are full of NaN."""
        lengths = [1, 4, 5, 6, *around(16), *around(70), 32, 150, 201]
        check(draw, draw_paged(draw, 6, 2, lengths, window=window, num_splits=1))

    @SHAPES
    def test_heads_and_blocks(self, draw, heads, kv_heads, head_dim, block_size):
        options = {"head_dim": head_dim, "block_size": block_size, "window": max(3, block_size)}
        check(draw, draw_paged(draw, heads, kv_heads, [100, 41, 64], **options))

    @pytest.mark.parametrize("window, splits", [(70, 2), (150, 7), (5, 11)])
    def test_windows_in_splits(self, draw, window, splits):
        options = {"window": window, "num_splits": splits, "block_size": 5}
        check(draw, draw_paged(draw, 6, 2, [300, 71, 69, 1], **options))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_scores_far_from_zero(self, draw, dtype):
        """Where a tile that is masked as a whole counts as 0, nothing is left of these."""
        options = {"head_dim": 64, "dtype": dtype, "levels": FAR, "window": 70}
        check(draw, draw_paged(draw, 6, 2, [300, 40, 310], **options))

    def test_a_row_without_tokens(self, draw):
        check(draw, draw_paged(draw, 6, 2, [0, 30], window=5))


@pytest.mark.group("compiled")
class TestCompiled:
    @pytest.mark.parametrize("architecture, splits", [("sm_80", 2), ("sm_90", None)])
    def test_every_launch_fits(self, draw, architecture, splits):
        seen = check(draw, draw_paged(draw, 8, 2, [40, 90], head_dim=128, num_splits=splits))
        assert_fits(seen, architecture)
        assert_asks_nothing(seen)


@pytest.mark.cost("bytes")
class TestBytes:
    def test_full_attention(self, draw, budget):
        """Keys and values once for all heads of a group, and of the splits' results what is one."""
        paged = draw_paged(draw, 16, 2, [701, 640, 333], head_dim=64, num_splits=7)
        seen = check(draw, paged)
        width = 2 * 2 * sum(paged.visible) * 64
        beside = {"keys and values": 2 * width, "keys and values, for each query head": 16 * width}
        charge_bytes(budget, seen, least_bytes(paged, 7), beside)

    def test_short_beside_long(self, draw, budget):
        paged = draw_paged(draw, 8, 2, [1300, 20, 130, 1, 64], head_dim=64, num_splits=1)
        seen = check(draw, paged)
        as_long = 2 * 2 * 5 * 1300 * 2 * 64
        beside = {"keys and values, if all were as long": as_long}
        charge_bytes(budget, seen, least_bytes(paged, 1), beside)

    def test_window(self, draw, budget):
        options = {"head_dim": 64, "window": 256, "num_splits": 1}
        paged = draw_paged(draw, 8, 2, [1200, 900, 300, 40], **options)
        seen = check(draw, paged)
        beside = {"keys and values, before the windows too": 2 * 2 * sum(paged.lengths) * 2 * 64}
        charge_bytes(budget, seen, least_bytes(paged, 1), beside)


@pytest.mark.cost("time")
class TestTime:
    """On an H100, as the lab predicts it; the number of splits is the submission's choice. The
    ideal moves the least bytes with a program for each multiprocessor, at full bandwidth."""

    RAGGED = (1500, 1400, 100, 700, 300, 1200, 900, 1100, 256, 511, 1024, 600)

    @pytest.mark.parametrize(
        "shape, heads, kv_heads, head_dim, lengths",
        [
            ("12 requests", 4, 2, 64, RAGGED),
            ("1 × 8,192 tokens", 8, 4, 64, [8192]),
            ("64 × 1,024 tokens", 2, 1, 32, [1024] * 64),
        ],
        ids=["ragged", "one_long_request", "many_requests"],
    )
    def test_predicted_time(self, draw, budget, shape, heads, kv_heads, head_dim, lengths):
        paged = draw_paged(draw, heads, kv_heads, lengths, head_dim=head_dim)
        seen = check(draw, paged)
        least = least_bytes(paged, -(-H100.multiprocessors // (len(lengths) * kv_heads)))
        longest = by_one_program(2 * 2 * max(lengths) * head_dim)
        unsplit = max(longest, least_bytes(paged, 1) / H100.bandwidth)
        beside = {f"{shape}: without splits": unsplit}
        flops = 4 * sum(lengths) * heads * head_dim
        charge_time(budget, seen, least, flops=flops, beside=beside)


@pytest.mark.cost("code")
def test_what_the_compiler_makes_of_it(draw, budget):
    """For an A100 and an H100: registers that spill; loads of the cache that are no 16 bytes a
    thread; products of 16 query heads that do not reach the tensor cores."""
    four = check(draw, draw_paged(draw, 8, 2, [40, 90], head_dim=128, num_splits=2))
    sixteen = check(draw, draw_paged(draw, 16, 1, [40, 90], head_dim=128, num_splits=2))
    charge_code(budget, [four, sixteen], reading=four, products=sixteen)
