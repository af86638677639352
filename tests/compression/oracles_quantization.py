"""What quantisation is checked against: groups element by element, grids in float64."""

from __future__ import annotations

import functools
import itertools
import math

import torch
from torch import Tensor

from assignment.provided.compression import Quantized
from tests.grading.closeness import assert_equal

SMALLEST_SCALE = 2.0**-126
ROUNDING = 1e-3  # of a step: far more than float32 needs, far less than a wrong grid is off
AXES = {2: "row column", 3: "head token dim"}  # a group counts as a column
FP8 = {3: torch.float8_e4m3fn, 2: torch.float8_e5m2}


@functools.cache
def owners(shape: tuple[int, ...], per: str | int) -> tuple[Tensor, list[int]]:
    """For each element, in order, the number of its group; and the shape of the scales."""
    places = []
    for place in itertools.product(*map(range, shape)):
        *before, column = place
        zeros = [0] * len(before)
        places.append(
            {"tensor": [*zeros, 0], "row": [*before, 0], "column": [*zeros, column]}[per]
            if isinstance(per, str)
            else [*before, column // per]
        )
    sizes = [1 + max(along) for along in zip(*places, strict=True)]
    numbers = [sum(i * math.prod(sizes[a + 1 :]) for a, i in enumerate(p)) for p in places]
    return torch.tensor(numbers), sizes


def of_many_sizes(draw, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Normal, with rows and columns up to 100 times as large as others."""
    rows = 10 ** (2 * draw.uniform(*shape[:-1], 1) - 1)
    columns = 10 ** (2 * draw.uniform(shape[-1]) - 1)
    return (draw.normal(*shape) * rows * columns).to(dtype)


def scales(x: Tensor, bits: int, per: str | int, symmetric: bool) -> Tensor:
    """The scale of each group in float64; 0 where all of the group is 0."""
    group_of, sizes = owners(tuple(x.shape), per)
    zeros, x = torch.zeros(math.prod(sizes), dtype=torch.float64), x.double().flatten()
    high = zeros.scatter_reduce(0, group_of, x, "amax")
    low = zeros.scatter_reduce(0, group_of, x, "amin")
    if symmetric:
        scale = torch.maximum(high, -low) / (2 ** (bits - 1) - 1)
    else:
        scale = (high - low) / (2**bits - 1)
    return torch.where(scale > 0, scale.clamp(min=SMALLEST_SCALE), 0).view(sizes)


def spread(of_groups: Tensor, shape, per: str | int) -> Tensor:
    """The value of each element's group, in float64."""
    group_of, _ = owners(tuple(shape), per)
    return of_groups.double().flatten()[group_of].view(*shape)


def stands_for(q: Quantized) -> Tensor:
    """scale · (code − zero_point) in float64."""
    steps = q.codes.double()
    if q.zero_point is not None:
        steps = steps - spread(q.zero_point, q.codes.shape, q.per)
    return steps * spread(q.scale, q.codes.shape, q.per)


def assert_between(got: Tensor, low: Tensor, high: Tensor, what: str) -> None:
    """low ≤ got ≤ high; what is said to be expected is the nearer bound."""
    assert_equal(list(got.shape), list(low.shape), what=f"shape of {what}")
    axes = AXES.get(got.dim(), "")
    assert_equal(got, got.double().clamp(low, high), axes=axes, what=what)


def assert_quantized(
    got: object, x: Tensor, bits: int, per: str | int, symmetric: bool, what: str = ""
) -> None:
    """`got` is x on the grid that it should be on, each element at most half a step off."""
    what += f"bits {bits}, per {per!r}, {'symmetric' if symmetric else 'with zero points'}: "
    assert isinstance(got, Quantized), f"{what}expected a Quantized, got {got!r}"
    assert_equal(got.per, per, what=f"{what}per")
    scale = scales(x, bits, per, symmetric)
    top = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
    integers = torch.int8 if symmetric else torch.uint8
    _assert_kind(got.codes, integers, list(x.shape), f"{what}codes")
    _assert_kind(got.scale, torch.float32, list(scale.shape), f"{what}scale")
    if symmetric:
        assert got.zero_point is None, f"{what}zero_point: expected None, got {got.zero_point!r}"
    else:
        _assert_kind(got.zero_point, integers, list(scale.shape), f"{what}zero_point")
        _assert_range(got.zero_point, 0, top, f"{what}zero_point")
    _assert_range(got.codes, -top if symmetric else 0, top, f"{what}codes")
    # A group of zeros may have any scale: nothing depends on it.
    least = torch.where(scale > 0, scale * (1 - 1e-5), SMALLEST_SCALE)
    most = torch.where(scale > 0, scale * (1 + 1e-5), 2.0**127)
    assert_between(got.scale, least, most, f"{what}scale")
    off = spread(got.scale, x.shape, per) * (0.5 + ROUNDING)
    assert_between(stands_for(got), x.double() - off, x.double() + off, f"{what}x once more")


def assert_rounded(got: Tensor, x: Tensor, bits: int, per: str | int, symmetric: bool, what: str):
    """`got` is a whole number of steps of its scale, and at most half a step off x."""
    _assert_kind(got, torch.float32, list(x.shape), what)
    scale = spread(scales(x, bits, per, symmetric), x.shape, per)
    off = scale * (0.5 + ROUNDING)
    assert_between(got, x.double() - off, x.double() + off, what)
    steps = torch.where(scale > 0, got.double() / scale, 0.0)
    whole = steps.round() * scale
    note = f"{what}, on steps of the scale"
    assert_between(got, whole - scale * ROUNDING, whole + scale * ROUNDING, note)


def _assert_kind(got: object, dtype: torch.dtype, shape: list[int], what: str) -> None:
    assert isinstance(got, Tensor), f"{what}: expected a tensor, got {got!r}"
    assert_equal(list(got.shape), shape, what=f"shape of {what}")
    assert got.dtype == dtype, f"{what}: expected {dtype}, got {got.dtype}"


def _assert_range(got: Tensor, low: int, high: int, what: str) -> None:
    assert_equal(got.int(), got.int().clamp(low, high), what=f"{what} from {low} to {high}")


def packed(codes: Tensor) -> Tensor:
    """Eight codes an int32, word by word in Python's integers."""
    rows = codes.reshape(-1, codes.shape[-1]).tolist()
    words = []
    for row in rows:
        for start in range(0, len(row), 8):
            word = sum(code * 16**j for j, code in enumerate(row[start : start + 8]))
            words.append(word - 2**32 if word >= 2**31 else word)
    return torch.tensor(words, dtype=torch.int32).view(*codes.shape[:-1], -1)


def layer_bytes(outputs: int, inputs: int, bits: int, per: str | int) -> tuple[int, int]:
    """A layer's codes, zero points and float32 scales; packed across rows, or row by row."""
    groups = 1 if per == "row" else len(range(0, inputs, per))
    scales = 4 * outputs * groups
    if bits == 8:
        return outputs * inputs + scales, outputs * inputs + scales
    across = sum(math.ceil(outputs * codes / 2) for codes in (inputs, groups))
    by_row = sum(4 * outputs * math.ceil(codes / 8) for codes in (inputs, groups))
    return across + scales, by_row + scales


def fp8_codes(mantissa_bits: int) -> Tensor:
    """What torch takes each code of an 8-bit float for, in float32."""
    return torch.arange(256, dtype=torch.uint8).view(FP8[mantissa_bits]).float()


def nearest_fp8(x: Tensor, mantissa_bits: int) -> Tensor:
    """The nearest finite value, of two the one with the even code; NaN stays. In float64."""
    grid = fp8_codes(mantissa_bits)[:128].double()
    grid = grid[grid.isfinite()]
    magnitude = x.double().abs().clamp(max=float(grid[-1])).nan_to_num(0)
    far = (magnitude.flatten()[:, None] - grid).abs()
    nearest = far == far.min(dim=1, keepdim=True).values
    odd = torch.arange(len(grid)) % 2
    value = grid[(nearest * (2 - odd)).argmax(dim=1)].view(x.shape)
    return torch.where(x.isnan(), torch.nan, value * x.double().sign().nan_to_num(0))


def assert_same_numbers(got: Tensor, expected: Tensor, what: str) -> None:
    """Equal, and NaN in the same places."""
    assert_equal(got.isnan(), expected.isnan(), what=f"{what}: is NaN")
    assert_equal(got.nan_to_num(0, torch.inf, -torch.inf), expected.nan_to_num(0), what=what)


def assert_fp8(got: Tensor, x: Tensor, mantissa_bits: int) -> None:
    """`got` are the codes of the values nearest to x."""
    what = f"codes with {mantissa_bits} mantissa bits"
    _assert_kind(got, torch.uint8, list(x.shape), what)
    values = fp8_codes(mantissa_bits)[got.long()]
    assert_same_numbers(values, nearest_fp8(x, mantissa_bits), f"what the {what} stand for")
