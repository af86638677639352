"""The closeness rule forgives rounding and nothing else, and says where the first difference is."""

from __future__ import annotations

import math

import pytest
import torch

from tests.grading.closeness import Mismatch, assert_close, assert_equal
from tests.grading.transport.proxy import Handle

EXACT = torch.linspace(-1, 1, 24, dtype=torch.float64).reshape(2, 3, 4)
AXES = "batch heads seq"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_rounding_to_the_dtype_is_forgiven(dtype):
    assert_close(EXACT.to(dtype), EXACT, axes=AXES)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("wrong", [math.nan, math.inf, 0.5], ids=str)
def test_one_wrong_element_is_found_by_axis_and_index(dtype, wrong):
    got = EXACT.to(dtype)
    got[1, 0, 2] = wrong
    with pytest.raises(AssertionError, match="batch 1, heads 0, seq 2: expected 0.217.*1 of 24"):
        assert_close(got, EXACT, axes=AXES)


def test_the_allowance_grows_with_what_the_textbook_form_loses_and_no_further():
    naive = EXACT + 1e-3
    assert_close((EXACT + 3.9e-3).float(), EXACT, naive=naive)
    with pytest.raises(AssertionError, match="allowed 0.004"):
        assert_close((EXACT + 4.1e-3).float(), EXACT, naive=naive)


@pytest.mark.parametrize("got", [torch.zeros(2, 3, 4), torch.full((2, 3, 4), 0.1), -EXACT.float()])
def test_zeros_a_constant_and_a_sign_are_not_close(got):
    with pytest.raises(AssertionError):
        assert_close(got, EXACT)


@pytest.mark.parametrize(
    ("got", "why"),
    [
        (None, "got None$"),
        (Handle(None, 0, "RaggedKeys"), "got RaggedKeys$"),
        (Handle(None, 0, "</pre> of the submission>"), "got </pre> of the submission>$"),
        ([0.0], "got list"),
        (
            torch.zeros(2, 4, 3),
            r"expected shape \[2, 3, 4\] \[batch, heads, seq\], got \[2, 4, 3\]",
        ),
        (torch.zeros(2, 3, 4, dtype=torch.int64), "floating dtype, got int64"),
    ],
    ids=str,
)
def test_what_is_no_such_tensor_is_named(got, why):
    with pytest.raises(AssertionError, match=why):
        assert_close(got, EXACT, axes=AXES)


def test_empty_tensors_are_compared_by_shape():
    empty = torch.zeros(2, 0, dtype=torch.float64)
    assert_close(empty.float(), empty)
    with pytest.raises(AssertionError):
        assert_close(torch.zeros(0, 2), empty)


def test_exact_equality_of_tensors_and_lists():
    ids = torch.tensor([[1, 2], [3, 4]])
    assert_equal(ids.int(), ids)
    assert_equal([1, 2], [1, 2])
    with pytest.raises(AssertionError, match="row 1, column 0: expected 3, got 9; 1 of 4"):
        assert_equal(torch.tensor([[1, 2], [9, 4]]), ids, axes="row column")
    with pytest.raises(AssertionError, match=r"expected \[1\], got \[2\]"):
        assert_equal([2], [1])
    with pytest.raises(AssertionError, match="expected a tensor, got list"):
        assert_equal([1, 2], torch.tensor([1, 2]))
    with pytest.raises(AssertionError, match="expected 3, got a tensor of shape \\[2\\]"):
        assert_equal(torch.tensor([3, 3]), 3)


def parts(error):
    return error.what, error.where, error.expected, error.got, error.note


def test_a_mismatch_has_its_parts_and_they_are_in_its_line():
    got = EXACT.float()
    got[1, 0, 2] = 0.5
    with pytest.raises(Mismatch) as caught:
        assert_close(got, EXACT, axes=AXES, what="keys")
    what, where, expected, came, note = parts(caught.value)
    assert (what, where, came) == ("keys", "batch 1, heads 0, seq 2", "0.5")
    assert float(expected) == pytest.approx(float(EXACT[1, 0, 2]), rel=1e-5)
    assert note.startswith("1 of 24 elements are off; largest difference 0.283, allowed ")
    line = f"keys: first differs at {where}: expected {expected}, got {came}; {note}"
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("compare", "expected"),
    [
        (lambda: assert_equal([2], [1], what="ids"), ("ids", "", "[1]", "[2]", "")),
        (lambda: assert_equal(None, EXACT), ("", "", "a tensor", "None", "")),
        (
            lambda: assert_equal(EXACT[0], EXACT, axes=AXES),
            ("", "", "shape [2, 3, 4] [batch, heads, seq]", "[3, 4]", ""),
        ),
        (
            lambda: assert_equal(torch.tensor(3), torch.tensor(2)),
            ("", "", "2", "3", ""),
        ),
    ],
)
def test_every_comparison_tells_expected_and_got(compare, expected):
    with pytest.raises(Mismatch) as caught:
        compare()
    assert parts(caught.value) == expected


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2], ids=str)
def test_a_coarse_dtype_excuses_nothing(dtype):
    with pytest.raises(AssertionError):
        assert_close(torch.zeros(2, 3, 4).to(dtype), EXACT)
    with pytest.raises(AssertionError):  # nor a coarser one than the textbook form's
        assert_close(EXACT.to(torch.bfloat16), EXACT, naive=EXACT.float())


def test_equal_means_equal_in_the_wider_dtype():
    lengths = torch.tensor([0, 3, 5])
    assert_equal(lengths.int(), lengths)
    assert_equal(torch.tensor([0.5]), torch.tensor([0.5], dtype=torch.float64))
    with pytest.raises(AssertionError, match="expected dtype int64, got bool"):
        assert_equal(lengths > 0, lengths)
    with pytest.raises(AssertionError):
        assert_equal(torch.tensor([0, 3, 5]).to(torch.uint8), torch.tensor([0, 3, 261]))
    with pytest.raises(AssertionError):
        assert_equal(torch.tensor([0.0]), torch.tensor([1e-300], dtype=torch.float64))
