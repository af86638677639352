"""kernels.int8_matmul: 8 bits for most of the activation, 16 for its outlier columns."""

from __future__ import annotations

import pytest
import torch

from submission.kernels.int8_matmul import int8_matmul
from tests.grading.closeness import assert_equal
from tests.grading.kernels.boundary import Seen, in_lab
from tests.kernels.int8_inputs import (
    Case,
    around_the_threshold,
    codes_of,
    draw_case,
    least_bytes,
    scales_of,
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
from tests.kernels.oracles_int8 import assert_product
from tests.kernels.rounding import tf32_is_told

ALL_DTYPES = pytest.mark.parametrize("dtype", DTYPES, ids=str)
SHAPES = [  # rows, inputs, outputs
    (1, 576, 40), (3, 33, 1), (2, 5, 7), (16, 128, 16), (17, 129, 33), (33, 40, 129), (70, 200, 50),
    (65, 64, 64), (1, 1, 3),
]  # fmt: skip


def check(draw, case: Case, seed: int | None = None, integer_bits: int = 32) -> Seen:
    """Programs run in an order of chance. Outputs are right, and arguments as they were."""
    before = [argument.clone() for argument in case.arguments[:3]]
    lab = {"seed": draw.seed() if seed is None else seed, "integer_bits": integer_bits}
    seen = in_lab(int8_matmul, *case.arguments, **lab)
    assert seen.launches, "no kernel was launched"
    with tf32_is_told(seen):
        assert_product(seen.value, case)
    for name, old, new in zip(("x", "codes", "scales"), before, seen.arguments, strict=False):
        if name == "codes":
            assert_equal(new, old, what="codes, afterwards")
        else:
            assert_equal(bits(new), bits(old), what=f"bits of {name}, afterwards")
    return seen


@pytest.mark.group("products")
class TestProducts:
    """Without outliers."""

    @ALL_DTYPES
    def test_dtypes(self, draw, dtype):
        check(draw, draw_case(draw, 5, 100, 50, dtype=dtype))

    @pytest.mark.parametrize("rows, inputs, outputs", SHAPES)
    def test_shapes(self, draw, rows, inputs, outputs):
        check(draw, draw_case(draw, rows, inputs, outputs))

    @pytest.mark.parametrize("rows, inputs, outputs", [(18, 72, 33), (1, 130, 17)])
    def test_shapes_in_float32(self, draw, rows, inputs, outputs):
        """Where a code that is one off shows."""
        check(draw, draw_case(draw, rows, inputs, outputs, dtype=torch.float32))

    def test_sums_are_exact(self, draw):
        """The largest codes of either sign: on the way the sums pass 2²⁴, beyond which float32 has
        no odd integers; what is left is small."""
        x = torch.full((3, 2600), 5.75)
        x[:, 1300:] *= -1
        x[1] *= -0.5
        x[2] /= 3
        codes = draw.integers(125, 128, 9, 2600).to(torch.int8)
        check(draw, Case(x, codes, scales_of(draw, 9)))

    @ALL_DTYPES
    def test_sums_beyond_float16(self, draw, dtype):
        """127² · I passes what float16 can hold at I = 5."""
        x = 5.9 - 0.3 * draw.uniform(3, 600)
        x[1] *= -0.1
        check(draw, Case(x.to(dtype), codes_of(draw, 6, 600) | 96, scales_of(draw, 6)))

    @ALL_DTYPES
    def test_rows_of_zeros(self, draw, dtype):
        case = draw_case(draw, 4, 70, 20, dtype=dtype)
        case.x[[0, 2]] = 0
        case.codes[3] = 0
        seen = check(draw, case)
        assert_equal(seen.value[[0, 2]], torch.zeros(2, 20), what="outputs of rows of zeros")
        check(draw, Case(torch.zeros(2, 70, dtype=dtype), case.codes, case.scales))

    @ALL_DTYPES
    def test_small_rows(self, draw, dtype):
        """Far above zero, for a float: they are scaled like any other."""
        case = draw_case(draw, 4, 70, 20, dtype=dtype)
        smaller = 2.0**-15 if dtype == torch.float16 else 1e-30
        case.x[:3] = (case.x[:3].double() * smaller).to(dtype)
        check(draw, Case(case.x, case.codes, case.scales * 1000))
        if dtype != torch.float16:  # whose rows may be as small as the smallest scale, almost
            tiny = (case.x.double() * 1e-6).to(dtype)
            check(draw, Case(tiny, case.codes, case.scales * 1000))

    def test_no_rows(self, draw):
        case = draw_case(draw, 1, 40, 9)
        seen = in_lab(int8_matmul, case.x[:0].clone(), case.codes, case.scales, 6.0)
        assert_equal(list(seen.value.shape), [0, 9], what="shape")
        assert_equal(seen.value.dtype, torch.float16, what="dtype")

    def test_places_beyond_what_int32_reaches(self, draw):
        """The lab's int32 has 16 bits here: x, codes and outputs of some 34,000 elements are as
        those of 2.2 · 10⁹. (Of small codes, so that the sums fit.)"""
        case = draw_case(draw, 184, 187, 186, columns=[77], most=1)
        check(draw, case, integer_bits=16)

    def test_any_order_of_programs(self, draw):
        case = draw_case(draw, 70, 140, 90, columns=[3])
        for seed in range(2):
            check(draw, case, seed)

    def test_kernels_do_the_work(self, draw):
        case = draw_case(draw, 20, 150, 70, columns=[3, 140])
        seen = check(draw, case)
        rows, inputs, outputs = case.sizes
        of_kernels = sum(sum(launch.program_flops) for launch in seen.launches)
        flops = 2 * rows * inputs * outputs
        assert of_kernels >= flops, f"kernels did {of_kernels:,} of {flops:,} FLOPs"
        once = case.x.numel() * case.x.element_size()
        assert seen.cost.bytes < once, (
            f"torch moved {seen.cost.bytes:,} bytes in the launcher, and x has {once:,}: it may "
            "allocate; to look for outliers, too, is a kernel's work"
        )


@pytest.mark.group("outliers")
class TestOutliers:
    @ALL_DTYPES
    @pytest.mark.parametrize(
        "columns", [[5], [0, 39, 11, 12, 15, 16], list(range(40))], ids=["one", "several", "all"]
    )
    def test_columns(self, draw, columns, dtype):
        check(draw, draw_case(draw, 6, 40, 25, columns=columns, dtype=dtype))

    @ALL_DTYPES
    def test_in_a_few_tiles(self, draw, dtype):
        check(draw, draw_case(draw, 19, 300, 50, columns=[0, 131, 299], dtype=dtype))

    @pytest.mark.parametrize("rows, inputs, outputs", SHAPES)
    def test_shapes(self, draw, rows, inputs, outputs):
        columns = sorted({inputs // 3, inputs - 1})
        check(draw, draw_case(draw, rows, inputs, outputs, columns=columns))

    @pytest.mark.parametrize("row", [0, 63, 64, 149], ids="row {}".format)
    def test_in_one_row_of_many(self, draw, row):
        """The column is an outlier for all others, too, whichever program has them."""
        case = draw_case(draw, 150, 50, 30, dtype=torch.float32)
        case.x[row, 17] = -8
        check(draw, case)

    @ALL_DTYPES
    def test_a_value_at_the_threshold(self, draw, dtype):
        """≥, and of both signs. What is just below stays in 8 bits."""
        case = draw_case(draw, 5, 60, 30, dtype=dtype)
        case.x[1, 7], case.x[4, 20], case.x[:, 33] = 6, -6, 5.75
        assert case.is_outlier().sum() == 2
        check(draw, case)

    @ALL_DTYPES
    @pytest.mark.parametrize("threshold", [6.0, 6.13])
    def test_the_numbers_next_to_the_threshold(self, draw, dtype, threshold):
        """The second one lies between two numbers of 16 bits, closer to that below."""
        case = around_the_threshold(draw, dtype, threshold)
        assert case.is_outlier().sum() == 2
        check(draw, case)

    @pytest.mark.parametrize("threshold", [0.0, 1.5, 25.0, torch.inf])
    def test_other_thresholds(self, draw, threshold):
        """From all columns to none, however large the values are."""
        columns = [2, 30, 49]
        options = {"columns": columns, "dtype": torch.float32, "threshold": threshold}
        check(draw, draw_case(draw, 6, 50, 30, **options))

    @ALL_DTYPES
    def test_nothing_is_left_for_8_bits(self, draw, dtype):
        """Of some rows, and of all."""
        case = draw_case(draw, 5, 60, 30, columns=[4, 50], dtype=dtype)
        case.x[[1, 3]] = 0
        case.x[3, 4] = -11
        check(draw, case)
        alone = torch.zeros_like(case.x)
        alone[:, [4, 50]] = 9
        check(draw, Case(alone, case.codes, case.scales))

    def test_large_outliers(self, draw):
        """A value times a code passes what float16 can hold; value times weight does not."""
        case = draw_case(draw, 5, 60, 30, columns=[4, 50])
        case.x[:, 4] = 1000 + 200 * draw.normal(5).half()
        check(draw, case)
        case = draw_case(draw, 5, 60, 30, columns=[4, 50], dtype=torch.bfloat16)
        case.x[:, 4] = (1e6 + 2e5 * draw.normal(5)).bfloat16()  # more than float16 holds
        check(draw, case)

    def test_a_batch_knows_nothing_of_the_one_before(self, draw):
        for columns in ([3, 20], [], [21]):
            check(draw, draw_case(draw, 4, 40, 25, columns=columns, dtype=torch.float32))


@pytest.mark.group("compiled")
class TestCompiled:
    @pytest.mark.parametrize("architecture", ARCHITECTURES)
    def test_every_launch_fits(self, draw, architecture):
        seen = check(draw, draw_case(draw, 70, 256, 128, columns=[9]))
        assert_fits(seen, architecture)
        assert_asks_nothing(seen)

    def test_float32_fits(self, draw):
        case = draw_case(draw, 5, 256, 128, columns=[9], dtype=torch.float32)
        assert_fits(check(draw, case), "sm_80")


@pytest.mark.cost("bytes")
class TestBytes:
    """All that kernels request and torch moves beside."""

    @pytest.mark.parametrize("rows, outputs", [(12, 8448), (100, 8448)], ids=["few", "many"])
    def test_bytes(self, draw, budget, rows, outputs):
        case = draw_case(draw, rows, 256, outputs, columns=[19, 200])
        seen = check(draw, case)
        once, tiles = 256 * outputs, -(-rows // 64)
        least = least_bytes(case)
        beside = {
            "codes read for each part": least + once * tiles,
            "a 16-bit copy of the weight first": least + once * (1 + 2 + tiles),
            "all of x in 16 bits, too": least + 2 * rows * 256 * -(-outputs // 128),
        }
        charge_bytes(budget, seen, least, beside)


@pytest.mark.cost("time")
class TestTime:
    """On an H100, as the lab predicts it. The ideal moves the least bytes at full bandwidth.

    Programs of one row and 128 outputs would be too few; so would one program that flags columns.
    """

    @pytest.mark.parametrize("rows, inputs, outputs", [(1, 384, 5120), (10, 512, 8448)])
    def test_predicted_time(self, draw, budget, rows, inputs, outputs):
        case = draw_case(draw, rows, inputs, outputs, columns=[19])
        seen = check(draw, case)
        least = least_bytes(case)
        shape = f"{rows} × {inputs} × {outputs:,}"
        of_128 = by_one_program(128 * inputs) * -(-outputs // 128 // H100.multiprocessors)
        beside = {
            f"{shape}: by 128 outputs a program": max(of_128, least / H100.bandwidth),
            f"{shape}: with a 16-bit copy first": (least + 4 * inputs * outputs) / H100.bandwidth,
        }
        flops = 2 * rows * inputs * outputs
        charge_time(budget, seen, least, flops=flops, beside=beside, dtype="int8")


@pytest.mark.cost("code")
class TestCode:
    """For an A100 and an H100."""

    def test_what_the_compiler_makes_of_it(self, draw, budget):
        """Registers that spill; products that do not reach the tensor cores."""
        few = check(draw, draw_case(draw, 16, 256, 8448, columns=[9]))
        many = check(draw, draw_case(draw, 70, 256, 128, columns=[9]))
        charge_code(budget, [few, many], products=few)

    def test_loads_and_products(self, draw, budget):
        """Of the launch that reads the most: no load moves 16 bytes a thread. Of all: products of
        codes in more than 8 bits, where they take twice as long."""
        case = draw_case(draw, 70, 256, 128, columns=[9])
        rows, inputs, outputs = case.sizes
        seen = check(draw, case)
        loaded = [launch.bytes_loaded for launch in seen.launches]
        reading = seen.compiled("sm_80")[loaded.index(max(loaded))]
        in_8_bits = sum(launch.dot_flops.get("int8", 0) for launch in seen.launches)
        found = {
            f"{reading.loads} loads, all narrow": reading.wide_loads == 0,
            "no 8-bit products": in_8_bits < 2 * rows * inputs * outputs,
        }
        faults = [told for told, is_there in found.items() if is_there]
        told = "; ".join(faults) or "narrow loads, products of more bits"
        budget(len(faults), 0, unit=f"fault{'' if len(faults) == 1 else 's'} ({told})")
