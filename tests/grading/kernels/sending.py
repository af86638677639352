"""The student's side: a launch is described, sent away, and its results written back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from torch import Tensor
from triton.runtime.jit import JITFunction

from assignment.provided.lab.kernel.allocations import Allocations, Fresh
from assignment.provided.lab.kernel.session import bound, grid_of, launches_go_to

from .description import Description, describe
from .tensors import bytes_of, pack


@contextmanager
def launches_sent(send: Callable[[dict], dict[int, Tensor]]) -> Iterator[None]:
    """Inside, kernel[grid](…) goes to `send`, which gives the bytes of each storage afterwards."""
    sender = _Sender(send)
    with launches_go_to(sender.launch), Allocations(sender.fresh):
        yield


class _Sender:
    def __init__(self, send: Callable):
        self._send = send
        self._numbers: dict[int, int] = {}  # of storages, by address
        self._kept: list[object] = []  # so that no address is given to another
        self._descriptions: dict[JITFunction, Description] = {}
        self.fresh = Fresh()

    def launch(self, kernel: JITFunction, grid, args: tuple, kwargs: dict) -> None:
        named, options = bound(kernel, args, kwargs)
        tensors = [value for value in named.values() if isinstance(value, Tensor)]
        self._kept += tensors
        packed = pack(named, self._numbers)
        by_number = {self._numbers[t.untyped_storage().data_ptr()]: t for t in tensors}
        packed.fresh = [n for n, tensor in by_number.items() if self.fresh.is_fresh(tensor)]
        written = self._send(
            {
                "description": dataclasses.asdict(self._describe(kernel)),
                "grid": list(grid_of(grid, named)),
                "options": options,
                "packed": vars(packed),
            }
        )
        for number, tensor in by_number.items():
            bytes_of(tensor).copy_(written[number])
            if number in packed.fresh:
                self.fresh.allocated(tensor)  # what the kernel wrote of it, the lab knows

    def _describe(self, kernel: JITFunction) -> Description:
        if kernel not in self._descriptions:
            self._descriptions[kernel] = describe(kernel)
        return self._descriptions[kernel]
