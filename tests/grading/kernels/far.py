"""The grader's end of a lab: what a submission launches is sent on to a child that has none."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from assignment.provided.lab.kernel.launch import Launch
from tests.grading.errors import SubmissionError
from tests.grading.transport import labs

if TYPE_CHECKING:
    from assignment.provided.lab.kernel.ptx import Ptx

__tracebackhide__ = True


class FarLab:
    """A function of the test, as the submission's side sees it: send(launch) -> storages.

    launches: what was seen, told by the lab's child and by nobody else.
    """

    most_bytes = 2**26  # of the tensors of one launch

    def __init__(self, seed: int, integer_bits: int):
        self.launches: list[Launch] = []
        self._lab = labs.lab()
        self._opening = {"seed": seed, "integer_bits": integer_bits}
        self._number: int | None = None

    def __call__(self, sent: dict) -> dict[int, Tensor]:
        if not is_data(sent):
            raise SubmissionError("a kernel is given something that is neither tensor nor number")
        if self._number is None:
            self._number = self._lab.request("open_lab", self._opening)
        storages, launch = self._lab.request("launch", {"sent": sent})
        self.launches.append(launch)
        return storages

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


def is_data(value: object) -> bool:
    """Nothing that lives in a process, as objects and functions do."""
    if isinstance(value, dict):
        return all(is_data(part) for item in value.items() for part in item)
    if isinstance(value, list | tuple):
        return all(map(is_data, value))
    return value is None or isinstance(value, bool | int | float | str | Tensor | torch.dtype)
