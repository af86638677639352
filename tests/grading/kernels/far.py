"""The grader's end of a lab: what a submission launches is sent on to a child that has none."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from assignment.provided.lab.cost import Cost
from assignment.provided.lab.kernel.launch import Launch
from tests.grading.errors import SubmissionError
from tests.grading.transport import labs

from .origins import Origins

if TYPE_CHECKING:
    from assignment.provided.lab.kernel.ptx import Ptx

__tracebackhide__ = True


class FarLab:
    """A function of the test, as the submission's side sees it: send(launch) -> storages.

    launches: what was seen, told by the lab's child and by nobody else.
    """

    most_bytes = 2**26  # of the tensors of one launch

    def __init__(self, arguments: list, seed: int, integer_bits: int):
        self.launches: list[Launch] = []
        self._origins = Origins(arguments)
        self._lab = labs.lab()
        self._opening = {"seed": seed, "integer_bits": integer_bits}
        self._number: int | None = None

    def __call__(self, sent: dict) -> dict[int, Tensor]:
        if not is_data(sent):
            raise SubmissionError("a kernel is given something that is neither tensor nor number")
        if self._number is None:
            self._number = self._lab.request("open_lab", self._opening)
        self._origins.meet(_not_fresh(sent))
        storages, launch = self._lab.request("launch", {"sent": sent})
        self._origins.know(storages)
        self.launches.append(launch)
        return storages

    def at_least_what_was_seen(self, cost: Cost, answer: list) -> Cost:
        """What the submission's process says of torch's work, and no less than passed here."""
        self._origins.meet(answer)
        return replace(cost, bytes_written=max(cost.bytes_written, self._origins.written_by_torch))

    def translate(self, architecture: str) -> list[Ptx]:
        """The launches, for the assembler.

        Raises:
            DoesNotCompile: the compiler refuses one.
        """
        return [self._translate(number, architecture) for number in range(len(self.launches))]

    def _translate(self, launch: int, architecture: str) -> Ptx:
        from assignment.provided.lab.kernel.ptx import DoesNotCompile

        which = {"lab": self._number, "launch": launch, "architecture": architecture}
        translated = self._lab.request("translate", which)
        if isinstance(translated, str):
            raise DoesNotCompile(translated)
        return translated


def _not_fresh(sent: dict) -> list[Tensor]:
    """The storages of a launch that somebody has written to."""
    try:
        packed = sent["packed"]
        return [content for n, content in packed["storages"].items() if n not in packed["fresh"]]
    except (KeyError, TypeError, AttributeError):
        raise SubmissionError("what it launches is no launch") from None


def is_data(value: object) -> bool:
    """Nothing that lives in a process, as objects and functions do."""
    if isinstance(value, dict):
        return all(is_data(part) for item in value.items() for part in item)
    if isinstance(value, list | tuple):
        return all(map(is_data, value))
    return value is None or isinstance(value, bool | int | float | str | Tensor | torch.dtype)
