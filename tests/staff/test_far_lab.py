"""Official grading of kernels: launches run elsewhere, and what they did is told by nobody else."""

from __future__ import annotations

import contextlib

import pytest
import torch

from assignment.provided.lab.kernel import KernelFault
from tests.grading.errors import SubmissionError
from tests.grading.kernels.boundary import in_lab
from tests.grading.transport import proxy
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
    yield lambda name, *args: in_lab(Name("unit.thing", name), *args)
    proxy.end()


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
    with pytest.raises(KernelFault, match="load out of bounds: program .*, argument 'x', byte 400"):
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


def test_the_same_call_in_one_process():
    seen = in_lab(lambda x: x * 2, torch.randn(10))
    assert seen.cost.flops == 10 and not seen.launches
