"""What a test says of a call that should have been refused, or of a result without gradients."""

from __future__ import annotations

import pytest
import torch

from tests.grading.boundary import grad_of
from tests.grading.closeness import Mismatch
from tests.grading.errors import SubmissionError
from tests.grading.refusal import assert_value_error


def test_a_refusal_is_what_was_asked_for():
    assert_value_error("int('x')", int, "x")


def test_a_call_that_was_not_refused_is_named():
    with pytest.raises(Mismatch, match=r"^int\('7'\): expected ValueError, got no error$"):
        assert_value_error("int('7')", int, "7")


def test_another_error_stays_what_it_is():
    with pytest.raises(TypeError):
        assert_value_error("int([])", int, [])


def test_a_result_that_is_detached_is_said_to_be():
    x = torch.tensor([1.0, 2.0])
    with pytest.raises(SubmissionError, match="does not depend on any argument for autograd"):
        grad_of(lambda x: (x * x).detach(), x)


def test_an_argument_that_is_not_used_has_a_gradient_of_zeros():
    x, y = torch.tensor([1.0, 2.0]), torch.tensor([3.0])
    _, gradients = grad_of(lambda x, y: (x * x).sum(), x, y)
    assert [gradient.tolist() for gradient in gradients] == [[2.0, 4.0], [0.0]]


def test_what_has_no_gradient_is_passed_on_as_it_is():
    x, chosen = torch.tensor([1.0, 2.0]), torch.tensor([True, False])
    value, gradients = grad_of(lambda x, chosen, factor: factor * x[chosen].sum(), x, chosen, 3)
    assert value == 3 and [gradient.tolist() for gradient in gradients] == [[3.0, 0.0]]
