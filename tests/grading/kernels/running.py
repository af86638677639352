"""The lab's side: launches that come as data, run one after the other as those of one lab."""

from __future__ import annotations

import json
import traceback
from functools import cache

from torch import Tensor
from triton.runtime.jit import JITFunction

from assignment.provided.lab.kernel import Lab, Launch
from assignment.provided.lab.kernel.call import Call
from assignment.provided.lab.kernel.ptx import DoesNotCompile, Ptx, ptx_of
from assignment.provided.lab.kernel.session import OPTIONS
from tests.grading.errors import SubmissionError

from .description import Description
from .rebuild import is_rebuilt, rebuild
from .tensors import Packed, unpack

MOST_PROGRAMS = 4096  # of one launch: the interpreter takes milliseconds for each
MOST_PROBLEMS = 1000  # that are told of one launch


class TooManyPrograms(ValueError):
    """A grid that would take minutes here."""


class Labs:
    """The labs of one test, one for each call. Only the last is open."""

    def __init__(self) -> None:
        self._calls: list[list[Call]] = []

    def open(self, seed: int, integer_bits: int) -> int:
        """A lab without launches, and its number."""
        self._open = Lab(seed, integer_bits)
        self._storages: dict[int, Tensor] = {}
        self._calls.append(self._open.calls)
        return len(self._calls) - 1

    def launch(self, sent: dict) -> tuple[dict[int, Tensor], Launch]:
        """(bytes of each storage afterwards, what was seen).

        Raises:
            NotAllowed, Unpackable, TooManyPrograms: what was sent is no launch.
            SubmissionError: the kernel stopped with an error.
        """
        kernel = _rebuilt(json.dumps(sent["description"], sort_keys=True))
        x, y, z = sent["grid"]
        if not (min(x, y, z) >= 0 and x * y * z <= MOST_PROGRAMS):
            raise TooManyPrograms(
                f"a grid of {[x, y, z]}: at most {MOST_PROGRAMS} programs run here"
            )
        packed = self._at_home(Packed(**sent["packed"]))
        named = unpack(packed)
        options = {name: value for name, value in sent["options"].items() if name in OPTIONS}
        try:
            self._open.run(kernel, (x, y, z), (), named | options)
        except Exception as error:
            raise SubmissionError(_told(error, kernel)) from error
        launch = self._open.launches[-1]
        del launch.problems[MOST_PROBLEMS:]
        return packed.storages, launch

    def translate(self, lab: int, launch: int, architecture: str) -> Ptx | str:
        """A launch of a lab, for the assembler; or why it does not compile."""
        try:
            return ptx_of(self._calls[lab][launch], architecture)
        except DoesNotCompile as error:
            return str(error)

    def _at_home(self, packed: Packed) -> Packed:
        """The same storage in every launch, so that the lab knows what was written before."""
        for number, raw in packed.storages.items():
            held = self._storages.setdefault(number, raw)
            if held is not raw:
                held.copy_(raw)
            if number in packed.fresh:
                self._open.fresh.allocated(held)
            else:
                self._open.fresh.filled(held)
        packed.storages = {number: self._storages[number] for number in packed.storages}
        return packed


def _told(error: Exception, kernel: JITFunction) -> str:
    """Where in the kernel or its helpers, and what: lines count from each one's `def`."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_rebuilt(f.filename)]
    place = f"{frames[-1].name}, line {frames[-1].lineno}" if frames else kernel.fn.__name__
    return f"{place}: {type(error).__name__}: {error}"


@cache
def _rebuilt(description: str) -> JITFunction:
    return rebuild(Description(**json.loads(description)))
