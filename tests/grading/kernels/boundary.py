"""What a graded test may do with kernels; as `tests.grading.boundary`, the same on either side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assignment.provided.lab.cost import Cost
from assignment.provided.lab.kernel import Launch
from assignment.provided.lab.kernel.faults import check
from assignment.provided.lab.kernel.session import WITHOUT_TRITON, triton
from tests.grading.boundary import check_cost, is_remote
from tests.grading.errors import SubmissionError
from tests.grading.transport import proxy, sides

from .far import FarLab

if TYPE_CHECKING:
    from assignment.provided.lab.kernel.compiled import Compiled
    from assignment.provided.lab.kernel.ptx import Ptx

__tracebackhide__ = True


@dataclass(frozen=True)
class Seen:
    """What a call did that launches Triton kernels.

    arguments: as they are after the call. launches: of kernels. cost: of the torch work beside.
    waits: as of a `Lab`. In official grading the submission's process tells it: whoever forges it
    gains what a test takes for a wait, and no more.
    """

    value: object
    arguments: list
    launches: list[Launch]
    cost: Cost
    waits: list[str]
    _translate: Callable[[str], list[Ptx]] = field(repr=False)

    def compiled(self, architecture: str = "sm_90") -> list[Compiled]:
        """Each launch as machine code of an A100 ("sm_80") or H100 ("sm_90"), in order.

        Raises:
            DoesNotCompile: the compiler refuses a launch.
        """
        from assignment.provided.lab.kernel.compiled import ARCHITECTURES, read

        chosen = ARCHITECTURES[architecture]
        return [read(ptx, chosen) for ptx in self._translate(architecture)]


def in_lab(target: Callable, *args, seed: int = 0, integer_bits: int = 32) -> Seen:
    """Call `target` in the kernel lab; in official grading, its kernels run where it has no hand.

    Args:
        seed: decides the order of the programs.
        integer_bits: of int32; with fewer, a small cache shows what a large one would.

    Raises:
        KernelFault: a kernel did what none may: out of bounds, a race, a read of unwritten memory.
        SubmissionError: there is no Triton on this machine.
    """
    if triton is None:
        raise SubmissionError(WITHOUT_TRITON)
    if is_remote(target):
        far = FarLab(list(args), seed, integer_bits)
        answer = proxy.request("in_lab", target=target, args=list(args), send=far)
        value, arguments, cost, waits = answer
        check_cost(cost)
        _check_waits(waits)
        cost = far.at_least_what_was_seen(cost, [value, *arguments])
        launches, translate = far.launches, far.translate
    else:
        arguments = list(args)
        value, opened = sides.in_lab(target, args, seed, integer_bits)
        launches, translate = opened.launches, opened.translated
        cost, waits = opened.cost, opened.waits
    check(launches, integer_bits)
    return Seen(value, arguments, launches, cost, waits, translate)


def _check_waits(waits: object) -> None:
    if type(waits) is not list or not all(type(w) is str and w.isidentifier() for w in waits):
        raise SubmissionError("what the submission's process says of its waits is nonsense")
