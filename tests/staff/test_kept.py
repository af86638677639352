"""How many bytes of tensors an object keeps alive."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

from tests.grading.boundary import call_with_parameters, kept_bytes

SIZE = 4 * 7 * 40


class Holder:
    def __init__(self, kept):
        self.kept = kept


def weight():
    return torch.randn(7, 40)


def closing_over(value):
    return lambda: value


@pytest.mark.parametrize(
    "keep",
    [
        lambda w: w,
        lambda w: [{"weight": (w, w)}],
        lambda w: w[:1, :1],
        lambda w: w.numpy()[:2],
        lambda w: closing_over(w),
        lambda w: functools.partial(print, w),
        lambda w: Holder([w, w.T]),
        lambda w: Holder(w).__init__,
        lambda w: nn.Parameter(w),
    ],
)
def test_all_that_is_reached_counts_once_and_whole(keep):
    assert kept_bytes(Holder(keep(weight()))) == SIZE


def test_a_module_and_its_parts():
    module = nn.Sequential(nn.Linear(40, 7), nn.BatchNorm1d(7, affine=False))
    assert kept_bytes(module) == SIZE + 4 * 7 + 2 * 4 * 7 + 8


def test_what_autograd_would_go_back_to():
    holder = call_with_parameters(lambda w: Holder(w.sum(dim=1)), weight())
    assert kept_bytes(holder) == SIZE + 4 * 7
    holder.kept.sum().backward()
    assert kept_bytes(holder) == 2 * SIZE + 4 * 7, "the gradient is there, too"
    holder.kept = holder.kept.detach()
    assert kept_bytes(holder) == 4 * 7


def test_what_is_elsewhere_does_not_count():
    Holder.of_the_class = weight()
    try:
        assert kept_bytes(Holder(closing_over(torch))) == 0
    finally:
        del Holder.of_the_class
