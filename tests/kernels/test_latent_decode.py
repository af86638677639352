"""kernels.latent_decode: the definition's outputs, and each latent once for many heads."""

from __future__ import annotations

import math

import pytest
import torch

from submission.kernels.latent_decode import latent_decode
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
from tests.kernels.kernel_inputs import DTYPES, FAR, bits
from tests.kernels.latent_kernel_inputs import Latent, draw_latent, least_bytes
from tests.kernels.oracles_latent_decode import assert_attention, attention
from tests.kernels.rounding import root_mean_square, tf32_is_told

ARGUMENTS = ("q_latent", "q_rope", "cache", "block_tables", "lengths")
SHAPES = pytest.mark.parametrize(  # the two widths are never equal; most are no powers of two
    "heads, latent_dim, rope_dim, block_size",
    [(6, 48, 16, 16), (20, 96, 24, 5), (33, 64, 32, 32), (1, 16, 80, 1), (16, 80, 8, 16)],
)


def check(draw, latent: Latent, seed: int | None = None, integer_bits: int = 32) -> Seen:
    """Programs run in an order of chance. Outputs are right, and arguments as they were."""
    before = [bits(argument).clone() for argument in latent.arguments[:5]]
    lab = {"seed": draw.seed() if seed is None else seed, "integer_bits": integer_bits}
    seen = in_lab(latent_decode, *latent.arguments, **lab)
    assert seen.launches, "no kernel was launched"
    with tf32_is_told(seen):
        assert_attention(seen.value, latent)
    for name, old, new in zip(ARGUMENTS, before, seen.arguments, strict=False):
        assert_equal(bits(new), old, what=f"bits of {name}, afterwards")
    return seen


@pytest.mark.group("decode")
class TestDecode:
    """No splits, but where it is said."""

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_dtypes(self, draw, dtype):
        check(draw, draw_latent(draw, 6, [17, 130, 1], dtype=dtype, num_splits=1))

    @SHAPES
    def test_heads_widths_and_blocks(self, draw, heads, latent_dim, rope_dim, block_size):
        lengths = [1, *around(max(2, block_size)), 130, 65]
        options = {"latent_dim": latent_dim, "rope_dim": rope_dim, "block_size": block_size}
        check(draw, draw_latent(draw, heads, lengths, num_splits=1, **options))

    @pytest.mark.parametrize("heads", [15, 17, 32, 63, 128])
    def test_numbers_of_heads(self, draw, heads):
        """Around what a program may take together, and more than any program holds."""
        check(draw, draw_latent(draw, heads, [70, 9], num_splits=1))

    def test_lengths_around_the_end_of_a_tile(self, draw):
        lengths = [length for tile in (16, 32, 64, 128) for length in around(tile)]
        check(draw, draw_latent(draw, 6, lengths, num_splits=1))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_scores_far_from_zero(self, draw, dtype):
        options = {"block_size": 5, "dtype": dtype, "levels": FAR, "num_splits": 1}
        for lengths in ([130, 1, 140], [40, 150, 1]):
            check(draw, draw_latent(draw, 6, lengths, **options))

    def test_many_tiles(self, draw):
        """The largest score comes anywhere: what was summed before is worth less from then on."""
        levels = [(0, 0), (-8, 8), (-300, 300)]
        check(draw, draw_latent(draw, 6, [700, 900, 400], levels=levels, num_splits=1))

    @pytest.mark.parametrize("scale", [0.05, 0.7])
    def test_other_scales(self, draw, scale):
        """It is the caller's: of heads whose width has nothing to do with those of the cache."""
        check(draw, draw_latent(draw, 6, [70, 9], scale=scale, num_splits=1))

    def test_shared_blocks(self, draw):
        """Three of the requests begin with the same 4 blocks."""
        latent = draw_latent(draw, 6, [90, 30, 64, 71], shared=4, num_splits=1)
        tables = latent.arguments[3]
        assert_equal(tables[0, :4], tables[3, :4])
        check(draw, latent)

    @pytest.mark.parametrize("lengths", [[5, 0, 40], [0, 0]], ids=str)
    def test_rows_without_tokens(self, draw, lengths):
        check(draw, draw_latent(draw, 6, lengths, max_length=50, num_splits=1))

    def test_sums_are_those_of_float32(self, draw):
        """As close as a result that is rounded once. (Sums that are rounded after each tile are two
        or three times as far off, which a usual tolerance of bfloat16 forgives.)"""
        latent = draw_latent(draw, 4, [4000], dtype=torch.bfloat16, mean=1, num_splits=1)
        got = check(draw, latent).value.double()
        expected = attention(latent)
        off, rounded = (root_mean_square(x.double() - expected) for x in (got, expected.bfloat16()))
        assert off < 1.5 * rounded, (
            f"the mean distance from the exact results is {off:.2g}; rounding them once costs "
            f"{rounded:.2g}"
        )

    @pytest.mark.parametrize("length", [1, 17, 300])
    def test_one_request_in_as_many_splits_as_it_likes(self, draw, length):
        check(draw, draw_latent(draw, 9, [length]))

    def test_lengths_far_below_the_largest(self, draw):
        """With as many splits as a batch of longer requests would have."""
        check(draw, draw_latent(draw, 6, [100, 3], max_length=1500))

    def test_kernels_do_the_work(self, draw):
        latent = draw_latent(draw, 20, [150, 90])
        flops = 2 * sum(latent.lengths) * 20 * (48 + latent.width)
        assert_kernels_work(check(draw, latent), flops)


@pytest.mark.group("splits")
class TestSplits:
    """Some have no token, of a short request beside a long one."""

    @pytest.mark.parametrize("splits", [2, 3, 7])
    def test_numbers_of_splits(self, draw, splits):
        check(draw, draw_latent(draw, 6, [130, 1, 67, 16], num_splits=splits))

    @SHAPES
    def test_heads_widths_and_blocks(self, draw, heads, latent_dim, rope_dim, block_size):
        options = {"latent_dim": latent_dim, "rope_dim": rope_dim, "block_size": block_size}
        check(draw, draw_latent(draw, heads, [130, 1, 67], num_splits=3, **options))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_scores_far_from_zero(self, draw, dtype):
        """Splits whose largest scores are hundreds apart, or all far below 0."""
        options = {"dtype": dtype, "levels": FAR, "num_splits": 7}
        check(draw, draw_latent(draw, 6, [200, 67, 500], **options))

    def test_blocks_beyond_what_int32_reaches(self, draw):
        """The lab's int32 has 16 bits here: a cache of 55,000 elements is as one of 3.6 · 10⁹. (All
        else is small: 870 slots, 1,152 elements of two splits.)"""
        options = {"num_splits": 2, "block_size": 10}
        check(draw, draw_latent(draw, 4, [350, 250, 33], **options), integer_bits=16)

    def test_any_order_of_programs(self, draw):
        latent = draw_latent(draw, 33, [70, 131], num_splits=2)
        for seed in range(3):
            check(draw, latent, seed)

    @pytest.mark.parametrize("lengths", [[30, 0], [0, 0]], ids=str)
    def test_rows_without_tokens(self, draw, lengths):
        check(draw, draw_latent(draw, 6, lengths, max_length=50, num_splits=5))

    def test_more_splits_than_tokens(self, draw):
        check(draw, draw_latent(draw, 6, [19, 1], latent_dim=96, num_splits=40))


def of_full_size(draw, splits: int | None = 2) -> tuple[Latent, Latent]:
    """16 heads in splits, and 128, of the widths of DeepSeek-V2 and V3."""
    widths = {"latent_dim": 512, "rope_dim": 64}
    few = draw_latent(draw, 16, [40], num_splits=splits, **widths)
    return few, draw_latent(draw, 128, [40], num_splits=1, **widths)


@pytest.mark.group("compiled")
class TestCompiled:
    @pytest.mark.parametrize("architecture, splits", [("sm_80", 2), ("sm_90", None)])
    def test_every_launch_fits(self, draw, architecture, splits):
        for latent in of_full_size(draw, splits):
            seen = check(draw, latent)
            assert_fits(seen, architecture)
            assert_asks_nothing(seen)


@pytest.mark.cost("bytes")
class TestBytes:
    def test_many_heads(self, draw, budget):
        """128 of them: a token's row for each 32 once, as key and as value."""
        latent = draw_latent(draw, 128, [501, 340], latent_dim=64, num_splits=1)
        seen = check(draw, latent)
        rows = 2 * sum(latent.lengths) * latent.width
        beside = {
            "the cache, once for 32 heads": 4 * rows,
            "the cache, once for 16 heads": 8 * rows,
            "the cache, once for each head": 128 * rows,
        }
        charge_bytes(budget, seen, least_bytes(latent, 1), beside)

    def test_few_heads_in_splits(self, draw, budget):
        """And of the splits' results what is one."""
        latent = draw_latent(draw, 16, [701, 640, 333], latent_dim=64, num_splits=3)
        seen = check(draw, latent)
        rows = 2 * sum(latent.lengths) * latent.width
        beside = {
            "the cache, once": rows,
            "the cache, and the latents again as values": rows + 2 * sum(latent.lengths) * 64,
        }
        charge_bytes(budget, seen, least_bytes(latent, 3), beside)

    def test_short_beside_long(self, draw, budget):
        latent = draw_latent(draw, 6, [1300, 20, 130, 1, 64], latent_dim=64, num_splits=1)
        seen = check(draw, latent)
        as_long = 2 * 5 * 1300 * latent.width
        charge_bytes(budget, seen, least_bytes(latent, 1), {"the cache, if all were long": as_long})


@pytest.mark.cost("time")
class TestTime:
    """On an H100, as the lab predicts it; the number of splits is the submission's choice. The
    ideal moves the least bytes at full bandwidth, with so many splits that the longest request too
    is read at full bandwidth."""

    RAGGED = (550, 500, 40, 233, 100, 400, 300, 366)

    @pytest.mark.parametrize(
        "shape, heads, lengths",
        [
            ("8 requests", 16, RAGGED),
            ("1 × 6,144 tokens", 16, [6144]),
            ("16 × 160 tokens", 128, [160] * 16),
        ],
        ids=["ragged", "one_long_request", "many_heads"],
    )
    def test_predicted_time(self, draw, budget, shape, heads, lengths):
        latent = draw_latent(draw, heads, lengths, latent_dim=128)
        seen = check(draw, latent)
        enough = H100.bandwidth * by_one_program(1)  # multiprocessors for the whole bandwidth
        share = max(lengths) / (latent.head_tiles * sum(lengths))  # of one, without splits
        least = least_bytes(latent, math.ceil(enough * share))
        longest = by_one_program(2 * max(lengths) * latent.width)
        unsplit = max(longest, least_bytes(latent, 1) / H100.bandwidth)
        flops = 2 * sum(lengths) * heads * (128 + latent.width)
        charge_time(budget, seen, least, flops=flops, beside={f"{shape}: without splits": unsplit})


@pytest.mark.cost("code")
def test_what_the_compiler_makes_of_it(draw, budget):
    """For an A100 and an H100: registers that spill; loads of the cache that are no 16 bytes a
    thread; products of 16 query heads that do not reach the tensor cores."""
    few, many = (check(draw, latent) for latent in of_full_size(draw))
    charge_code(budget, [few, many], reading=many, products=few)
