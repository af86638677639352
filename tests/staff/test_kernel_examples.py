"""The worked examples compute what they say, and move what their words say."""

from __future__ import annotations

import pytest
import torch
from triton.runtime.jit import JITFunction

from assignment.provided.lab.kernel import KernelFault, Traffic, examples, lab
from tests.grading.kernels.description import describe
from tests.grading.kernels.rebuild import rebuild

LENGTHS = [1, 255, 256, 257, 4000]
SHAPES = [(1, 1), (5, 64), (3, 65), (7, 1000)]


def in_lab(function, *arguments):
    with lab() as seen:
        value = function(*arguments)
    return value, seen


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("function", [examples.add, examples.add_interleaved])
def test_sums_are_right(function, length):
    x, y = torch.randn(length), torch.randn(length)
    total, seen = in_lab(function, x, y)
    seen.check()
    assert torch.equal(total, x + y)


def test_the_docstrings_figures_of_a_sum():
    _, seen = in_lab(examples.add, torch.randn(4000), torch.randn(4000))
    (launch,) = seen.launches
    assert launch.programs == 16
    assert launch.loaded["x"] == Traffic(
        operations=16, requested=16_000, unique=16_000, sectors=500
    )
    assert (
        "requested=16000," in examples.__doc__ and "unique=16000, sectors=500" in examples.__doc__
    )


def test_interleaved_moves_whole_sectors_for_one_element():
    _, seen = in_lab(examples.add_interleaved, torch.randn(4096), torch.randn(4096))
    (launch,) = seen.launches
    for traffic in (launch.loaded["x"], launch.loaded["y"], launch.stored["out"]):
        assert traffic.requested == traffic.unique == 4096 * 4
        assert traffic.sectors * 32 == 8 * traffic.requested


def test_without_a_mask_the_last_tile_is_a_fault():
    _, seen = in_lab(examples.add_without_mask, torch.randn(4000), torch.randn(4000))
    with pytest.raises(
        KernelFault, match=r"load out of bounds: program \(15, 0, 0\), argument 'x'"
    ):
        seen.check()
    _, seen = in_lab(examples.add_without_mask, torch.randn(4096), torch.randn(4096))
    seen.check()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("function", [examples.softmax, examples.softmax_in_three])
def test_softmaxes_are_right(function, shape):
    x = torch.randn(shape) * 3 + 200  # exp of which overflows
    out, seen = in_lab(function, x)
    seen.check()
    torch.testing.assert_close(out, x.double().softmax(1).float(), rtol=1e-5, atol=1e-7)


def test_fused_moves_two_matrices_and_three_launches_move_five():
    x = torch.randn(6, 640)
    matrix, column = x.numel() * 4, 6 * 4

    def moved(function):
        launches = in_lab(function, x)[1].launches
        return sum(launch.bytes_loaded + launch.bytes_stored for launch in launches)

    assert moved(examples.softmax) == 2 * matrix
    assert moved(examples.softmax_in_three) == 5 * matrix + 4 * column


def test_official_grading_would_take_their_kernels():
    kernels = [value for value in vars(examples).values() if isinstance(value, JITFunction)]
    assert len(kernels) == 7
    for kernel in kernels:
        rebuild(describe(kernel))
