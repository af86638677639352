"""Official grading of kernels: launches run elsewhere, and what they did is told by nobody else."""

from __future__ import annotations

import contextlib
import subprocess
import sys

import pytest
import torch

from assignment.provided.lab.kernel import KernelFault
from assignment.provided.lab.kernel.ptx import DoesNotCompile
from tests.grading.errors import SubmissionError, SubmissionTimeout
from tests.grading.kernels import boundary
from tests.grading.kernels.boundary import in_lab
from tests.grading.submission import REPOSITORY
from tests.grading.transport import labs, proxy
from tests.grading.transport.forkserver import ForkServer
from tests.grading.transport.proxy import Name

SUBMISSION = """
import torch
import triton
import triton.language as tl

@triton.jit
def twice(x):
    return x * 2

@triton.jit
def double_kernel(x, out, length, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, twice(tl.load(x + at, mask=at < length)), mask=at < length)

def double(x):
    out = torch.empty_like(x)
    double_kernel[lambda given: (triton.cdiv(x.numel(), given["TILE"]),)](
        x, out, x.numel(), TILE=32, num_warps=2
    )
    return out

def double_twice(x):
    return double(double(x))

def double_in_place(x, rows):
    double_kernel[(1,)](x[rows], x[rows], x.shape[1], TILE=32)

def hiding(x, work):
    from assignment.provided.lab.counter import counting_suspended
    out = torch.zeros_like(x)
    with counting_suspended():
        made = x * 3 if work == "all" else x.clone()
    double_kernel[(-(-x.numel() // 1024),)](made, out, x.numel(), TILE=1024)
    if work == "after":
        with counting_suspended():
            out = out + 1
    return out

def beside(x):
    out = torch.empty(x.numel() + 8)
    double_kernel[(2,)](x, out, x.numel() + 8, TILE=64)
    return out

def in_torch(x):
    return x * 2

@triton.jit
def hidden_kernel(x):
    tl.store(x, x.handle)

def hidden(x):
    hidden_kernel[(1,)](x)
    return x

def many(x):
    double_kernel[(10**6,)](x, x, x.numel(), TILE=32)

def forged(x):
    from assignment.provided.lab.kernel.launch import Launch, Traffic
    Launch.bytes_loaded = Traffic.requested = 0
    return double(x)

def many_faults(x):
    double_kernel[(2000,)](x, x, 2**20, TILE=32)

@triton.jit
def endless_kernel(x):
    while tl.load(x) == 0:
        tl.store(x, 0)

def endless(x):
    endless_kernel[(1,)](x)

@triton.jit
def small_product(x):
    at = tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :]
    tl.store(x + at, tl.dot(tl.load(x + at), tl.load(x + at)))

def compiles_not(x):
    small_product[(1,)](x)

@triton.jit
def adds_pointers(x):
    at = 0
    tl.store(x, x + x)

def fails(x):
    adds_pointers[(1,)](x)

def product(x):
    out = torch.empty_like(x)
    double_kernel[(1,)](x, out, x.numel(), TILE=1024)
    double_kernel[(1,)](out, out[1:], x.numel() - 1, TILE=1024)
    return out

@triton.jit
def cast_kernel(x, out, DTYPE: tl.constexpr, TIMES: tl.constexpr):
    at = tl.arange(0, 4)
    tl.store(out + at, (tl.load(x + at) * TIMES).to(DTYPE))

def casts(x):
    out = torch.empty(4)
    cast_kernel[(1,)](x, out, tl.int32, tl.constexpr(2))
    return out

class Two(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__

def gives_an_object(x):
    cast_kernel[(1,)](x, x, tl.int32, Two(2))

def two_storages(x):
    both = torch.empty(2, x.numel())
    double_kernel[(2,)](x, both[0], x.numel(), TILE=64)
    double_kernel[(2,)](both[0], both[1], x.numel(), TILE=64)
    return both
"""


@pytest.fixture(scope="module")
def server():
    with contextlib.closing(ForkServer()) as server:
        folder = server.tree / "unit"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "thing.py").write_text(SUBMISSION)
        yield server


@pytest.fixture
def call(server):
    """call(name, *args) -> Seen, of a function of the submission."""
    proxy.begin(server, time_limit=60)
    yield call_of
    proxy.end()


def call_of(name, *args):
    return in_lab(Name("unit.thing", name), *args)


def test_values_and_counts(call):
    x = torch.randn(100)
    seen = call("double", x)
    assert torch.equal(seen.value, 2 * x)
    (launch,) = seen.launches
    assert (launch.kernel, launch.grid, launch.num_warps) == ("double_kernel", (4, 1, 1), 2)
    assert launch.constants == {"TILE": 32}
    assert launch.loaded["x"].requested == launch.stored["out"].unique == 400
    assert launch.program_bytes == [256, 256, 256, 32]


def test_launches_of_one_call_share_memory(call):
    x = torch.randn(64)
    seen = call("double_twice", x)
    assert torch.equal(seen.value, 4 * x) and len(seen.launches) == 2
    seen = call("two_storages", x)
    assert torch.equal(seen.value, torch.stack([2 * x, 4 * x]))


def test_arguments_come_back_as_they_are_then(call):
    x = torch.randn(3, 20)
    seen = call("double_in_place", x, 1)
    assert torch.equal(seen.arguments[0], x * torch.tensor([[1.0], [2.0], [1.0]]))
    assert set(seen.launches[0].stored) == {"out"}


def test_problems_are_told(call):
    with pytest.raises(
        KernelFault, match="load out of bounds: program .*, argument 'x', byte 400, .* at x.100. of"
    ):
        call("beside", torch.randn(100))


def test_work_of_torch_is_no_launch(call):
    seen = call("in_torch", torch.randn(100))
    assert not seen.launches and seen.cost.flops == 100


def test_what_is_not_of_the_language_does_not_run(call):
    with pytest.raises(SubmissionError, match="may not use the attribute 'handle'"):
        call("hidden", torch.randn(4))


def test_a_grid_without_end(call):
    with pytest.raises(SubmissionError, match="at most 4096 programs"):
        call("many", torch.randn(4))


def test_counts_are_not_the_submissions(call):
    seen = call("forged", torch.randn(64))
    assert seen.launches[0].bytes_loaded == 256


@pytest.mark.parametrize("work, hidden", [("none", 0), ("all", 1), ("after", 1)])
def test_torchs_work_is_seen_by_what_comes_in(call, work, hidden):
    """Whatever the submission's side says: bytes that neither test nor kernel wrote."""
    x = torch.randn(3000)
    seen = call("hiding", x, work)
    zeros = x.nbytes  # the empty result, which is counted on both sides
    assert seen.cost.bytes_written == zeros + hidden * x.nbytes


def test_the_same_call_in_one_process():
    seen = in_lab(lambda x: x * 2, torch.randn(10))
    assert seen.cost.flops == 10 and not seen.launches


def test_an_error_in_a_kernel_has_its_line(call):
    with pytest.raises(
        SubmissionError, match=r"adds_pointers, line 3: TypeError: cannot add pointers"
    ):
        call("fails", torch.randn(4))


def test_dtypes_and_constants_of_triton_cross(call):
    assert call("casts", torch.full((4,), 1.7)).value.tolist() == [3, 3, 3, 3]


def test_objects_do_not(call):
    with pytest.raises(SubmissionError, match="neither tensor nor number"):
        call("gives_an_object", torch.ones(4))


class TestCompiled:
    def test_as_in_one_process(self, call, server):
        x = torch.randn(1024)
        namespace = {"__name__": "thing"}
        file = server.tree / "unit" / "thing.py"
        exec(compile(SUBMISSION, file, "exec"), namespace)
        far, near = call("product", x), in_lab(namespace["product"], x)
        for architecture in ("sm_80", "sm_90"):
            assert far.compiled(architecture) == near.compiled(architecture)
        aligned, shifted = far.compiled()
        assert aligned.kernel == shifted.kernel == "double_kernel"
        assert aligned.wide_loads == 2 and aligned.registers > 0

    def test_of_an_earlier_call(self, call):
        seen = call("double", torch.randn(100))
        call("two_storages", torch.randn(32))
        assert len(seen.compiled()) == 1
        assert len(call("in_torch", torch.randn(4)).compiled()) == 0

    def test_what_does_not_compile(self, call):
        seen = call("compiles_not", torch.zeros(64))
        with pytest.raises(DoesNotCompile, match="small_product for sm_90: .* K >= 16"):
            seen.compiled()


class TestOneLabForAll:
    def test_it_is_the_same_child_in_the_next_test(self, server):
        first, second = self.number_after(server, "double"), self.number_after(server, "double")
        assert first == second

    def test_but_not_after_an_error(self, server):
        first = self.number_after(server, "many", error="at most 4096 programs")
        assert self.number_after(server, "double") != first

    def test_nor_for_another_module(self, server):
        """It would only grow: no two of them launch the same kernels."""
        of_one = [self.number_after(server, "double", module="kernels.one") for _ in range(2)]
        assert of_one[0] == of_one[1]
        assert self.number_after(server, "double", module="kernels.other") != of_one[0]

    def number_after(self, server, name, error=None, module=""):
        """Of the child that ran what this function launched, in a test of its own."""
        proxy.begin(server, time_limit=60, module=module)
        with pytest.raises(SubmissionError, match=error) if error else contextlib.nullcontext():
            call_of(name, torch.randn(100))
        number = labs.lab()._child.number
        proxy.end()
        return number

    def test_one_that_dies_fails_a_test_and_no_more(self, server):
        proxy.begin(server, time_limit=60)
        call_of("double", torch.randn(4))
        server._ask({"end": labs.lab()._child.number})
        with pytest.raises(SubmissionError, match="a kernel's process ended in the middle"):
            call_of("double", torch.randn(4))
        proxy.end()
        proxy.begin(server, time_limit=60)
        assert call_of("double", torch.ones(4)).value.sum() == 8
        proxy.end()

    def test_a_kernel_that_never_ends(self, server):
        proxy.begin(server, time_limit=3)
        with pytest.raises(SubmissionTimeout, match="a kernel did not finish in time"):
            call_of("endless", torch.zeros(1))
        proxy.end()


def test_faults_without_number(call):
    with pytest.raises(KernelFault, match="and 499 more such"):
        call("many_faults", torch.randn(32))


def test_without_triton_it_says_so(monkeypatch):
    monkeypatch.setattr(boundary, "triton", None)
    with pytest.raises(SubmissionError, match="needs Triton, which exists for Linux only"):
        in_lab(torch.neg, torch.randn(4))


def test_everything_loads_without_triton():
    """As on macOS: tests of kernels load there, and fail with one clear line each."""
    code = """
import sys
sys.modules["triton"] = None
import tests.grading.kernels.boundary
from assignment.provided.lab.kernel import *
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
