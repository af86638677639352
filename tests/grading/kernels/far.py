"""The grader's end of a lab: what a submission launches is sent on to a child that has none."""

from __future__ import annotations

from torch import Tensor

from assignment.provided.lab.kernel.launch import Launch
from tests.grading.transport import proxy


class FarLab:
    """A function of the test, as the submission's side sees it: send(launch) -> storages.

    launches: what was seen, told by the lab's child and by nobody else.
    """

    most_bytes = 2**26  # of the tensors of one launch

    def __init__(self, seed: int):
        self.launches: list[Launch] = []
        self._lab, self._seed = proxy.lab(), seed

    def __call__(self, sent: dict) -> dict[int, Tensor]:
        if not self.launches:
            self._lab.request("open_lab", {"seed": self._seed})
        storages, launch = self._lab.request("launch", {"sent": sent})
        self.launches.append(launch)
        return storages
