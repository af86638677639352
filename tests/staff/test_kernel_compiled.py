"""What the compiler makes of a launch: against numbers worked out by hand, and against Triton's own
way to a GPU's code."""

from __future__ import annotations

import re
import subprocess

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from assignment.provided.lab.kernel import lab, machine_code
from assignment.provided.lab.kernel.call import Call
from assignment.provided.lab.kernel.compiled import (
    ARCHITECTURES,
    SM80,
    SM90,
    DoesNotCompile,
    compile_launch,
    read,
)
from assignment.provided.lab.kernel.machine_code import MachineCode, ToolFailed, assembled
from assignment.provided.lab.kernel.ptx import Ptx, ptx_of
from assignment.provided.lab.kernel.session import bound
from tests.grading.kernels.description import describe
from tests.grading.kernels.rebuild import rebuild
from tests.staff import lab_kernels as kernels

GLOBAL = 3.0


@triton.jit
def store_a_constant(out, VALUE: tl.constexpr):
    tl.store(out, VALUE)


@triton.jit
def adds_a_global(x):
    tl.store(x, tl.load(x) + GLOBAL)


TILES = {"TM": 64, "TN": 64, "TK": 32}


def product(dtype=torch.float16, **options):
    """(args, kwargs) of a launch of `kernels.matmul`."""
    a, b, out = torch.zeros(64, 64).to(dtype), torch.zeros(64, 64).to(dtype), torch.zeros(64, 64)
    return (a, b, out, 64, 64, 64), TILES | options


def copied(x, out, length=4096, tile=1024):
    return compile_launch(kernels.copy, (x, out, length), {"TILE": tile})


class TestCode:
    @pytest.mark.parametrize("architecture", ARCHITECTURES.values(), ids=list(ARCHITECTURES))
    def test_it_is_what_triton_makes_for_a_gpu(self, architecture, tmp_path, monkeypatch):
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        args, constants = product()
        got = compile_launch(kernels.matmul, args, constants, architecture)
        kernel = kernels.matmul
        types = ["*fp16", "*fp16", "*fp32", "i32", "i32", "i32", *["constexpr"] * 3]
        source = ASTSource(
            kernel,
            dict(zip(kernel.arg_names, types, strict=True)),
            constants,
            {(place,): [["tt.divisibility", 16]] for place in range(6)},
        )
        capability = int(architecture.name.removeprefix("sm_"))
        triton.compile(source, target=GPUTarget("cuda", capability, 32))
        (cubin,) = tmp_path.rglob("*.cubin")
        tool = machine_code.TOOLS / "cuobjdump"
        told = subprocess.run([tool, "-res-usage", cubin], capture_output=True, text=True).stdout
        assert got.registers == int(re.search(r"REG:(\d+)", told)[1])
        assert (got.kernel, got.architecture) == ("matmul", architecture.name)

    def test_products_reach_the_tensor_cores_and_sums_do_not(self):
        args, constants = product()
        assert compile_launch(kernels.matmul, args, constants).tensor_core > 0
        x = torch.zeros(4096)
        assert copied(x, torch.zeros(4096)).tensor_core == 0

    def test_wide_loads_need_addresses_and_lengths_that_16_divides(self):
        memory, out = torch.zeros(8192), torch.zeros(8192)
        wide = copied(memory[4:4100], out)
        assert wide.loads == wide.wide_loads == 2  # 1024 floats by 128 threads, 4 at a time
        assert copied(memory[1:4097], out).wide_loads == 0
        assert copied(memory, out, length=4095).wide_loads == 0

    def test_an_address_is_where_a_storage_of_a_gpu_has_it(self):
        raw = torch.frombuffer(bytearray(4 * 4096 + 8), dtype=torch.uint8)
        assert copied(raw[:-8].view(torch.float32), torch.zeros(4096)).wide_loads == 2

    def test_a_tile_that_a_gpu_cannot_hold(self):
        args, constants = product(num_stages=2)
        small = compile_launch(kernels.matmul, args, constants)
        assert small.spilled == 0 and small.programs_at_once > 0
        # 64 · 256 sums of 32 bits for 32 threads: 512 registers each, of 255.
        spilling = compile_launch(kernels.matmul, args, constants | {"TN": 256, "num_warps": 1})
        assert spilling.spilled > 0
        # Eight pairs of tiles of 64 · 128 elements on their way.
        large = compile_launch(kernels.matmul, args, constants | {"TK": 128, "num_stages": 9})
        assert large.shared >= 8 * 2 * 64 * 128 * 2 > SM90.shared_memory_of_a_program
        assert large.programs_at_once == 0

    def test_warps_are_the_launchs(self):
        args, constants = product(num_warps=8)
        assert compile_launch(kernels.matmul, args, constants).programs_at_once <= 64 // 8

    @pytest.mark.parametrize(
        "registers, shared, warps, expected",
        [
            (128, 0, 4, 4),  # 65,536 / (128 · 32 · 4)
            (129, 0, 4, 3),  # which takes 136 registers a thread
            (16, 100 * 1024, 4, 2),  # 228 / 101
            (16, 227 * 1024, 4, 1),
            (16, 227 * 1024 + 1, 4, 0),
            (16, 0, 8, 8),  # 64 warps
            (16, 0, 1, 32),  # 32 programs
        ],
    )
    def test_how_many_programs_fit(self, registers, shared, warps, expected, monkeypatch):
        code = MachineCode(registers, 0, {})
        monkeypatch.setattr("assignment.provided.lab.kernel.compiled.assembled", lambda *_: code)
        assert read(Ptx("it", "", shared, warps), SM90).programs_at_once == expected

    def test_a_lab_gives_it_for_each_launch_in_order(self):
        x, out = torch.zeros(64, 64).half(), torch.zeros(64, 64)
        with lab() as seen:
            kernels.matmul[(1, 1)](x, x, out, 64, 64, 64, **TILES)
            kernels.copy[(1,)](out, torch.empty(64), 64, TILE=64)
        first, second = seen.compiled("sm_80")
        assert (first.kernel, second.kernel) == ("matmul", "copy")
        assert first == compile_launch(kernels.matmul, *product(), SM80)


class TestPtx:
    def call(self, **options):
        args, kwargs = product(**options)
        return Call.of(kernels.matmul, *bound(kernels.matmul, args, kwargs))

    def test_no_program_is_started_and_nothing_is_written(self, tmp_path, monkeypatch):
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        monkeypatch.setattr(subprocess.Popen, "__init__", None)
        assert "wgmma" in ptx_of(self.call(num_stages=2), "sm_90").text
        assert not list(tmp_path.iterdir())

    def test_the_same_kernel_from_elsewhere_is_not_translated_again(self):
        one, other = (
            Call.of(rebuild(describe(kernels.matmul)), self.call().named, {}) for _ in range(2)
        )
        first = ptx_of(one, "sm_90")
        assert one.kernel is not other.kernel and ptx_of(other, "sm_90") is first
        assert ptx_of(other, "sm_80") is not first
        assert ptx_of(self.call(num_warps=8), "sm_90").num_warps == 8

    def test_a_constant_is_not_another_that_looks_alike(self):
        out = torch.zeros(1)
        texts = set()
        for value in (True, 1, 2, 1.5, "1.5"):
            named = {"out": out, "VALUE": value}
            texts.add(id(_translated(store_a_constant, named)))
        assert len(texts) == 5

    def test_what_only_the_interpreter_takes(self):
        x = torch.zeros(4)
        with lab() as seen:
            adds_a_global[(1,)](x)
        assert x[0] == GLOBAL
        with pytest.raises(
            DoesNotCompile, match="adds_a_global for sm_80: .*global variable GLOBAL"
        ):
            seen.compiled("sm_80")


def _translated(kernel, named):
    try:
        return ptx_of(Call.of(kernel, named, {}), "sm_90")
    except DoesNotCompile as error:
        return error


class TestAssembler:
    PTX = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry it()\n{ ret; }\n"

    def test_it_is_asked_once(self, monkeypatch):
        first = assembled(self.PTX, "sm_90")
        monkeypatch.setattr(machine_code, "TOOLS", None)
        assert assembled(self.PTX, "sm_90") is first and first.spilled == 0

    def test_what_is_no_ptx(self):
        with pytest.raises(ToolFailed, match="ptxas: .*error"):
            assembled(self.PTX + "}", "sm_90")
        with pytest.raises(DoesNotCompile, match="it for sm_80: ptxas: "):
            read(Ptx("it", "// nothing", 0, 4), SM80)

    def test_it_has_limits_and_no_environment(self, tmp_path, monkeypatch):
        script = """#!/bin/sh
            while [ "$(ulimit -c)" != 0 ]; do :; done
            echo "error: $(ulimit -t) $(ulimit -v) [$GRADING_SECRET] $(/bin/ls)"; exit 1"""
        self.use(tmp_path, monkeypatch, script)
        monkeypatch.setenv("GRADING_SECRET", "s")
        with pytest.raises(ToolFailed, match=r"error: 60 4194304 \[\] kernel.ptx$"):
            assembled(self.PTX + "// limits", "sm_90")

    def test_it_is_not_waited_for_without_end(self, tmp_path, monkeypatch):
        self.use(tmp_path, monkeypatch, "#!/bin/sh\n/bin/sleep 600 & /bin/sleep 600")
        monkeypatch.setattr(machine_code, "SECONDS", 0.1)
        with pytest.raises(ToolFailed, match=r"ptxas needs more than 0.1 seconds"):
            assembled(self.PTX + "// endless", "sm_90")

    def use(self, folder, monkeypatch, script):
        (folder / "ptxas").write_text(script)
        (folder / "ptxas").chmod(0o755)
        monkeypatch.setattr(machine_code, "TOOLS", folder)
