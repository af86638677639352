"""What a graded test may do with kernels; as `tests.grading.boundary`, the same on either side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from assignment.provided.lab.cost import Cost
from assignment.provided.lab.kernel import Launch
from assignment.provided.lab.kernel.session import check
from tests.grading.boundary import check_cost, is_remote
from tests.grading.transport import proxy, sides

from .far import FarLab


@dataclass(frozen=True)
class Seen:
    """What a call did that launches Triton kernels.

    arguments: as they are after the call. launches: of kernels. cost: of the torch work beside.
    """

    value: object
    arguments: list
    launches: list[Launch]
    cost: Cost


def in_lab(target: Callable, *args, seed: int = 0) -> Seen:
    """Call `target` in the kernel lab; in official grading, its kernels run where it has no hand.

    Raises:
        KernelFault: a kernel did what none may: out of bounds, a race, a read of unwritten memory.
    """
    if is_remote(target):
        far = FarLab(seed)
        value, arguments, cost = proxy.request("in_lab", target=target, args=list(args), send=far)
        check_cost(cost)
        launches = far.launches
    else:
        arguments = list(args)
        value, launches, cost = sides.in_lab(target, args, seed)
    check(launches)
    return Seen(value, arguments, launches, cost)
