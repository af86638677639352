"""What the lab refuses while a kernel runs, and before: in words, at the kernel's own line."""

from __future__ import annotations

import traceback
import warnings

import pytest
import torch
import triton
import triton.language as tl

from assignment.provided.lab.kernel import lab
from tests.grading.kernels.boundary import in_lab
from tests.grading.kernels.description import NotDescribable
from tests.grading.kernels.grammar import NotAllowed

PLAIN = 3
CONSTANT = tl.constexpr(3)


@triton.jit
def masked_by_and(x, out, length, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, at, mask=at < length and tl.load(x) >= 0)


@triton.jit
def masked_by_or(x, out, length, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, at, mask=at < length or tl.load(x) >= 0)


@triton.jit
def masked_by_not(x, out, length, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, at, mask=not at < length)


@triton.jit
def masked_by_a_chain(x, out, length, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    tl.store(out + at, at, mask=0 <= at < length)


@triton.jit
def if_of_a_tile(x, out, length, TILE: tl.constexpr):
    at = tl.arange(0, TILE)
    if at < length:
        tl.store(out + at, at)


@triton.jit
def of_scalars(x, out, length, TILE: tl.constexpr):
    first = tl.load(x)
    if length > 3 and first >= 0 and not (first == 7 or length == 9):
        tl.store(out, 1)


@triton.jit
def others(x, out, length, TILE: tl.constexpr):
    """`other` is 0, and a tile."""
    at = tl.arange(0, TILE)
    tl.store(out, tl.load(x, mask=length < 0, other=0))
    tl.store(out + 1 + at, tl.load(x + at, mask=at < length, other=at))


@triton.jit
def log_of_nothing(x, out, length, TILE: tl.constexpr):
    nothing = tl.zeros((TILE,), tl.float32)
    far = tl.exp(nothing + 1000)
    tl.store(out + tl.arange(0, TILE), tl.log(nothing) + nothing / nothing + far)


@triton.jit
def added(x, y):
    return x + y


@triton.jit
def shapes_do_not_fit(x, out, length, TILE: tl.constexpr):
    tl.store(out, added(tl.arange(0, TILE), tl.arange(0, 2 * TILE)))


def run(kernel, x=0, length=5, out=None):
    out = torch.zeros(9) if out is None else out
    with lab():
        kernel[(1,)](torch.full((8,), x, dtype=torch.int32), out, length, TILE=8)
    return out


class TestTruth:
    @pytest.mark.parametrize(
        "kernel", [masked_by_and, masked_by_or, masked_by_not, masked_by_a_chain, if_of_a_tile]
    )
    def test_a_tile_has_none(self, kernel):
        with pytest.raises(TypeError, match="a tile of 8 is neither true nor false: use &, | and"):
            run(kernel)

    @pytest.mark.parametrize("x, length, expected", [(0, 5, 1), (0, 3, 0), (7, 5, 0), (-1, 5, 0)])
    def test_a_scalar_has_one(self, x, length, expected):
        assert run(of_scalars, x, length)[0] == expected

    def test_to_triton_itself_zero_is_a_value(self):
        out = run(others, x=4, out=torch.full((9,), -1, dtype=torch.int32))
        assert out.tolist() == [0, 4, 4, 4, 4, 4, 5, 6, 7]


def test_numpy_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run(log_of_nothing)[:8].isnan().all()


def test_an_error_ends_at_the_kernels_own_line():
    with pytest.raises(Exception, match="type mismatch|incompatible|shape") as caught:
        run(shapes_do_not_fit)
    frames = traceback.extract_tb(caught.value.__traceback__)
    kernels = [frame.name for frame in frames if frame.filename == __file__]
    assert kernels[-2:] == ["shapes_do_not_fit", "added"]
    assert frames[-1].line == "return x + y"
    shown = [frame.path.name for frame in caught.traceback.filter(caught)]
    assert set(shown) == {"test_kernel_refused.py", "jit.py"}


@triton.jit
def with_a_plain_global(out):
    at = tl.program_id(0)
    tl.store(out + at, PLAIN)


@triton.jit
def with_a_constant(out):
    tl.store(out, CONSTANT)


@triton.jit
def helper(out):
    tl.store(out, PLAIN)


@triton.jit
def with_such_a_helper(out):
    helper(out)


@triton.jit
def prints(out):
    print(tl.program_id(0))


def launches(kernel):
    def call(out):
        kernel[(1,)](out)
        return out

    return call


class TestBeforeItRuns:
    """In one process; in official grading a kernel is refused as it is sent."""

    @pytest.mark.parametrize(
        "kernel, place",
        [
            (with_a_plain_global, "with_a_plain_global, line 3"),
            (with_such_a_helper, "helper, line 2"),
        ],
    )
    def test_a_plain_global(self, kernel, place):
        out = torch.zeros(1)
        said = rf"^{place}: PLAIN is a plain int; a kernel may use PLAIN = tl\.constexpr\(3\)$"
        for _ in range(2):
            with pytest.raises(NotDescribable, match=said):
                in_lab(launches(kernel), out)
        assert out == 0

    def test_what_is_not_of_the_language(self):
        with pytest.raises(NotAllowed, match=r"^prints, line 2: a kernel may not use the name 'p"):
            in_lab(launches(prints), torch.zeros(1))

    def test_constants_may_be_used(self):
        assert in_lab(launches(with_a_constant), torch.zeros(1)).value == 3
