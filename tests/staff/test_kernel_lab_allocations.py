"""Which memory the lab takes for unwritten, here and where launches are sent away."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.lab.kernel.allocations import Allocations, Fresh
from assignment.provided.lab.kernel.examples import _add_kernel
from tests.grading.kernels.sending import launches_sent
from tests.grading.kernels.tensors import bytes_of

MAKERS = {
    "empty": lambda: torch.empty(3, 4),
    "empty_like": lambda: torch.empty_like(torch.zeros(3, 4)),
    "new_empty": lambda: torch.zeros(1).new_empty(3, 4),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_looking_at_memory_does_not_write_it(make):
    fresh = Fresh()
    with Allocations(fresh):
        tensor = make()
        bytes_of(tensor)
        tensor.t()[1:]
        assert fresh.is_fresh(tensor)


@pytest.mark.parametrize("write", [lambda x: x.zero_(), lambda x: x[:1].copy_(torch.ones(4))])
def test_writing_does(write):
    fresh = Fresh()
    with Allocations(fresh):
        tensor = torch.empty(3, 4)
        write(tensor)
        assert not fresh.is_fresh(tensor)


def test_a_launch_that_is_sent_away_tells_what_is_unwritten():
    """And so does the next, which has the first one's results: the lab knows what was written."""
    sent = []

    def send(launch: dict) -> dict:
        sent.append(launch["packed"])
        return {number: raw.clone() for number, raw in launch["packed"]["storages"].items()}

    x = torch.ones(8)
    with launches_sent(send):
        out, filled = torch.empty(8), torch.empty(8).fill_(2)
        for _ in range(2):
            _add_kernel[(1,)](x, filled, out, 8, TILE=8)
    for packed in sent:
        numbers = {name: view[0] for name, view in packed["views"].items()}
        assert packed["fresh"] == [numbers["out"]]
