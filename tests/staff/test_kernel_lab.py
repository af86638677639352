"""The kernel lab against numbers worked out by hand, and against torch."""

from __future__ import annotations

import pytest
import torch
import triton

from assignment.provided.lab.kernel import KernelFault, lab
from tests.staff import lab_kernels as kernels

SEEDS = range(3)


def launched(kernel, grid, *args, seed=0, **constants):
    with lab(seed) as seen:
        kernel[grid](*args, **constants)
    return seen.launches[-1]


def problems(launch):
    return [(problem.kind, problem.argument) for problem in launch.problems]


class TestBytes:
    def test_a_copy_moves_each_byte_once(self):
        x, out = torch.randn(100), torch.full((100,), torch.nan)
        launch = launched(kernels.copy, (2,), x, out, 100, TILE=64)
        assert torch.equal(out, x)
        for traffic in (launch.loaded["x"], launch.stored["out"]):
            assert (traffic.operations, traffic.requested, traffic.unique) == (2, 400, 400)
        assert launch.program_bytes == [512, 288] and launch.programs == 2
        assert not launch.problems

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
    def test_a_tiled_product_reads_its_inputs_once_for_each_tile(self, dtype):
        M, N, K, width = 40, 50, 36, torch.finfo(dtype).bits // 8
        a, b = torch.randn(M, K).to(dtype), torch.randn(K, N).to(dtype)
        out = torch.empty(M, N, dtype=torch.float32)
        tiles = {"TM": 16, "TN": 32, "TK": 16}
        launch = launched(kernels.matmul, (3, 2), a, b, out, M, N, K, **tiles)
        torch.testing.assert_close(out.double(), a.double() @ b.double(), rtol=1e-5, atol=1e-4)
        assert launch.loaded["a"].requested == 2 * M * K * width  # once for each of 2 tiles of N
        assert launch.loaded["b"].requested == 3 * K * N * width  # … of 3 tiles of M
        assert launch.loaded["a"].unique == M * K * width
        assert launch.stored["out"].requested == launch.stored["out"].unique == M * N * 4
        name = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}[dtype]
        assert launch.dot_flops == {name: 6 * 3 * 2 * 16 * 32 * 16}  # with the padding of tiles

    def test_a_gather_counts_a_row_that_comes_twice_in_one_tile_once(self):
        x, index = torch.randn(9, 16), torch.tensor([3, 3, 8, 0, 3, 1], dtype=torch.int32)
        out = torch.empty(6, 16)
        launch = launched(kernels.gather, (2,), x, index, out, 6, WIDTH=16, TILE=4)
        assert torch.equal(out, x[index])
        # Rows 3, 8, 0 in the first program, 3 and 1 in the second; and row 0 for what is masked off
        # is not read.
        assert launch.loaded["x"].requested == 5 * 64 and launch.loaded["x"].unique == 4 * 64

    def test_paged_reading_serves_a_group_with_one_load(self):
        block, heads, group, width = 8, 2, 4, 16
        lengths = torch.tensor([19, 8, 1], dtype=torch.int32)
        cache = torch.randn(12, block, heads, width)
        table = torch.randperm(12)[:9].view(3, 3).int()
        query, out = torch.randn(3, heads, group, width), torch.empty(3, heads, group)
        launch = launched(
            kernels.paged_scores, (3, heads), query, cache, table, lengths, out, 3,
            GROUP=group, KV_HEADS=heads, WIDTH=width, BLOCK=block, MOST=3,
        )  # fmt: skip
        for row, length in enumerate(lengths.tolist()):
            keys = cache[table[row].long()].flatten(0, 1)[:length]
            expected = torch.einsum("hgd,thd->hg", query[row], keys)
            torch.testing.assert_close(out[row], expected, rtol=1e-4, atol=1e-4)
        assert launch.loaded["cache"].requested == int(lengths.sum()) * heads * width * 4
        assert launch.loaded["table"].requested == heads * (3 + 1 + 1) * 4
        assert launch.loaded["table"].unique == (3 + 1 + 1) * 4

    def test_sectors_tell_what_is_moved_in_vain(self):
        x, index = torch.randn(64, 16).half(), torch.arange(0, 64, 2, dtype=torch.int32)
        launch = launched(
            kernels.gather, (1,), x, index, torch.empty(32, 16).half(), 32, WIDTH=16, TILE=32
        )
        assert launch.loaded["x"].sectors * 32 == launch.loaded["x"].requested  # rows of one sector
        x = torch.randn(64, 2)
        launch = launched(kernels.gather, (1,), x, index, torch.empty(32, 2), 32, WIDTH=2, TILE=32)
        assert launch.loaded["x"].sectors * 32 == 2 * launch.loaded["x"].requested

    def test_atomics_are_loads_and_stores_in_which_programs_may_meet(self):
        x, counts = torch.randint(0, 8, (100,), dtype=torch.int32), torch.zeros(8).int()
        launch = launched(kernels.histogram, (2,), x, counts, 100, TILE=64)
        assert torch.equal(counts, torch.bincount(x, minlength=8).int())
        assert launch.loaded["counts"].unique == launch.stored["counts"].unique == 32
        assert not launch.problems

    @pytest.mark.parametrize(
        "kernel", [kernels.plus_one_by_block_pointer, kernels.plus_one_by_descriptor]
    )
    def test_tiles_by_block_pointer_and_descriptor(self, kernel):
        x, out = torch.randn(20, 24), torch.empty(20, 24)
        launch = launched(kernel, (2,), x, out, 20, 24, TM=16, TN=32)
        assert torch.equal(out, x + 1) and not launch.problems
        assert launch.loaded["x"].requested == launch.stored["out"].unique == 20 * 24 * 4

    @pytest.mark.parametrize("wanted, elements", [(3, 5), (-1, 0)])
    def test_masks_of_integers_of_two_widths_are_masks(self, wanted, elements):
        x, out = torch.randn(8), torch.zeros(8)
        launch = launched(
            kernels.masked_by_two_widths, (1,), x, torch.tensor([wanted]), out, 5, TILE=8
        )
        assert torch.equal(out[:elements], x[:elements]) and not out[elements:].any()
        assert launch.bytes_stored == elements * 4

    def test_two_arguments_of_one_storage_are_told_apart(self):
        cache = torch.randn(2, 32)
        launch = launched(kernels.copy, (1,), cache[0], cache[1], 32, TILE=32)
        assert torch.equal(cache[0], cache[1])
        assert set(launch.loaded) == {"x"} and set(launch.stored) == {"out"}


class TestProblems:
    @pytest.mark.parametrize("by, offset, elements", [(-4, -16, 4), (3, 64, 3)])
    def test_a_load_beside_its_tensor_is_not_its_neighbours(self, by, offset, elements):
        memory = torch.randn(64)  # the neighbours are there, and are others
        launch = launched(kernels.shifted, (1,), memory[16:32], torch.empty(16), by, LENGTH=16)
        (problem,) = launch.problems
        assert (problem.kind, problem.argument) == ("load out of bounds", "x")
        assert (problem.offset, problem.elements, problem.program) == (offset, elements, (0, 0, 0))

    def test_a_store_beside_its_tensor_is_reported_and_not_done(self):
        x, memory = torch.ones(64), torch.zeros(64)
        launch = launched(kernels.copy, (1,), x, memory[:48], 64, TILE=64)
        assert problems(launch) == [("store out of bounds", "out")]
        assert memory.sum() == 48

    @pytest.mark.parametrize("seed", SEEDS)
    def test_what_one_program_writes_another_may_not_read(self, seed):
        x, out = torch.randn(4, 16), torch.empty(1)
        launch = launched(
            kernels.last_one_adds_up, (4,), x, torch.zeros(4), out, PROGRAMS=4, TILE=16, seed=seed
        )
        assert ("race", "partial") in problems(launch)

    @pytest.mark.parametrize("seed", SEEDS)
    def test_nor_overwrite_what_another_has_read(self, seed):
        x, out = torch.randn(3, 8), torch.empty(3, 8)
        launch = launched(kernels.read_then_overwritten, (3,), x, out, TILE=8, seed=seed)
        assert set(problems(launch)) == {("race", "x")}

    def test_two_programs_may_not_write_the_same(self):
        launch = launched(kernels.all_write_the_first, (3,), torch.zeros(1).int())
        assert set(problems(launch)) == {("race", "out")}

    def test_launches_wait_for_each_other(self):
        x, between, out = torch.randn(64), torch.empty(64), torch.empty(64)
        with lab() as seen:
            kernels.copy[(2,)](x, between, 64, TILE=32)
            kernels.copy[(1,)](between, out, 64, TILE=64)
        assert torch.equal(out, x) and not seen.launches[1].problems

    def test_memory_that_nobody_wrote(self):
        with lab() as seen:
            empty, out = torch.empty(64), torch.empty(64)
            kernels.copy[(1,)](torch.randn(48), empty, 48, TILE=64)
            kernels.copy[(1,)](empty, out, 64, TILE=64)
        (problem,) = seen.launches[1].problems
        assert (problem.kind, problem.argument) == ("unwritten read", "x")
        assert (problem.offset, problem.elements) == (48 * 4, 16)

    @pytest.mark.parametrize("fill", ["zero_", "torch.zeros"])
    def test_torch_may_have_written_it(self, fill):
        with lab() as seen:
            held = torch.zeros(8) if fill == "torch.zeros" else torch.empty(8).zero_()
            kernels.copy[(1,)](held, torch.empty(8), 8, TILE=8)
        assert not seen.launches[0].problems

    def test_what_is_masked_off_is_not_zero(self):
        out = torch.zeros(1)
        launched(kernels.without_other, (1,), torch.ones(8), out, LENGTH=5, TILE=8)
        assert out.isnan()

    def test_check_lists_them(self):
        with lab() as seen:
            kernels.copy[(1,)](torch.ones(4), torch.zeros(3), 4, TILE=4)
        expected = (
            r"copy: store out of bounds: program \(0, 0, 0\), argument 'out', byte 12, 1 element"
        )
        with pytest.raises(KernelFault, match=expected):
            seen.check()

    def test_a_pointer_from_nowhere(self):
        with pytest.raises(Exception, match="was not made from an argument"):
            launched(kernels.from_a_number, (1,), torch.zeros(1).data_ptr(), torch.zeros(1))


class TestBfloat16:
    def test_arithmetic_and_casts_are_torchs(self):
        n = 64
        x, y = torch.randn(n).bfloat16(), torch.randn(n).bfloat16()
        y[:4] = x[:4]
        wide = torch.randn(n)
        wide[:3] = torch.tensor([torch.nan, torch.inf, 1 + 2**-8])  # the last is a tie
        out, flags = torch.empty(10, n).bfloat16(), torch.empty(3, n).int()
        launched(kernels.arithmetic, (1,), x, y, wide, out, flags, LENGTH=n)
        expected = [
            x + y, x * y, x / y, -x, torch.where(x > y, x, y), wide.bfloat16(),
            torch.maximum(x, y), x.abs(), x * 2 + 1, (x.float() * 3).int().bfloat16(),
        ]  # fmt: skip
        for row, (got, right) in enumerate(zip(out, expected, strict=True)):
            torch.testing.assert_close(got, right, rtol=0, atol=0, equal_nan=True, msg=str(row))
        assert torch.equal(flags, torch.stack([x < y, x == y, x.int()]).int())

    def test_reductions_and_scans_sum_in_float32(self):
        x = torch.randn(256).bfloat16()
        out, position = torch.empty(3 + 256).bfloat16(), torch.empty(1).int()
        launched(kernels.reductions, (1,), x, out, position, LENGTH=256)
        exact = x.double()
        torch.testing.assert_close(out[0].double(), exact.sum(), rtol=2**-7, atol=1e-3)
        assert out[1] == x.max() and out[2] == x.min() and position == x.float().argmax()
        torch.testing.assert_close(out[3:].double(), exact.cumsum(0), rtol=2**-7, atol=1e-3)


class TestSession:
    def test_torch_work_of_the_launcher_is_counted(self):
        with lab() as seen:
            x = torch.ones(1000) * 2
            kernels.copy[(1,)](x, torch.empty(1000), 1000, TILE=1024)
        # The ones, and twice the ones; the kernel's own work is not torch's.
        assert (seen.cost.flops, seen.cost.bytes_written) == (1000, 8000)

    def test_programs_run_in_an_order_of_chance(self):
        orders = set()
        for seed in range(8):
            out = torch.zeros(1).int()
            launched(kernels.all_write_the_first, (5,), out, seed=seed)
            orders.add(int(out))
        assert len(orders) > 2

    def test_without_the_lab_a_launch_is_what_it_was(self):
        before = triton.runtime.jit.JITFunction.run
        with pytest.raises(ZeroDivisionError), lab():
            raise ZeroDivisionError
        assert triton.runtime.jit.JITFunction.run is before

    def test_a_grid_may_be_a_function_of_the_arguments(self):
        x, out = torch.randn(100), torch.empty(100)
        launch = launched(
            kernels.copy, lambda given: (triton.cdiv(given["length"], given["TILE"]),),
            x, out, 100, TILE=32,
        )  # fmt: skip
        assert launch.grid == (4, 1, 1) and torch.equal(out, x)

    def test_another_version_of_triton_is_refused(self, monkeypatch):
        monkeypatch.setattr(triton, "__version__", "3.9.0")
        with pytest.raises(RuntimeError, match=r"knows Triton 3\.6, 3\.7; this is 3\.9\.0"), lab():
            pass
