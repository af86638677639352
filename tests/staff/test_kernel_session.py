"""Launches as people write them: tuned kernels, grids that are functions, Python's own min."""

from __future__ import annotations

import subprocess
import sys

import torch
import triton
import triton.language as tl

from assignment.provided.lab.kernel import lab

LENGTH = 100


@triton.autotune([triton.Config({"TILE": 64}), triton.Config({"TILE": 128})], key=["length"])
@triton.jit
def tuned_copy(x, out, length, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    tl.store(out + at, tl.load(x + at, mask=at < length), mask=at < length)


@triton.jit
def copy(x, out, length, TILE: tl.constexpr):
    at = tl.program_id(0) * TILE + tl.arange(0, TILE)
    end = min(length, 10**6)
    tl.store(out + at, tl.load(x + at, mask=at < end), mask=at < end)


def test_a_kernel_that_would_be_tuned_runs_with_its_first_choice():
    x, out = torch.randn(LENGTH), torch.empty(LENGTH)
    with lab() as seen:
        tuned_copy[lambda chosen: (triton.cdiv(LENGTH, chosen["TILE"]),)](x, out, LENGTH)
    seen.check()
    assert torch.equal(out, x) and [launch.grid for launch in seen.launches] == [(2, 1, 1)]


def test_what_a_grid_does_in_torch_is_counted():
    x, out = torch.randn(LENGTH), torch.empty(LENGTH)

    def grid(_):
        (x + 1).sum()
        return (1,)

    with lab() as seen:
        copy[grid](x, out, LENGTH, TILE=128)
    assert seen.cost.bytes >= 3 * 4 * LENGTH


COMPILED_AFTER_A_RUN = """
import torch
from assignment.provided.lab.kernel import lab
from tests.staff.test_kernel_session import copy
x = torch.randn(100)
with lab() as seen:
    copy[(1,)](x, torch.empty(100), 100, TILE=128)
    print([made.spilled for made in seen.compiled("sm_90")])
"""


def test_pythons_min_compiles_after_the_lab_has_run():
    """In a process of its own: the compiler keeps what `tl` had when it was first imported."""
    done = subprocess.run(
        [sys.executable, "-c", COMPILED_AFTER_A_RUN], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "[0]", done.stderr
