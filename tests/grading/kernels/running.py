"""The lab's side: launches that come as data, run one after the other as those of one lab."""

from __future__ import annotations

from torch import Tensor

from assignment.provided.lab.kernel import Lab, Launch
from assignment.provided.lab.kernel.session import OPTIONS

from .description import Description
from .rebuild import rebuild
from .tensors import Packed, unpack

MOST_PROGRAMS = 4096  # of one launch: the interpreter takes milliseconds for each


class TooManyPrograms(ValueError):
    """A grid that would take minutes here."""


class Runner:
    """One lab, for the launches of one call."""

    def __init__(self, seed: int):
        self._lab = Lab(seed)
        self._storages: dict[int, Tensor] = {}

    def run(self, sent: dict) -> tuple[dict[int, Tensor], Launch]:
        """(bytes of each storage afterwards, what was seen).

        Raises:
            NotAllowed, Unpackable, TooManyPrograms: what was sent is no launch.
        """
        kernel = rebuild(Description(**sent["description"]))
        x, y, z = sent["grid"]
        if not (min(x, y, z) >= 0 and x * y * z <= MOST_PROGRAMS):
            raise TooManyPrograms(
                f"a grid of {[x, y, z]}: at most {MOST_PROGRAMS} programs run here"
            )
        packed = self._at_home(Packed(**sent["packed"]))
        named = unpack(packed)
        options = {name: value for name, value in sent["options"].items() if name in OPTIONS}
        self._lab.run(kernel, (x, y, z), (), named | options)
        return packed.storages, self._lab.launches[-1]

    def _at_home(self, packed: Packed) -> Packed:
        """The same storage in every launch, so that the lab knows what was written before."""
        for number, raw in packed.storages.items():
            held = self._storages.setdefault(number, raw)
            if held is not raw:
                held.copy_(raw)
            if number in packed.fresh:
                self._lab.fresh.allocated(held)
            else:
                self._lab.fresh.filled(held)
        packed.storages = {number: self._storages[number] for number in packed.storages}
        return packed
