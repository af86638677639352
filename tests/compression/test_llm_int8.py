"""compression.llm_int8: 8 bits for what is small, 16 for the columns of a batch that are not."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from submission.compression.llm_int8 import (
    Int8Linear,
    int8_matmul,
    int8_share,
    llm_int8_matmul,
    outlier_columns,
    relative_error,
)
from tests.compression import oracles_llm_int8 as oracles
from tests.grading.boundary import call_then_spoil, call_with_parameters, kept_bytes, watch
from tests.grading.closeness import assert_close, assert_equal
from tests.grading.refusal import assert_value_error

TOKENS, INPUTS, OUTPUTS = 6, 40, 7
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)


def activation(draw, columns=(), *, tokens=TOKENS, inputs=INPUTS, size=0.7):
    """Below the threshold but for one value of each of `columns`, in a row of its own."""
    x = (draw.normal(tokens, inputs) * size).clamp(-5, 5)
    for i, column in enumerate(columns):
        x[i % tokens, column] = (-1) ** i * (20 + 9 * i)
    return x


def of_all_dtypes(draw):
    """Weights, small and of usual size, whatever the dtype of x is."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for size in (0.01, 1):
            yield (draw.normal(OUTPUTS, INPUTS) * size).to(dtype)


def check(x, weight, threshold=6.0):
    """The naive form, and the layer."""
    for whole_rows, got, what in (
        (False, llm_int8_matmul(x, weight, threshold), "llm_int8_matmul"),
        (True, Int8Linear(weight, threshold)(x), "Int8Linear"),
    ):
        right = oracles.expected(x, weight, threshold, whole_rows=whole_rows)
        oracles.assert_product(got, right, f"{what}, threshold {threshold:g}")
        assert_equal(got.dtype, x.dtype, what=f"dtype of {what}")


@pytest.mark.group("products")
class TestProducts:
    @pytest.mark.parametrize("inputs", [2, 5, 1041, 4096])
    def test_sums_are_exact(self, draw, inputs):
        """Of the largest codes there are, where float16 overflows and float32 rounds."""
        x = draw.integers(125, 128, 3, inputs) * (2 * draw.integers(0, 2, 3, 1) - 1)
        weight = draw.integers(124, 128, 4, inputs)
        got = int8_matmul(x.to(torch.int8), weight.to(torch.int8))
        assert_equal(got, x @ weight.T, axes="token output", what=f"{inputs} products summed")
        assert_equal(got.dtype, torch.int32, what="dtype")

    def test_codes_of_any_size(self, draw):
        x, weight = draw.integers(-127, 128, 5, 300), draw.integers(-127, 128, 9, 300)
        got = int8_matmul(x.to(torch.int8), weight.to(torch.int8))
        assert_equal(got, x @ weight.T, axes="token output")

    def test_arguments_are_not_changed(self, draw):
        codes = [draw.integers(-127, 128, n, 8).to(torch.int8) for n in (2, 3)]
        _, changed = watch(int8_matmul, *codes)
        assert changed == [], "an argument was changed, by its place"


@pytest.mark.group("decomposition")
class TestDecomposition:
    def test_outliers_by_hand(self):
        # 5.75 is the same number in all dtypes, so that it does not matter in which one compares.
        x = torch.tensor([[1.0, -6.0, 5.75, 0.0], [7.0, 0.5, -5.75, 0.0]])
        assert_equal(outlier_columns(x).tolist(), [0, 1], what="outlier columns")
        for threshold, columns in [(5.75, [0, 1, 2]), (8.0, [])]:
            got = outlier_columns(x, threshold).tolist()
            assert_equal(got, columns, what=f"outlier columns, threshold {threshold}")
        assert_equal(outlier_columns(x[:1]).tolist(), [1], what="outliers of the first row alone")

    @DTYPES
    def test_outliers_of_any_row(self, draw, dtype):
        x = activation(draw, [3, 39, 0, 17]).to(dtype)
        for shape in [(TOKENS, INPUTS), (2, 3, INPUTS), (3, 1, 2, INPUTS)]:
            got = outlier_columns(x.view(shape)).tolist()
            assert_equal(got, [0, 3, 17, 39], what=f"outlier columns of {dtype} {list(shape)}")

    @pytest.mark.parametrize("columns", [[], [5], [0, 39, 11, 12], list(range(INPUTS))])
    def test_the_product(self, draw, columns):
        weight = draw.normal(OUTPUTS, INPUTS) * (0.2 + draw.uniform(OUTPUTS, 1))
        weight[:, columns[:1]] *= 30  # a weight is no outlier, however large it is
        x = activation(draw, columns)
        right = oracles.expected(x, weight, 6.0, whole_rows=False)
        oracles.assert_product(llm_int8_matmul(x, weight), right, f"outliers {columns}")

    @DTYPES
    def test_dtypes(self, draw, dtype):
        x = activation(draw, [8, 30]).to(dtype)
        for weight in of_all_dtypes(draw):
            right = oracles.expected(x, weight, 6.0, whole_rows=False)
            got = llm_int8_matmul(x, weight)
            what = f"x {dtype}, weight {weight.dtype}"
            oracles.assert_product(got, right, what)
            assert_equal(got.dtype, dtype, what=f"dtype, {what}")

    def test_other_thresholds(self, draw):
        x, weight = activation(draw, [8, 30], size=1.5), draw.normal(OUTPUTS, INPUTS)
        for threshold in (1.0, 2.5, 6.0, 25.0, torch.inf):
            right = oracles.expected(x, weight, threshold, whole_rows=False)
            got = llm_int8_matmul(x, weight, threshold)
            oracles.assert_product(got, right, f"threshold {threshold}")

    def test_many_inputs(self, draw):
        """Sums that float16 cannot hold, and codes that float32 cannot add exactly."""
        x = activation(draw, [77], inputs=4096, tokens=3)
        x[:, 1000:] = 5.9 - 0.3 * draw.uniform(3, 3096)
        weight = 1 + 0.01 * draw.uniform(4, 4096)
        for dtype in (torch.float32, torch.float16):
            check(x.to(dtype), weight.to(dtype))

    def test_rows_and_weights_of_zeros(self, draw):
        x, weight = activation(draw, [4]), draw.normal(OUTPUTS, INPUTS)
        x[2], weight[3] = 0, 0
        check(x, weight)
        x[1], weight[2] = x[1] * 3e-6, weight[2] * 3e-6  # far above zero, for a float
        check(x, weight)
        check(torch.zeros(2, INPUTS), weight)
        check(torch.full((2, INPUTS), 9.0), weight)  # nothing is left for 8 bits

    def test_arguments_are_not_changed(self, draw):
        x, weight = activation(draw, [4, 9]), draw.normal(OUTPUTS, INPUTS)
        for target, *arguments in (
            (llm_int8_matmul, x, weight),
            (outlier_columns, x),
            (Int8Linear, weight),
            (Int8Linear(weight), x),
        ):
            _, changed = watch(target, *arguments)
            assert changed == [], f"{target!r} changed an argument, by its place"


@pytest.mark.group("layer")
class TestLayer:
    @pytest.mark.parametrize("columns", [[], [5], [0, 39, 11, 12], list(range(INPUTS))])
    def test_the_product(self, draw, columns):
        weight = draw.normal(OUTPUTS, INPUTS) * (0.2 + draw.uniform(OUTPUTS, 1))
        weight[:, columns[:1]] *= 3
        x = activation(draw, columns)
        right = oracles.expected(x, weight, 6.0, whole_rows=True)
        oracles.assert_product(Int8Linear(weight)(x), right, f"outliers {columns}")

    @DTYPES
    def test_dtypes(self, draw, dtype):
        x = activation(draw, [8, 30]).to(dtype)
        for weight in of_all_dtypes(draw):
            right = oracles.expected(x, weight, 6.0, whole_rows=True)
            got = Int8Linear(weight)(x)
            what = f"x {dtype}, weight {weight.dtype}"
            oracles.assert_product(got, right, what)
            assert_equal(got.dtype, dtype, what=f"dtype, {what}")

    def test_other_thresholds(self, draw):
        x, weight = activation(draw, [8, 30], size=1.5), draw.normal(OUTPUTS, INPUTS)
        for threshold in (1.0, 2.5, 25.0):
            right = oracles.expected(x, weight, threshold, whole_rows=True)
            got = Int8Linear(weight, threshold)(x)
            oracles.assert_product(got, right, f"threshold {threshold}")

    def test_any_axes_before_the_last(self, draw):
        x, weight = activation(draw, [8, 30]), draw.normal(OUTPUTS, INPUTS)
        right = oracles.expected(x, weight, 6.0, whole_rows=True)
        layer = Int8Linear(weight)
        for before in [(2, 3), (3, 1, 2)]:
            got = layer(x.view(*before, INPUTS))
            assert_equal(list(got.shape), [*before, OUTPUTS], what="shape")
            oracles.assert_product(got.reshape(TOKENS, OUTPUTS), right, f"x {list(before)}")

    def test_a_batch_knows_nothing_of_the_one_before(self, draw):
        weight = draw.normal(OUTPUTS, INPUTS)
        layer = Int8Linear(weight)
        batches = [activation(draw, columns) for columns in ([3, 20], [], [21], [3])]
        for number, x in enumerate(batches):
            right = oracles.expected(x, weight, 6.0, whole_rows=True)
            oracles.assert_product(layer(x), right, f"batch {number}")

    def test_the_state_dict_is_the_layer(self, draw):
        """A layer of other weights that has computed, and then loads it."""
        x = activation(draw, [8])
        first, second = (Int8Linear(draw.normal(OUTPUTS, INPUTS)) for _ in range(2))
        expected, before = first(x), second(x)
        assert not torch.equal(before, expected), "layers of other weights give the same outputs"
        second.load_state_dict(first.state_dict())
        assert_equal(second(x), expected, what="outputs of a layer that has loaded another's state")

    def test_bytes(self, draw):
        """A byte for each weight, a scale of at most 4 for each output, a number or two beside."""
        layer = Int8Linear(draw.normal(OUTPUTS, INPUTS))
        state = layer.state_dict()
        got = sum(state[name].numel() * state[name].element_size() for name in state)
        least, most = OUTPUTS * INPUTS, OUTPUTS * (INPUTS + 4) + 16
        assert_equal(got, min(max(got, least), most), what="bytes of the state dict")
        assert_equal(len(list(layer.parameters())), 0, what="parameters (all is to be buffers)")

    def test_it_keeps_nothing_else(self, draw):
        """No float weight on an attribute, in a memo or in autograd's graph, also where it was a
        parameter."""
        weight, x = draw.normal(OUTPUTS, INPUTS), activation(draw, [8])
        by_parameter = partial(call_with_parameters, Int8Linear)
        for given, build in (("tensor", Int8Linear), ("parameter", by_parameter)):
            layer = build(weight)
            layer(x)
            kept = kept_bytes(layer)
            what = f"bytes that a layer made of a {given} keeps, attributes and graphs included"
            assert_equal(kept, min(kept, OUTPUTS * (INPUTS + 4) + 16), what=what)

    def test_the_weight_stays_the_callers(self, draw):
        x, weight = activation(draw, [8]), draw.normal(OUTPUTS, INPUTS)
        layer = call_then_spoil(Int8Linear, weight.clone())
        right = oracles.expected(x, weight, 6.0, whole_rows=True)
        oracles.assert_product(layer(x), right, "after the caller's weight has changed")


def assert_number(got, right, what=""):
    right = torch.tensor(right, dtype=torch.float64)
    assert_close(torch.tensor(got, dtype=torch.float64), right, naive=right.float(), what=what)


@pytest.mark.group("measures")
class TestMeasures:
    def test_share(self, draw):
        for columns in ([], [5], [0, 39, 11, 12], list(range(INPUTS))):
            x = activation(draw, columns)
            for shape in [(TOKENS, INPUTS), (2, 3, INPUTS)]:
                got = int8_share(x.view(shape))
                assert_number(got, 1 - len(columns) / INPUTS, f"outliers {columns}")
        assert_number(int8_share(activation(draw, [5]), 1e9), 1)

    def test_error(self, draw):
        exact = draw.normal(3, 4, 5)
        got = exact + draw.normal(3, 4, 5) * 0.1
        right = (got.double() - exact.double()).norm() / exact.double().norm()
        assert_number(relative_error(got, exact), right.item())
        assert_number(relative_error(exact, exact), 0)

    def test_error_between_dtypes(self, draw):
        """Differences that float16 rounds; an exact result in more bits than what came."""
        got = (30 * draw.normal(40, 5)).half()
        for exact in (draw.normal(40, 5).half(), draw.normal(40, 5), draw.normal(40, 5).double()):
            right = (got.double() - exact.double()).norm() / exact.double().norm()
            assert_number(relative_error(got, exact), right.item(), f"float16, {exact.dtype}")

    def test_error_of_half_precision_is_summed_in_more(self):
        exact = torch.full((300, 300), 300.0, dtype=torch.float16)
        assert_number(relative_error(exact * 1.25, exact), 0.25)

    def test_refusals(self, draw):
        x = draw.normal(3, 4)
        assert_value_error("other shapes", relative_error, x, draw.normal(4, 3))
        assert_value_error("a shape that broadcasts", relative_error, x, draw.normal(1, 4))
        assert_value_error("nothing to compare with", relative_error, x, torch.zeros(3, 4))
