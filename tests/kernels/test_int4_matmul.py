"""kernels.int4_matmul: the definition's outputs, and the weights moved in 4 bits."""

from __future__ import annotations

import pytest
import torch

from submission.kernels.int4_matmul import int4_matmul
from tests.grading.closeness import assert_equal
from tests.grading.kernels.boundary import Seen, in_lab
from tests.grading.shapes import around
from tests.kernels.int4_inputs import (
    OUTPUTS,
    ROWS,
    Int4,
    draw_int4,
    least_bytes,
    of_codes,
    weight_bytes,
)
from tests.kernels.kernel_costs import (
    ARCHITECTURES,
    H100,
    assert_asks_nothing,
    assert_fits,
    by_one_program,
    charge_bytes,
    charge_code,
    charge_time,
)
from tests.kernels.kernel_inputs import DTYPES, bits
from tests.kernels.oracles_int4 import assert_products, products
from tests.kernels.rounding import root_mean_square, tf32_is_told

WIDE = H100.multiprocessors * OUTPUTS  # outputs that give each multiprocessor a tile


def check(draw, int4: Int4, seed: int | None = None, integer_bits: int = 32) -> Seen:
    """Programs run in an order of chance. Outputs are right, and arguments as they were."""
    before = [bits(argument).clone() for argument in int4.arguments[:4]]
    lab = {"seed": draw.seed() if seed is None else seed, "integer_bits": integer_bits}
    seen = in_lab(int4_matmul, *int4.arguments, **lab)
    assert seen.launches or not len(int4.x), "no kernel was launched"
    with tf32_is_told(seen):
        assert_products(seen.value, int4)
    for name, old, new in zip(Int4.NAMES, before, seen.arguments, strict=False):
        assert_equal(bits(new), old, what=f"bits of {name}, afterwards")
    return seen


@pytest.mark.group("products")
class TestProducts:
    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_dtypes(self, draw, dtype):
        check(draw, draw_int4(draw, 5, 576, 70, dtype=dtype))

    @pytest.mark.parametrize("rows", [1, 2, *around(16), *around(32), *around(64), 130])
    def test_numbers_of_rows(self, draw, rows):
        check(draw, draw_int4(draw, rows, 100, 40, group=64))

    def test_no_rows(self, draw):
        check(draw, draw_int4(draw, 0, 64, 40))

    @pytest.mark.parametrize("outputs", [1, 7, *around(64), *around(128), 300])
    def test_numbers_of_outputs(self, draw, outputs):
        check(draw, draw_int4(draw, 3, 100, outputs, group=64))

    @pytest.mark.parametrize("inputs", [1, 7, 8, 9, *around(64), *around(128), 300])
    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
    def test_numbers_of_inputs(self, draw, inputs, dtype):
        check(draw, draw_int4(draw, 3, inputs, 40, dtype=dtype))

    def test_many_inputs_and_few_outputs(self, draw):
        """If programs share the inputs, the last of them may have less to do, or nothing."""
        for inputs, outputs in ((4096, 5), (2200, 130), (1000, 9)):
            check(draw, draw_int4(draw, 2, inputs, outputs))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    @pytest.mark.parametrize("zero", [0, 15])
    def test_weights_of_one_sign(self, draw, dtype, zero):
        """A zero point of 0 or 15, as of groups without a negative or positive weight."""
        int4 = draw_int4(draw, 5, 300, 40, zeros=(zero, zero), dtype=dtype)
        check(draw, int4)

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_a_group_of_zeros(self, draw, dtype):
        """Its scale is 2⁻¹²⁶, the smallest that there is, and not a number of 16 bits."""
        int4 = draw_int4(draw, 3, 300, 40, dtype=dtype)
        codes, zeros, scales = int4.codes, int4.zeros, int4.scales
        codes[:, 128:256], zeros[:, 1], scales[:, 1] = 0, 0, 2.0**-126
        codes[7], zeros[7], scales[7] = 0, 0, 2.0**-126
        int4 = of_codes(draw, int4.x, codes, zeros, scales, 128)
        assert (check(draw, int4).value[:, 7] == 0).all()

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
    def test_small_scales(self, draw, dtype):
        """Of 10⁻⁹, which float32 and bfloat16 hold; float16 does not."""
        check(draw, draw_int4(draw, 3, 300, 40, scale=1e-9, dtype=dtype))

    def test_sums_beyond_16_bits(self, draw):
        """A first half that adds up to over 65,504, and a second half that takes it away."""
        x = 1000 * (1 + 0.1 * draw.normal(3, 512))
        x[:, 256:] *= -1
        check(draw, draw_int4(draw, 3, 512, 40, zeros=(0, 0), x=x))

    def test_sums_are_those_of_float32(self, draw):
        """As close as results that are rounded once. (Sums that are rounded after each group are
        twice as far off or more, which a usual tolerance of bfloat16 forgives.)"""
        x = 1 + draw.uniform(4, 2048)
        int4 = draw_int4(draw, 4, 2048, 100, zeros=(0, 3), dtype=torch.bfloat16, x=x)
        got, expected = check(draw, int4).value.double(), products(int4)
        off, rounded = (root_mean_square(x.double() - expected) for x in (got, expected.bfloat16()))
        assert off < 1.5 * rounded, (
            f"the mean distance from the exact results is {off:.2g}; rounding them once costs "
            f"{rounded:.2g}"
        )

    def test_any_order_of_programs(self, draw):
        int4 = draw_int4(draw, 70, 1100, 140)
        for seed in range(2):
            check(draw, int4, seed)

    @pytest.mark.parametrize("group", [-8, 0, 4, 12, 129])
    def test_groups_that_are_no_multiple_of_8(self, draw, group):
        arguments = draw_int4(draw, 2, 128, 5).arguments[:4]
        with pytest.raises(ValueError) as refusal:
            in_lab(int4_matmul, *arguments, group)
        assert "group" in str(refusal.value), f"group is not named: {refusal.value}"

    @pytest.mark.parametrize("rows, inputs, outputs", [(20, 512, 150), (3, 4096, 20)])
    def test_kernels_do_the_work(self, draw, rows, inputs, outputs):
        """All of it: parts of sums are not for torch to add, either."""
        int4 = draw_int4(draw, rows, inputs, outputs)
        seen = check(draw, int4)
        of_kernels = sum(sum(launch.program_flops) for launch in seen.launches)
        assert of_kernels > int4.flops / 2, f"kernels did {of_kernels:,} of {int4.flops:,} FLOPs"
        of_torch = seen.cost.flops
        assert of_torch < rows * outputs, f"torch did {of_torch:,} FLOPs in the launcher"


@pytest.mark.group("places")
class TestPlaces:
    """Which word, which bits of it, which group's scale and zero point."""

    @pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
    @pytest.mark.parametrize(
        "inputs, group",
        [(100, 8), (100, 24), (72, 64), (130, 128), (90, 40), (70, 72), (60, 1024)],
    )
    def test_each_weight_by_itself(self, draw, inputs, group, dtype):
        """x is the unit matrix, so the results are the weights."""
        check(draw, draw_int4(draw, 0, inputs, 9, group=group, dtype=dtype, x=torch.eye(inputs)))

    @pytest.mark.parametrize(
        "inputs, group",
        [(8, 8), (72, 8), (600, 24), (129, 64), (576, 128), (333, 40), (1, 128), (1100, 576)],
    )
    def test_groups(self, draw, inputs, group):
        """From one to a word of eight and more; the last is shorter in most, by one or by far."""
        for dtype in (torch.float16, torch.float32):
            check(draw, draw_int4(draw, 3, inputs, 70, group=group, dtype=dtype))

    @pytest.mark.parametrize("groups", [1, *around(8), *around(16), 33])
    def test_words_of_zero_points(self, draw, groups):
        check(draw, draw_int4(draw, 3, 16 * groups, 20, group=16, dtype=torch.float32))

    @pytest.mark.parametrize("codes", [(0, 0), (7, 7), (8, 8), (15, 15)], ids=str)
    def test_signs_of_words(self, draw, codes):
        """All codes of a weight are the same, and so are the zero points of another weight."""
        check(draw, draw_int4(draw, 3, 200, 20, group=16, codes=codes))
        check(draw, draw_int4(draw, 3, 200, 20, group=16, zeros=codes))

    def test_only_the_sign_of_a_word(self, draw):
        """The last code of each word is 8, all others are 0: words of −2³¹."""
        int4 = draw_int4(draw, 3, 256, 20, codes=(0, 0), zeros=(0, 15), group=32)
        int4.codes[:, 7::8], int4.zeros[:, :7] = 8, 0
        check(draw, of_codes(draw, int4.x, int4.codes, int4.zeros, int4.scales, 32))

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_a_short_last_group_and_a_short_last_word(self, draw, dtype):
        """What lies behind the last input of a row is the next row, and larger."""
        x = draw.normal(4, 141) * torch.tensor([1.0, 10, 100, 1000])[:, None]
        check(draw, draw_int4(draw, 4, 141, 20, x=x, dtype=dtype))

    def test_rows_do_not_meet(self, draw):
        """One is NaN from end to end, and so is its result; no other's is."""
        int4 = draw_int4(draw, 9, 141, 20)
        clean, spoilt = int4.x.clone(), [0, 5]
        int4.x[spoilt] = torch.nan
        seen = in_lab(int4_matmul, *int4.arguments, seed=draw.seed())
        assert seen.value[spoilt].isnan().all(), "what is NaN in x is none in the result"
        int4.x[:] = clean
        left = seen.value.clone()
        left[spoilt] = products(int4)[spoilt].to(left.dtype)
        assert_products(left, int4)

    @pytest.mark.parametrize("rows, outputs", [(2200, 16), (30, 1300)], ids=["x", "outputs"])
    def test_beyond_what_int32_reaches(self, draw, rows, outputs):
        """The lab's int32 has 16 bits here: 35,000 numbers are as two thousand millions."""
        check(draw, draw_int4(draw, rows, 16, outputs, group=16), integer_bits=16)


@pytest.mark.group("compiled")
class TestCompiled:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_every_launch_fits(self, draw, architecture):
        seen = check(draw, draw_int4(draw, 3, 512, 150))
        assert_fits(seen, architecture)
        assert_asks_nothing(seen)


@pytest.mark.cost("bytes")
class TestBytes:
    """There are enough tiles of 64 rows and 128 outputs for each multiprocessor of an H100, so the
    ideal does not split the inputs, and has no parts."""

    @pytest.mark.parametrize(
        "rows, inputs, outputs, group",
        [(64, 128, WIDE, 128), (150, 128, WIDE // 3, 128), (1, 128, WIDE, 32)],
        ids=["64_rows", "150_rows", "small_groups"],
    )
    def test_weights_once(self, draw, budget, rows, inputs, outputs, group):
        int4 = draw_int4(draw, rows, inputs, outputs, group=group)
        seen = check(draw, int4)
        least, weights = least_bytes(int4), weight_bytes(int4)
        tiles = [-(-rows // tile) for tile in (16, ROWS)]
        beside = {
            "a dequantised weight first": least + 2 * 2 * int4.codes.numel(),
            "weights for each row": least + (rows - tiles[1]) * weights,
            "weights for each 16 rows": least + (tiles[0] - tiles[1]) * weights,
        }
        charge_bytes(budget, seen, least, {f"{rows} × {inputs}: {k}": v for k, v in beside.items()})


@pytest.mark.cost("time")
class TestTime:
    """On an H100, as the lab predicts it. The ideal moves the least bytes at full bandwidth, with a
    program for each multiprocessor: where there are fewer tiles, the inputs are split. (They are
    one group there: a split that wants one scale of many moves a sector of them.)"""

    @pytest.mark.parametrize(
        "rows, inputs, outputs, group",
        [(1, 128, WIDE, 128), (16, 128, WIDE, 128), (1, 4096, 512, 4096)],
        ids=["one_row", "16_rows", "few_outputs"],
    )
    def test_predicted_time(self, draw, budget, rows, inputs, outputs, group):
        int4 = draw_int4(draw, rows, inputs, outputs, group=group)
        seen = check(draw, int4)
        tiles = -(-rows // ROWS) * -(-outputs // OUTPUTS)
        least = least_bytes(int4, H100.multiprocessors // tiles)
        unsplit = max(by_one_program(least_bytes(int4) / tiles), least_bytes(int4) / H100.bandwidth)
        dequantised = (least_bytes(int4) + 2 * 2 * int4.codes.numel()) / H100.bandwidth
        shape = f"{rows} × {inputs} × {outputs:,}"
        beside = {f"{shape}: a dequantised weight first": dequantised}
        if tiles < H100.multiprocessors:
            beside[f"{shape}: without parts"] = unsplit
        charge_time(budget, seen, least, flops=int4.flops, beside=beside)


@pytest.mark.cost("code")
def test_what_the_compiler_makes_of_it(draw, budget):
    """For an A100 and an H100: registers that spill; loads of words and x that are no 16 bytes a
    thread; products of 64 rows that do not reach the tensor cores."""
    seen = check(draw, draw_int4(draw, 64, 2048, 140))
    charge_code(budget, [seen], reading=seen, products=seen)
