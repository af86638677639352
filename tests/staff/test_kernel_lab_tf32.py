"""Products of float32 in the lab are those of a GPU: in TF32, unless "ieee" is asked for."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
import torch
import triton
import triton.language as tl

from assignment.provided.lab.kernel import Launch, lab
from tests.grading.closeness import Mismatch
from tests.grading.kernels.boundary import in_lab
from tests.grading.transport import proxy
from tests.grading.transport.forkserver import ForkServer
from tests.grading.transport.proxy import Name
from tests.kernels.rounding import TF32, tf32_is_told

SIZE = 32
TO_TF32 = -(2**13)  # leaves 10 bits of the 23 of a mantissa
FLOPS = 2 * SIZE**3
SUBMISSION = """
import torch
import triton
import triton.language as tl

@triton.jit
def product_kernel(a, b, out, PRECISION: tl.constexpr):
    at = tl.arange(0, 32)[:, None] * 32 + tl.arange(0, 32)[None, :]
    product = tl.dot(tl.load(a + at), tl.trans(tl.load(b + at)), input_precision=PRECISION)
    tl.store(out + at, product)

def product(a, b, precision):
    out = torch.empty(32, 32)
    product_kernel[(1,)](a, b, out, PRECISION=precision)
    return out
"""


@triton.jit
def by_precision(a, b, out, SIZE: tl.constexpr, ASKED: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    left, right = tl.load(a + at), tl.trans(tl.load(b + at))
    tl.store(out + at, tl.dot(left, right, input_precision=ASKED))


@triton.jit
def by_allowance(a, b, out, SIZE: tl.constexpr, ASKED: tl.constexpr):
    at = tl.arange(0, SIZE)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    left, right = tl.load(a + at), tl.trans(tl.load(b + at))
    tl.store(out + at, tl.dot(left, right, allow_tf32=ASKED))


def product(a, b, asked=None, kernel=by_precision):
    out = torch.empty(SIZE, SIZE)
    with lab() as seen:
        kernel[(1,)](a, b, out, SIZE=SIZE, ASKED=asked)
    return out, seen


def two(dtype=torch.float32):
    return torch.randn(2, SIZE, SIZE, generator=torch.Generator().manual_seed(0)).to(dtype)


def in_tf32(a, b):
    """In float64, of what is left of both."""
    a, b = ((x.view(torch.int32) & TO_TF32).view(torch.float32).double() for x in (a, b))
    return a @ b.T


def assert_is(out, expected):
    assert (out.double() - expected).abs().max() < 1e-5


@pytest.mark.parametrize(
    "kernel, asked",
    [(by_precision, None), (by_precision, "tf32"), (by_allowance, None), (by_allowance, True)],
)
def test_without_ieee_10_bits_of_the_mantissa_count(kernel, asked):
    a, b = two()
    out, seen = product(a, b, asked, kernel)
    assert_is(out, in_tf32(a, b))
    assert 1e-3 < (out.double() - a.double() @ b.double().T).abs().max() < 0.1
    (launch,) = seen.launches
    assert launch.dot_flops == {"tf32": FLOPS} and launch.program_dot_flops == {"tf32": [FLOPS]}


@pytest.mark.parametrize(
    "kernel, asked", [(by_precision, "ieee"), (by_precision, "tf32x3"), (by_allowance, False)]
)
def test_with_it_all_do(kernel, asked):
    a, b = two()
    out, seen = product(a, b, asked, kernel)
    assert_is(out, a.double() @ b.double().T)
    assert seen.launches[0].dot_flops == {"fp32": FLOPS}


@pytest.mark.parametrize("dtype, name", [(torch.float16, "fp16"), (torch.bfloat16, "bf16")])
def test_16_bits_are_what_they_are(dtype, name):
    a, b = two(dtype)
    out, seen = product(a, b)
    assert_is(out, a.double() @ b.double().T)
    assert seen.launches[0].dot_flops == {name: FLOPS}


def test_what_tf32_holds_is_exact():
    """Whole numbers up to 2¹¹, the larger ones cut; the largest and the smallest exponent."""
    values = torch.tensor([2047.0, -2048, 2049, -2051, 2.0**127, 2.0**-126])
    b = torch.zeros(SIZE, SIZE)
    b[: len(values), 0] = values
    out, _ = product(torch.eye(SIZE), b)
    assert out[0, : len(values)].tolist() == [2047, -2048, 2048, -2050, 2.0**127, 2.0**-126]


@pytest.mark.parametrize("bits", [0x7F80_0000, 0xFF80_0000, 0x7F80_0001], ids=hex)
def test_what_is_no_number_stays_none(bits):
    """±∞, and a NaN that without its last bit would be ∞."""
    value = torch.tensor(bits, dtype=torch.uint32).view(torch.float32)
    a, b = torch.ones(2, SIZE, SIZE)
    b[5, 7] = value
    out, _ = product(a, b)
    torch.testing.assert_close(out[:, 5], value.expand(SIZE), equal_nan=True)
    assert out[:, 4].eq(SIZE).all()


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_the_compiler_hands_on_all_bits(architecture):
    """It rounds neither operand: so tensor cores cut them."""
    _, seen = product(*two())
    (ptx,) = seen.translated(architecture)
    assert ".tf32.tf32" in ptx.text and "cvt." not in ptx.text
    _, seen = product(*two(), "ieee")
    (ptx,) = seen.translated(architecture)
    assert ".tf32" not in ptx.text and "fma.rn.f32" in ptx.text


def test_official_grading_sees_the_same():
    a, b = two()
    with contextlib.closing(ForkServer()) as server:
        folder = server.tree / "unit"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "thing.py").write_text(SUBMISSION)
        proxy.begin(server, time_limit=60)
        for precision, name, expected in (
            (None, "tf32", in_tf32(a, b)),
            ("ieee", "fp32", a.double() @ b.double().T),
        ):
            seen = in_lab(Name("unit.thing", "product"), a, b, precision)
            assert_is(seen.value, expected)
            assert seen.launches[0].dot_flops == {name: FLOPS}
        proxy.end()


@pytest.mark.parametrize(
    "name, got, told", [("tf32", "2", True), ("fp32", "2", False), ("tf32", "nan", False)]
)
@pytest.mark.parametrize("note", ["", "1 of 2"])
def test_a_result_that_is_off_says_why(name, got, told, note):
    launch = Launch("made", (1, 1, 1), {}, 4, dot_flops={name: 1})
    seen = SimpleNamespace(launches=[launch])
    with pytest.raises(Mismatch) as caught, tf32_is_told(seen):
        raise Mismatch("differs", expected="1", got=got, note=note)
    error = caught.value
    assert str(error) == (f"{TF32}; differs" if told else "differs")
    assert error.note == "; ".join([note] * bool(note) + [TF32] * told)
