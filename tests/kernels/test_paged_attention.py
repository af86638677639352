"""kernels.paged_attention: the textbook's outputs, and each byte of the cache once."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.lab.kernel import GPUS, predict
from submission.kernels.paged_attention import paged_attention
from tests.grading.closeness import assert_equal
from tests.grading.kernels.boundary import Seen, in_lab
from tests.grading.records import Roofline
from tests.grading.shapes import around
from tests.kernels.kernel_inputs import DTYPES, bits, moved_bytes
from tests.kernels.oracles_paged import assert_attention, attention, root_mean_square
from tests.kernels.paged_inputs import Paged, draw_paged, least_bytes

ARGUMENTS = ("q", "k_cache", "v_cache", "block_tables", "lengths")
SHAPES = pytest.mark.parametrize(  # no ratio of heads is the number of KV heads
    "heads, kv_heads, head_dim, block_size",
    [(6, 2, 16, 16), (9, 3, 80, 5), (28, 4, 64, 32), (4, 4, 16, 16), (8, 1, 80, 1)],
)
LEVELS = pytest.mark.parametrize("levels", [(-300, -300), (300, 300), (-300, 300)], ids=str)


def check(draw, paged: Paged, seed: int | None = None) -> Seen:
    """Programs run in an order of chance. Outputs are right, and arguments as they were."""
    before = [bits(argument).clone() for argument in paged.arguments[:5]]
    seen = in_lab(paged_attention, *paged.arguments, seed=draw.seed() if seed is None else seed)
    assert seen.launches, "no kernel was launched"
    assert_attention(seen.value, paged)
    for name, old, new in zip(ARGUMENTS, before, seen.arguments, strict=False):
        assert_equal(bits(new), old, what=f"bits of {name}, afterwards")
    return seen


@pytest.mark.group("decode")
class TestDecode:
    @SHAPES
    def test_heads_and_blocks(self, draw, heads, kv_heads, head_dim, block_size):
        """Lengths around the end of a block and of tiles of all sizes."""
        lengths = [0, *around(32), 1, *around(64), 5, *around(128), 16]
        options = {"head_dim": head_dim, "block_size": block_size}
        check(draw, draw_paged(draw, heads, kv_heads, lengths, **options))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_dtypes(self, draw, dtype):
        check(draw, draw_paged(draw, 6, 2, [17, 130, 0, 1], head_dim=80, dtype=dtype))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @LEVELS
    def test_scores_far_from_zero(self, draw, dtype, levels):
        options = {"head_dim": 64, "block_size": 5, "dtype": dtype, "levels": levels}
        check(draw, draw_paged(draw, 6, 2, [130, 1, 0, 40], **options))

    @pytest.mark.parametrize("levels", [None, (-8, 8), (-300, 300)], ids=str)
    def test_many_tiles_in_one_program(self, draw, levels):
        """The largest score comes anywhere: what was summed before is worth less from then on."""
        check(draw, draw_paged(draw, 6, 2, [900, 0, 400], levels=levels, num_splits=1))

    @pytest.mark.parametrize("scale", [0.05, 0.7])
    def test_other_scales(self, draw, scale):
        check(draw, draw_paged(draw, 6, 2, [70, 9], head_dim=16, scale=scale))

    @pytest.mark.parametrize("length", [1, 16, 17, 300])
    def test_one_request(self, draw, length):
        check(draw, draw_paged(draw, 9, 3, [length]))

    def test_shared_blocks(self, draw):
        """Three of the requests begin with the same 4 blocks."""
        paged = draw_paged(draw, 6, 2, [90, 30, 64, 71], shared=4)
        tables = paged.arguments[3]
        assert_equal(tables[0, :4], tables[3, :4])
        check(draw, paged)

    @pytest.mark.parametrize("lengths", [[100, 3, 0], [0, 0]], ids=str)
    def test_lengths_far_below_the_largest(self, draw, lengths):
        check(draw, draw_paged(draw, 6, 2, lengths, max_length=3000))

    def test_any_order_of_programs(self, draw):
        paged = draw_paged(draw, 6, 2, [70, 0, 201])
        for seed in range(3):
            check(draw, paged, seed)

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

    def test_kernels_do_the_work(self, draw):
        paged = draw_paged(draw, 6, 2, [150, 90], head_dim=64)
        seen = check(draw, paged)
        flops = 4 * sum(paged.visible) * 6 * 64
        of_kernels = sum(sum(launch.program_flops) for launch in seen.launches)
        assert of_kernels > flops / 2, f"kernels did {of_kernels:,} of {flops:,} FLOPs"
        assert seen.cost.flops < flops / 10, f"torch did {seen.cost.flops:,} FLOPs in the launcher"


@pytest.mark.group("splits")
class TestSplits:
    LENGTHS = (130, 0, 1, 67, 16)

    @pytest.mark.parametrize("splits", [1, 2, 7, 40])
    def test_numbers_of_splits(self, draw, splits):
        check(draw, draw_paged(draw, 6, 2, self.LENGTHS, num_splits=splits))

    def test_more_splits_than_tokens(self, draw):
        check(draw, draw_paged(draw, 6, 2, [19, 0, 1, 16], num_splits=23))

    @SHAPES
    def test_heads_and_blocks(self, draw, heads, kv_heads, head_dim, block_size):
        options = {"head_dim": head_dim, "block_size": block_size, "num_splits": 3}
        check(draw, draw_paged(draw, heads, kv_heads, self.LENGTHS, **options))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @LEVELS
    def test_scores_far_from_zero(self, draw, dtype, levels):
        """Splits whose largest scores are hundreds apart, or all far below 0."""
        options = {"head_dim": 64, "dtype": dtype, "levels": levels, "num_splits": 7}
        check(draw, draw_paged(draw, 6, 2, [500, 0, 67], **options))

    def test_no_token_at_all(self, draw):
        check(draw, draw_paged(draw, 6, 2, [0, 0, 0], max_length=50, num_splits=5))


@pytest.mark.group("window")
class TestWindow:
    @pytest.mark.parametrize("window", [1, 5, 16, 70, 1000])
    def test_windows(self, draw, window):
        """Most begin within a block. Blocks before them are full of NaN."""
        lengths = [0, 1, 4, 5, 6, *around(16), *around(70), 32, 150, 201]
        check(draw, draw_paged(draw, 6, 2, lengths, window=window))

    @SHAPES
    def test_heads_and_blocks(self, draw, heads, kv_heads, head_dim, block_size):
        options = {"head_dim": head_dim, "block_size": block_size, "window": max(3, block_size)}
        check(draw, draw_paged(draw, heads, kv_heads, [100, 0, 41, 64], **options))

    @pytest.mark.parametrize("window, splits", [(70, 2), (150, 7), (5, 11)])
    def test_windows_in_splits(self, draw, window, splits):
        options = {"window": window, "num_splits": splits, "block_size": 5}
        check(draw, draw_paged(draw, 6, 2, [300, 71, 0, 69, 1], **options))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_scores_far_from_zero(self, draw, dtype):
        """Where a tile that is masked as a whole counts as 0, nothing is left of these."""
        for levels in ((-300, -300), (-300, 300)):
            options = {"head_dim": 64, "dtype": dtype, "levels": levels, "window": 70}
            check(draw, draw_paged(draw, 6, 2, [300, 40, 0], **options))


@pytest.mark.group("compiled")
class TestCompiled:
    @pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
    def test_every_launch_fits(self, draw, architecture):
        seen = check(draw, draw_paged(draw, 8, 2, [40, 90], head_dim=128, num_splits=2))
        for launch, compiled in zip(seen.launches, seen.compiled(architecture), strict=True):
            assert compiled.programs_at_once >= 1, (
                f"{launch.kernel}: a program wants {compiled.shared:,} bytes of shared memory and "
                f"{compiled.registers} registers a thread, more than {architecture} has"
            )


@pytest.mark.cost("bytes")
class TestBytes:
    def test_full_attention(self, draw, budget):
        """Keys and values once for all heads of a group, and of the splits' results what is one."""
        paged = draw_paged(draw, 16, 2, [701, 640, 333], head_dim=64, num_splits=7)
        seen = check(draw, paged)
        width = 2 * 2 * sum(paged.visible) * 64
        beside = {"keys and values": 2 * width, "keys and values, for each query head": 16 * width}
        budget(moved_bytes(seen), least_bytes(paged, 7), unit="bytes", beside=beside)

    def test_short_beside_long(self, draw, budget):
        paged = draw_paged(draw, 8, 2, [1300, 20, 130, 0, 64], head_dim=64, num_splits=1)
        seen = check(draw, paged)
        as_long = 2 * 2 * 5 * 1300 * 2 * 64
        beside = {"keys and values, if all were as long": as_long}
        budget(moved_bytes(seen), least_bytes(paged, 1), unit="bytes", beside=beside)

    def test_window(self, draw, budget):
        options = {"head_dim": 64, "window": 256, "num_splits": 1}
        paged = draw_paged(draw, 8, 2, [1200, 900, 300, 40], **options)
        seen = check(draw, paged)
        beside = {"keys and values, before the windows too": 2 * 2 * sum(paged.lengths) * 2 * 64}
        budget(moved_bytes(seen), least_bytes(paged, 1), unit="bytes", beside=beside)


@pytest.mark.cost("time")
class TestTime:
    """On an H100, as the lab predicts it; the number of splits is the submission's choice. The
    ideal moves the least bytes with a program for each multiprocessor, at full bandwidth."""

    GPU = GPUS["H100"]

    @pytest.mark.parametrize(
        "heads, kv_heads, head_dim, lengths",
        [
            (8, 4, 64, [8192]),
            (4, 1, 32, [1024] * 64),
            (2, 1, 64, [1500, 1400, 100, 700, 300, 1200, 900, 1100, 256, 511, 1024, 600]),
        ],
        ids=["one_long_request", "many_requests", "ragged"],
    )
    def test_predicted_time(self, draw, budget, heads, kv_heads, head_dim, lengths):
        paged = draw_paged(draw, heads, kv_heads, lengths, head_dim=head_dim)
        seen = check(draw, paged)
        splits = -(-self.GPU.multiprocessors // (len(lengths) * kv_heads))
        least = least_bytes(paged, splits)
        longest = 2 * 2 * max(lengths) * head_dim / (self.GPU.bytes_per_clock * self.GPU.clock)
        got = predict(seen.launches, self.GPU)
        of_torch = seen.cost.bytes / self.GPU.chip.bandwidth
        budget(
            got.seconds + of_torch,
            least / self.GPU.chip.bandwidth,
            unit="s",
            beside={"the longest request, by one program": longest},
            roofline=Roofline("H100", 4 * sum(lengths) * heads * head_dim, got.bytes, least),
        )


@pytest.mark.cost("code")
class TestCode:
    """What the compiler makes of it, for an A100 or an H100."""

    def test_nothing_spills(self, draw, budget):
        seen = check(draw, draw_paged(draw, 8, 2, [40, 90], head_dim=128, num_splits=2))
        spilled = sum(c.spilled for a in ("sm_80", "sm_90") for c in seen.compiled(a))
        budget(spilled, 0, unit="bytes that spill")

    def test_the_cache_is_read_in_wide_loads(self, draw, budget):
        """16 bytes a thread; most instructions that load are for keys and values."""
        seen = check(draw, draw_paged(draw, 8, 2, [40, 90], head_dim=128, num_splits=2))
        loaded = [launch.bytes_loaded for launch in seen.launches]
        reading = seen.compiled("sm_80")[loaded.index(max(loaded))]
        budget(int(2 * reading.wide_loads < reading.loads), 0, unit="kernels with narrow loads")

    def test_tensor_cores_multiply_for_a_group_of_sixteen(self, draw, budget):
        seen = check(draw, draw_paged(draw, 16, 1, [40, 90], head_dim=128, num_splits=2))
        used = any(compiled.tensor_core for compiled in seen.compiled("sm_80"))
        budget(int(not used), 0, unit="calls without tensor cores")
