"""The lab's time model against times worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch

from assignment.provided.lab.chips import CHIPS
from assignment.provided.lab.kernel import GPU, GPUS, Launch, Traffic, lab, predict
from assignment.provided.lab.kernel.gpus import NoRate
from tests.staff import lab_kernels as kernels
from tests.staff.time_kernels import group_scores

# Round numbers: 4 multiprocessors of 64 bytes a nanosecond, 100 bytes a nanosecond of memory.
CHIP = CHIPS["H100"].__class__("a chip", flops_per_second=4000e9, bandwidth=100e9, memory=1e9)
SMALL = GPU(
    CHIP, "sm_90", multiprocessors=4, clock=1e9, int8_ops_per_second=8000e9,
    fp32_flops_per_second=400e9, bytes_per_clock=64,
)  # fmt: skip
NANO = 1e-9


def launch(programs, sectors=0, grid=None):
    """Of programs (bytes, fp16 dot FLOPs, other FLOPs), the grid's last axis running fastest."""
    moved, dot, vector = zip(*programs, strict=True)
    made = Launch("made", grid or (len(programs), 1, 1), {}, 4)
    made.loaded = {"x": Traffic(sectors=sectors)}
    made.dot_flops, made.vector_flops = {"fp16": sum(dot)}, sum(vector)
    made.program_bytes = list(moved)
    made.program_flops = [a + b for a, b in zip(dot, vector, strict=True)]
    made.program_dot_flops = {"fp16": list(dot)}
    return made


def seen_of(kernel, grid, *args, **constants):
    with lab() as seen:
        kernel[grid](*args, **constants)
    return seen.launches


def halves(*shape):
    return torch.randn(*shape).half()


class TestParts:
    def test_memory_moves_whole_sectors_at_the_bandwidth(self):
        made = launch([(3200, 0, 0)] * 4, sectors=500)
        made.stored = {"out": Traffic(sectors=125), "other": Traffic(sectors=375)}
        found = predict([made], SMALL)
        assert found.bytes == 32 * 1000
        assert found.memory == found.seconds == pytest.approx(32_000 / 100 * NANO)
        assert found.limit == "memory"

    def test_arithmetic_is_products_and_then_the_rest(self):
        found = predict([launch([(0, 40_000, 1000)] * 4)], SMALL)
        # 160,000 FLOPs at 4000 a nanosecond, and 4000 at 400.
        assert found.arithmetic == pytest.approx((40 + 10) * NANO)
        assert found.seconds == pytest.approx(found.busiest) == pytest.approx(50 * NANO)

    def test_a_program_moves_bytes_while_it_computes(self):
        # 640 bytes take 10 ns; 5000 FLOPs at a quarter of 4000 a nanosecond take 5, then 20.
        assert predict([launch([(640, 5000, 0)])], SMALL).busiest == pytest.approx(10 * NANO)
        assert predict([launch([(640, 20_000, 0)])], SMALL).busiest == pytest.approx(20 * NANO)

    def test_launches_wait_for_each_other(self):
        short, long = launch([(640, 0, 0)], sectors=10), launch([(0, 90_000, 0)], sectors=10)
        found = predict([short, long, short], SMALL)
        assert found.seconds == pytest.approx((10 + 90 + 10) * NANO)
        assert found.limit == "multiprocessor" and [p.limit for p in found.launches] == (
            ["multiprocessor"] * 3
        )
        assert found.memory == pytest.approx(3 * 3.2 * NANO) and found.bytes == 3 * 320

    def test_the_limit_is_that_of_the_longest_launch(self):
        many, one = launch([(64, 0, 0)] * 8, sectors=1000), launch([(64, 0, 0)])
        assert [predict([made], SMALL).limit for made in (many, one)] == [
            "memory",
            "multiprocessor",
        ]
        assert predict([many, one], SMALL).limit == predict([one, many], SMALL).limit == "memory"

    def test_nothing_takes_no_time(self):
        assert predict([], SMALL).seconds == 0
        assert predict([launch([(0, 0, 0)])], SMALL).seconds == 0


class TestMultiprocessors:
    def test_one_giant_program_is_slow(self):
        one = predict([launch([(64_000, 0, 0)], sectors=2000)], SMALL)
        many = predict([launch([(640, 0, 0)] * 100, sectors=2000)], SMALL)
        assert one.seconds == pytest.approx(1000 * NANO) and one.limit == "multiprocessor"
        assert many.seconds == many.memory == pytest.approx(640 * NANO)

    def test_one_program_more_than_multiprocessors_takes_twice_as_long(self):
        H100 = GPUS["H100"]
        full, more = (predict([launch([(0, 10**9, 0)] * n)], H100) for n in (132, 133))
        assert full.busiest == pytest.approx(full.arithmetic)
        assert more.seconds == pytest.approx(2 * full.seconds)
        assert more.arithmetic == pytest.approx(133 / 132 * full.arithmetic)

    def test_the_free_one_takes_the_next_program(self):
        # 8, 1, 1, 1 and then 4: the last goes to one of those that are done after 1.
        programs = [(64 * n, 0, 0) for n in (8, 1, 1, 1, 4)]
        assert predict([launch(programs)], SMALL).busiest == pytest.approx(8 * NANO)
        # The longest last: 1, 1, 1, 4, and 8 upon one of the ones.
        programs = [(64 * n, 0, 0) for n in (1, 1, 1, 4, 8)]
        assert predict([launch(programs)], SMALL).busiest == pytest.approx(9 * NANO)

    def test_the_first_axis_is_dealt_first(self):
        # (x, y): two long programs at x = 1. In order of x, y they come second and fourth …
        by_x = {(0, 0): 1, (1, 0): 8, (2, 0): 1, (0, 1): 1, (1, 1): 8, (2, 1): 1}
        listed = [(64 * by_x[x, y], 0, 0) for x in range(3) for y in range(2)]
        # … at once on the four: 1 8 1 1, then 8 on top of a 1.
        made = launch(listed, grid=(3, 2, 1))
        assert predict([made], SMALL).busiest == pytest.approx(9 * NANO)
        # Dealt in the order of the list, 1 1 8 8, all would end at 8.
        flat = launch(listed)
        assert predict([flat], SMALL).busiest == pytest.approx(8 * NANO)

    def test_three_axes_are_all_dealt(self):
        programs = [(64 * (1 + n), 0, 0) for n in range(24)]
        with_axes = predict([launch(programs, grid=(2, 3, 4))], SMALL).busiest
        assert with_axes >= sum(range(1, 25)) / 4 * NANO


class TestRates:
    def test_int8_is_twice_as_fast_as_16_bits(self):
        def product(dtype):
            made = launch([(0, 10**9, 0)] * 132)
            made.dot_flops = {dtype: made.dot_flops["fp16"]}
            made.program_dot_flops = {dtype: made.program_dot_flops["fp16"]}
            return made

        for gpu in GPUS.values():
            times = {
                dtype: predict([product(dtype)], gpu).arithmetic
                for dtype in ("int8", "fp16", "fp32")
            }
            assert times["fp16"] == pytest.approx(2 * times["int8"], rel=0.01)
            assert times["fp32"] > 3 * times["fp16"]

    def test_what_tensor_cores_do_not_know(self):
        with pytest.raises(NoRate, match="T4: no rate is known for tl.dot of bf16"):
            GPUS["T4"].dot_rate("bf16")
        with pytest.raises(NoRate, match="fp64"):
            GPUS["H100"].dot_rate("fp64")
        assert GPUS["H100"].dot_rate("bf16") == 989e12

    def test_tf32_is_half_as_fast_as_16_bits_and_a_t4_has_none(self):
        printed = [156e12, 989e12 / 2, 989e12 / 2, 120e12 / 2, 8.1e12]  # the last: of FP32 cores
        for gpu, rate in zip(GPUS.values(), printed, strict=True):
            assert gpu.dot_rate("tf32") == pytest.approx(rate, rel=0.01)

    @pytest.mark.parametrize("name", GPUS)
    def test_rates_are_a_whole_number_of_flops_a_clock(self, name):
        """As they must be: 2 for each FP32 core, and a power of two for the tensor cores."""
        gpu = GPUS[name]
        clocks = gpu.clock * gpu.multiprocessors
        cores = {"A100": 64, "H100": 128, "H200": 128, "L4": 128, "T4": 64}[name]
        # An H100's FP32 cores run at 1.98 GHz, when the tensor cores are still.
        faster = 1.98 / 1.83 if name in ("H100", "H200") else 1
        assert gpu.fp32_flops_per_second / clocks == pytest.approx(2 * cores * faster, rel=0.01)
        tensor = gpu.chip.flops_per_second / clocks
        assert tensor == pytest.approx(2 ** round(math.log2(tensor)), rel=0.03)
        assert gpu.chip is CHIPS[name] and gpu.int8_ops_per_second == pytest.approx(
            2 * gpu.chip.flops_per_second, rel=0.01
        )


class TestKernels:
    """What the lab sees of a kernel is what the model needs."""

    def test_a_copy_runs_at_the_bandwidth(self):
        x = halves(2**16)
        (seen,) = launches = seen_of(kernels.copy, (256,), x, torch.empty_like(x), 2**16, TILE=256)
        found = predict(launches, SMALL)
        assert found.memory == found.seconds == pytest.approx(2 * 2**17 / 100 * NANO)
        assert found.busiest == pytest.approx(64 * 1024 / 64 * NANO) and not seen.dot_flops

    def test_a_tile_padded_to_16_rows_counts_its_padding(self):
        rows, columns, inner = 4, 32, 64
        launches = seen_of(
            kernels.matmul, (1, 1), halves(rows, inner), halves(inner, columns),
            torch.empty(rows, columns), rows, columns, inner, TM=16, TN=32, TK=32,
        )  # fmt: skip
        padded = 2 * 16 * columns * inner
        assert launches[0].program_dot_flops == {"fp16": [padded]}
        vector = launches[0].vector_flops
        assert vector == 2 * 16 * columns  # total += …, in each of two steps
        found = predict(launches, SMALL)
        assert found.arithmetic == pytest.approx((padded / 4000 + vector / 400) * NANO)

    def test_products_are_booked_to_their_program(self):
        a, b, out = halves(32, 48), halves(48, 64), torch.empty(32, 64)
        (seen,) = seen_of(kernels.matmul, (2, 2), a, b, out, 32, 64, 48, TM=16, TN=32, TK=16)
        each = 2 * 16 * 32 * 48
        assert seen.program_dot_flops == {"fp16": [each] * 4}
        assert seen.dot_flops == {"fp16": 4 * each}
        assert seen.program_flops == [each + 3 * 16 * 32] * 4

    def test_strided_reads_pay_for_whole_sectors(self):
        x, out = torch.randn(2048), torch.empty(256)
        index = torch.arange(0, 2048, 8, dtype=torch.int32)
        launches = seen_of(kernels.gather, (4,), x, index, out, 256, WIDTH=1, TILE=64)
        assert launches[0].loaded["x"].requested == 1024
        found = predict(launches, SMALL)
        assert found.bytes == 32 * 256 + 1024 + 1024  # a sector for each element, index, out


class TestRanking:
    """What the model is for: of two ways to read a cache of 8192 tokens, which is faster."""

    TOKENS, GROUP, WIDTH = 8192, 4, 64

    def predicted(self, members, splits):
        query, keys = halves(self.GROUP, self.WIDTH), halves(self.TOKENS, 1, self.WIDTH)
        launches = seen_of(
            group_scores, (self.GROUP // members, splits), query, keys,
            torch.zeros(splits, self.GROUP), self.TOKENS, MEMBERS=members, GROUP=self.GROUP,
            HEADS=self.GROUP, WIDTH=self.WIDTH, SPLITS=splits, TILE=128,
        )  # fmt: skip
        return predict(launches, GPUS["H100"])

    @property
    def ideal(self):
        return self.TOKENS * self.WIDTH * 2 / 3.35e12

    def test_a_split_decode_is_faster_than_one_program(self):
        whole, split = self.predicted(4, 1), self.predicted(4, 64)
        assert whole.limit == "multiprocessor" and split.limit == "memory"
        # One multiprocessor takes 32 bytes a clock.
        assert whole.seconds == pytest.approx(self.TOKENS * self.WIDTH * 2 / 32 / 1.83e9, rel=0.01)
        assert split.seconds < 1.1 * self.ideal < whole.seconds / 20

    def test_a_program_for_each_query_head_is_slower_by_the_group(self):
        shared, each = self.predicted(4, 64), self.predicted(1, 64)
        assert each.seconds / shared.seconds == pytest.approx(self.GROUP, rel=0.03)
        assert each.arithmetic > 3.9 * shared.arithmetic  # of 16 rows, 15 are padding
