"""compression.quantization: on the right grid, to the nearest step, and nothing else is kept."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from assignment.provided.compression import Quantized
from submission.compression.quantization import (
    QuantizedCache,
    QuantizedLinear,
    bits_per_weight,
    dequantize,
    fp8_values,
    pack_int4,
    quantize,
    to_fp8,
    unpack_int4,
)
from submission.provided.models import DelegatingCache, GrowingCache
from tests.compression import oracles_quantization as oracles
from tests.compression.quantized_cache import HEAD_DIM, HEADS, ROWS, Watched
from tests.grading.boundary import call_then_spoil, call_with_parameters, kept_bytes, watch
from tests.grading.closeness import assert_close, assert_equal
from tests.grading.refusal import assert_value_error

ALL_BITS = range(2, 9)
SYMMETRY = pytest.mark.parametrize("symmetric", [True, False], ids=["symmetric", "zero points"])
PER = ["tensor", "row", "column", 1, 3, 8, 50]
EXAMPLE = [1.2, -0.5, -4.3, 1.2, -3.1, 0.8, 2.4, 5.4]


def check(x, bits, per, symmetric, what=""):
    oracles.assert_quantized(quantize(x, bits, per, symmetric), x, bits, per, symmetric, what)


@pytest.mark.group("grids")
class TestGrids:
    def test_absmax_by_hand(self):
        for last, codes in (
            (5.4, [28, -12, -101, 28, -73, 19, 56, 127]),
            (60.0, [3, -1, -9, 3, -7, 2, 5, 127]),
        ):
            numbers = [*EXAMPLE[:-1], last]
            x = torch.tensor([numbers])
            got = quantize(x)
            assert_equal(got.codes.tolist(), [codes], what=f"codes of {numbers}")
            oracles.assert_quantized(got, x, 8, "row", True)

    def test_zero_point_by_hand(self):
        numbers = [-1.0, 0.0, 0.62, 2.0, -0.25]
        got = quantize(torch.tensor(numbers), 4, "tensor", False)
        assert_equal(got.zero_point.tolist(), [5], what="zero point of −1 … 2 in 16 steps")
        assert_equal(got.codes.tolist(), [0, 5, 8, 15, 4], what=f"codes of {numbers}")

    @SYMMETRY
    @pytest.mark.parametrize("bits", ALL_BITS)
    def test_any_bits(self, draw, bits, symmetric):
        x = oracles.of_many_sizes(draw, 5, 19)
        for per in PER:
            check(x, bits, per, symmetric)

    @SYMMETRY
    def test_any_axes(self, draw, symmetric):
        for shape in [(19,), (1,), (7, 1), (1, 9), (2, 3, 10), (2, 3, 2, 7)]:
            x = oracles.of_many_sizes(draw, *shape)
            for per in PER:
                check(x, 8, per, symmetric, f"x of shape {list(shape)}, ")

    @SYMMETRY
    def test_a_short_last_group(self, draw, symmetric):
        for columns, group in [(576, 128), (129, 128), (127, 128), (128, 128), (10, 4)]:
            x = draw.normal(3, columns)
            for last in (1e-3, 1e3):  # as large as nothing else in the row
                x[:, columns // group * group :] *= last
                check(x, 4, group, symmetric, f"{columns} columns, ")

    @SYMMETRY
    def test_kinds_of_groups(self, draw, symmetric):
        n = draw.normal(12)
        kinds = {
            "zeros": torch.zeros(12),
            "constant": torch.full((12,), 0.3),
            "negative and constant": torch.full((12,), -0.3),
            "positive": n.abs() + 0.01,
            "negative": -n.abs() - 0.01,
            "far from zero": torch.tensor([0.5, 0.6, 0.7, 0.55] * 3),
            "far below zero": torch.tensor([-0.5, -0.6, -0.7, -0.55] * 3),
            "as small as floats get": n * 1e-42,
            "subnormal": n * 1e-39,
            "one that is not zero": torch.tensor([0.0, 1e-45, 0.0] * 4),
            "scales near the smallest": n.abs() * 1e-36,
            "huge": torch.tensor([1e38, -1e38, 3e37, 0.0] * 3),
            "huge and negative": torch.tensor([-1e38, -9e37, -1e30] * 4),
            "one outlier": n.index_fill(0, torch.tensor(7), -3e4),
        }
        x = torch.stack(list(kinds.values()))
        for bits in (8, 4, 3, 2):
            for per in ("row", 4, 5):
                check(x, bits, per, symmetric, "groups of many kinds, ")
            check(x.T.contiguous(), bits, "column", symmetric, "groups of many kinds, ")
        for kind, values in kinds.items():
            check(values.view(3, 4), 4, "tensor", symmetric, f"{kind}, ")

    @SYMMETRY
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
    def test_other_dtypes(self, draw, dtype, symmetric):
        for size in (1, 0.01, 1e-3):
            x = (oracles.of_many_sizes(draw, 4, 21) * size).to(dtype)
            for per in ("tensor", "row", "column", 8):
                for bits in (8, 4):
                    check(x, bits, per, symmetric, f"{dtype}, numbers near {size}, ")
        x = torch.tensor([[65504.0, -65504, 11, 0.1], [-6e4, 3e4, -65504, 64000]], dtype=dtype)
        check(x, 8, "row", symmetric, f"{dtype}, the largest of float16, ")

    def test_x_is_not_changed(self, draw):
        x = draw.normal(3, 7)
        for symmetric in (True, False):
            for per in PER[:5]:
                _, changed = watch(quantize, x, 4, per, symmetric)
                assert changed == [], f"quantize changed x: per {per!r}, symmetric {symmetric}"

    def test_refusals(self, draw):
        x = draw.normal(2, 6)
        for symmetric in (True, False):
            for bits in (-1, 0, 1, 9, 16):
                assert_value_error(f"bits {bits}", quantize, x, bits, "row", symmetric)
            for per in ("rows", "", 0, -2):
                assert_value_error(f"per {per!r}", quantize, x, 8, per, symmetric)

    @SYMMETRY
    def test_dequantize(self, draw, symmetric):
        """Codes and zero points that have nothing to do with each other."""
        for shape in [(9,), (4, 19), (2, 3, 10)]:
            for per in PER:
                _, sizes = oracles.owners(shape, per)
                low, high, dtype = (-127, 128, torch.int8) if symmetric else (0, 256, torch.uint8)
                codes = draw.integers(low, high, *shape).to(dtype)
                zero_point = None if symmetric else draw.integers(0, 256, *sizes).to(dtype)
                scale = oracles.of_many_sizes(draw, *sizes).abs()
                given = Quantized(codes, scale, zero_point, per)
                got, changed = watch(dequantize, given)
                what = f"dequantize, shape {list(shape)}, per {per!r}"
                assert changed == [], f"{what}: its argument was changed"
                assert got.dtype == torch.float32, f"{what}: expected float32, got {got.dtype}"
                expected = oracles.stands_for(given)
                assert_close(got, expected, naive=expected.float(), what=what)


@pytest.mark.group("packing")
class TestPacking:
    @pytest.mark.parametrize(
        "codes, words",
        [
            ([1], [1]),
            ([1, 2, 3, 4, 5, 6, 7], [0x7654321]),
            ([0, 0, 0, 0, 0, 0, 0, 7], [7 * 2**28]),
            ([0, 0, 0, 0, 0, 0, 0, 8], [-(2**31)]),
            ([15] * 9, [-1, 15]),
            ([0] * 8 + [3], [0, 3]),
        ],
        ids=str,
    )
    def test_by_hand(self, codes, words):
        codes, words = torch.tensor(codes, dtype=torch.uint8), torch.tensor(words).int()
        assert_equal(pack_int4(codes), words, what="words")
        assert_equal(unpack_int4(words, len(codes)), codes, what="codes")

    @pytest.mark.parametrize("shape", [(7,), (3, 8), (2, 9), (2, 3, 16), (40, 31), (2, 1, 1)])
    def test_any_codes(self, draw, shape):
        codes = draw.integers(0, 16, *shape).to(torch.uint8)
        words = oracles.packed(codes)
        got, changed = watch(pack_int4, codes)
        back, changed_back = watch(unpack_int4, words, shape[-1])
        assert_equal(got, words, what="words")
        assert got.dtype == torch.int32, f"words: expected int32, got {got.dtype}"
        assert_equal(back, codes, what="codes")
        assert back.dtype == torch.uint8, f"codes: expected uint8, got {back.dtype}"
        assert changed == changed_back == [], "the argument was changed"

    def test_zero_points_too(self):
        """Of groups that are all positive, all negative, and of zeros."""
        x = torch.tensor([[0.5, 0.6, 0.7, 0.4], [-0.5, -0.6, -0.7, -0.4], [0.0, 0.0, 0.0, 0.0]])
        got = quantize(x, 4, "row", False)
        back = unpack_int4(pack_int4(got.zero_point.flatten()), 3)
        assert_equal(back.tolist(), [0, 15, 0], what="zero points")

    def test_bits_per_weight(self):
        for sizes, expected in [((4096, 4, 128, 16, 4), 4.15625), ((4096, 4, 128), 4.125)]:
            assert_equal(bits_per_weight(*sizes), expected, what=f"bits_per_weight{sizes}")
        for columns, group in [(576, 128), (576, 64), (129, 128), (100, 100), (100, 4096), (7, 1)]:
            for bits, scale_bits, zero_bits in [(4, 16, 4), (8, 32, 0), (3, 16, 3), (1, 0, 0)]:
                groups = len(range(0, columns, group))
                expected = (columns * bits + groups * (scale_bits + zero_bits)) / columns
                sizes = (columns, bits, group, scale_bits, zero_bits)
                got = round(bits_per_weight(*sizes), 9)
                assert_equal(got, round(expected, 9), what=f"bits_per_weight{sizes}")

    def test_refusals(self):
        for sizes in [(0, 4, 8), (8, 0, 8), (8, 4, 0), (8, 4, 8, -1), (8, 4, 8, 16, -1)]:
            assert_value_error(f"bits_per_weight{sizes}", bits_per_weight, *sizes)


@pytest.mark.group("fp8")
class TestFp8:
    @pytest.mark.parametrize("mantissa_bits", [3, 2], ids=["E4M3", "E5M2"])
    def test_all_codes(self, mantissa_bits):
        got = fp8_values(mantissa_bits)
        assert got.dtype == torch.float32, f"expected float32, got {got.dtype}"
        assert_equal(list(got.shape), [256], what="shape of the values")
        expected = oracles.fp8_codes(mantissa_bits)
        assert_equal(got.isnan(), expected.isnan(), axes="code", what="is NaN")
        assert_equal(got[~got.isnan()], expected[~got.isnan()], what="values that are not NaN")

    @pytest.mark.parametrize("mantissa_bits", [3, 2], ids=["E4M3", "E5M2"])
    def test_nearest(self, draw, mantissa_bits):
        """Each value, the middles between two, and what lies just beside them."""
        grid = oracles.fp8_codes(mantissa_bits)[:128]
        grid = grid[grid.isfinite()]
        exact = torch.cat([grid, (grid[1:] + grid[:-1]) / 2])
        x = torch.cat([exact, torch.nextafter(exact, exact * 2), torch.nextafter(exact, -exact)])
        sizes = torch.exp2(36 * draw.uniform(400) - 20)
        x = torch.cat([x, -x, draw.normal(400) * sizes])
        oracles.assert_fp8(to_fp8(x, mantissa_bits), x, mantissa_bits)

    @pytest.mark.parametrize("mantissa_bits", [3, 2], ids=["E4M3", "E5M2"])
    def test_saturates(self, mantissa_bits):
        ends = [448.0, 463.0, 464.0, 466.0, 480.0, 500.0, 57344.0, 61439.0, 61440.0, 65504.0]
        x = torch.tensor([*ends, 1e6, 3e38, torch.inf])
        x = torch.cat([x, -x])
        oracles.assert_fp8(to_fp8(x, mantissa_bits), x, mantissa_bits)

    @pytest.mark.parametrize("mantissa_bits", [3, 2], ids=["E4M3", "E5M2"])
    def test_any_shape_and_dtype(self, draw, mantissa_bits):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            x = (draw.normal(3, 2, 9) * 10 ** (draw.uniform(3, 2, 9) * 9 - 6)).to(dtype)
            x[0, 0, :5] = torch.tensor([torch.nan, torch.inf, 0, 500, 6e4])
            got, changed = watch(to_fp8, x, mantissa_bits)
            oracles.assert_fp8(got, x, mantissa_bits)
            assert changed == [], "x was changed"

    def test_refusals(self, draw):
        for mantissa_bits in (0, 1, 4, 7):
            assert_value_error(f"mantissa_bits {mantissa_bits}", fp8_values, mantissa_bits)
            assert_value_error(
                f"mantissa_bits {mantissa_bits}", to_fp8, draw.normal(3), mantissa_bits
            )


LAYERS = pytest.mark.parametrize(
    "bits, per", [(8, "row"), (8, 32), (4, "row"), (4, 32), (4, 100), (3, 16), (2, 5)]
)

OUTPUTS, INPUTS = 11, 75  # 75 is no multiple of a group or of eight


@pytest.mark.group("layer")
class TestLayer:
    @LAYERS
    def test_rounded_weight(self, draw, bits, per):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            weight = oracles.of_many_sizes(draw, OUTPUTS, INPUTS, dtype=dtype)
            weight[2], weight[3], weight[7] = weight[2].abs(), -weight[3].abs(), 0
            got = QuantizedLinear(weight, bits, per).dequantized()
            what = f"weight of {dtype} in {bits} bits per {per!r}"
            oracles.assert_rounded(got, weight, bits, per, bits == 8, what)

    @LAYERS
    def test_product(self, draw, bits, per):
        layer = QuantizedLinear(draw.normal(OUTPUTS, INPUTS), bits, per)
        weight = layer.dequantized()
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for shape in [(INPUTS,), (5, INPUTS), (2, 3, INPUTS)]:
                x = draw.normal(*shape, dtype=dtype)
                got = layer(x)
                assert got.dtype == dtype, f"expected the dtype of x, {dtype}, got {got.dtype}"
                naive = x @ weight.to(dtype).T
                assert_close(got, x.double() @ weight.double().T, naive=naive, what="output")

    @LAYERS
    def test_the_state_dict_is_the_layer(self, draw, bits, per):
        """A layer of other weights that has computed, and then loads it."""
        x = draw.normal(3, INPUTS)
        first, second = (QuantizedLinear(draw.normal(OUTPUTS, INPUTS), bits, per) for _ in range(2))
        expected, before = first(x), second(x)
        assert not torch.equal(before, expected), "layers of other weights give the same outputs"
        second.load_state_dict(first.state_dict())
        assert_equal(second(x), expected, what="outputs of a layer that has loaded another's state")
        assert_equal(second.dequantized(), first.dequantized(), what="its weight")

    @LAYERS
    def test_bytes(self, draw, bits, per):
        """Codes and scales, and packed zero points; a number or two beside them may be kept too."""
        layer = QuantizedLinear(draw.normal(OUTPUTS, INPUTS), bits, per)
        state = layer.state_dict()
        kept = [state[name] for name in state]
        got = sum(part.numel() * part.element_size() for part in kept)
        least, most = oracles.layer_bytes(OUTPUTS, INPUTS, bits, per)
        assert_equal(got, min(max(got, least), most + 16), what="bytes of the state dict")
        assert_equal(len(list(layer.parameters())), 0, what="parameters (all is to be buffers)")

    @LAYERS
    def test_it_keeps_nothing_else(self, draw, bits, per):
        """No float weight on an attribute, in a memo or in autograd's graph, also where it was a
        parameter; in memory, codes may be rows of whole groups."""
        weight, x = draw.normal(OUTPUTS, INPUTS), draw.normal(3, INPUTS)
        _, most = oracles.layer_bytes(OUTPUTS, INPUTS, bits, per)
        room = most + 16 + (0 if per == "row" else OUTPUTS * (-INPUTS % per))
        by_parameter = partial(call_with_parameters, QuantizedLinear)
        for given, build in (("tensor", QuantizedLinear), ("parameter", by_parameter)):
            layer = build(weight, bits, per)
            layer(x), layer.dequantized()
            kept = kept_bytes(layer)
            what = f"bytes that a layer made of a {given} keeps, attributes and graphs included"
            assert_equal(kept, min(kept, room), what=what)

    def test_the_weight_stays_the_callers(self, draw):
        weight = draw.normal(OUTPUTS, INPUTS)
        for bits in (8, 4):
            _, changed = watch(QuantizedLinear, weight, bits, 32)
            assert changed == [], "the weight was changed"
            layer = call_then_spoil(QuantizedLinear, weight.clone(), bits, 32)
            what = "the weight, which the caller has changed since"
            oracles.assert_rounded(layer.dequantized(), weight, bits, 32, bits == 8, what)

    def test_refusals(self, draw):
        weight = draw.normal(3, 16)
        for bits in (0, 1, 5, 7, 9, 16):
            assert_value_error(f"bits {bits}", QuantizedLinear, weight, bits)
        for per in ("tensor", "column", "rows", 0, -8):
            for bits in (4, 8):
                assert_value_error(f"per {per!r}", QuantizedLinear, weight, bits, per)


def over(codes, scales):
    """A QuantizedCache over two caches of the submission's side, of the test's functions."""
    return QuantizedCache(DelegatingCache(*codes), DelegatingCache(*scales))


@pytest.mark.group("cache")
class TestCache:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
    def test_prompt_and_steps(self, draw, dtype):
        watched = Watched(draw, over, dtype)
        for num_columns in (4, 1, 1, 3):
            watched.append(num_columns)
            watched.check()

    def test_ragged_rows(self, draw):
        watched = Watched(draw, over)
        for num_tokens in ([4, 1, 3], [0, 2, 1], [1, 4, 0]):
            watched.append(4, num_tokens)
            watched.check()

    def test_both_go_back(self, draw):
        watched = Watched(draw, over)
        watched.append(5)
        for lengths in ([3, 5, 1], [3, 0, 1]):
            watched.truncate(lengths)
            watched.check()
            watched.append(2, [2, 0, 1])
            watched.check()

    def test_it_keeps_nothing_itself(self, draw):
        """The scales are doubled behind its back, and so is what it gives."""
        watched = Watched(draw, over)
        watched.append(4)
        before = watched.cache.keys_values()
        for name in ("keys", "values"):
            setattr(watched.scales, name, [2 * scale for scale in getattr(watched.scales, name)])
        for name, was, got in zip(
            ("keys", "values"), before, watched.cache.keys_values(), strict=True
        ):
            assert_equal(got, 2 * was, what=f"{name} whose scales in the given cache are doubled")

    def test_over_growing_caches(self, draw):
        """Caches that live beside it; a token that is all zeros, and one that is subnormal."""
        cache = QuantizedCache(GrowingCache(), GrowingCache())
        k, v = (oracles.of_many_sizes(draw, ROWS, HEADS, 9, HEAD_DIM) for _ in "kv")
        k[1, :, 4], v[2, 1, 6], v[0, 0, 2] = 0, 0, 1e-42
        for start, end in ((0, 6), (6, 7), (7, 9)):
            cache.append(k[:, :, start:end], v[:, :, start:end])
        assert_equal(cache.lengths, torch.full((ROWS,), 9), axes="row", what="lengths")
        for got, exact, what in zip(cache.keys_values(), (k, v), ("keys", "values"), strict=True):
            oracles.assert_rounded(got, exact, 8, "row", True, what)
