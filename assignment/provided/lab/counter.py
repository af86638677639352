"""Count what a piece of torch code costs, operator by operator, in place of timing it.

    with CostCounter() as counter:
        scores = q @ k.transpose(-1, -2)
    counter.cost.flops, counter.cost.bytes

The numbers are those of the algorithm, the same on every machine: FLOPs (a multiply-add is 2) and
bytes that each operator reads and writes, as if it fetched every input from memory once and wrote
every output once. `flops.py` and `traffic.py` say what each operator counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .cost import Cost, LeftTorch
from .operators import cost_of
from .waits import is_asking, is_fetching

__all__ = ["Cost", "CostCounter", "LeftTorch", "Tally", "counting_suspended"]

# Methods of a tensor that hand its memory to code outside torch.
DOORS = {
    "numpy", "__array__", "data_ptr", "untyped_storage", "storage", "_typed_storage", "__dlpack__",
    "apply_", "map_", "map2_", "__reduce_ex__",
}  # fmt: skip
PRINTING = {"__repr__", "__format__"}

_suspensions = 0  # > 0 while some counting_suspended() is open


@dataclass(frozen=True)
class Tally:
    """Calls of one operator and what they cost together."""

    calls: int
    cost: Cost


class CostCounter:
    """Counts the torch operations between entering and leaving it.

    Counters nest: each counts everything inside it. Work of autograd counts too, forward and
    backward. Lengths and other integers may leave torch (`int(n)`, `lengths.tolist()`, `len(x)`),
    and one number at a time of any kind (`loss.item()`); printing a tensor is allowed and free.

    waits: the calls, in order, for which a CPU would wait until its GPU is done: see `waits.py`.

    Raises, inside the block:
        LeftTorch: on anything that lets code outside torch work on a tensor: `numpy()`, `tolist()`
            of floating-point numbers, `data_ptr()` and the like, or an operator that is not
            torch's own.
    """

    def __init__(self) -> None:
        self.waits: list[str] = []
        self._called = ""  # the function that is at work
        self._by_op: dict[str, Tally] = {}
        self._modes = ExitStack()
        self._entered = False

    @property
    def cost(self) -> Cost:
        """The cost so far; after the block, of the block."""
        return sum((tally.cost for tally in self._by_op.values()), Cost())

    @property
    def by_op(self) -> Mapping[str, Tally]:
        """The same by ATen operator, such as "aten.bmm"."""
        return MappingProxyType(dict(self._by_op))

    def table(self) -> str:
        """`by_op` as text, most bytes first."""
        lines = [f"{'operator':<48}{'calls':>8}{'FLOPs':>18}{'read':>16}{'written':>16}"]
        tallies = sorted(self._by_op.items(), key=lambda item: -item[1].cost.bytes)
        for name, tally in [
            *tallies,
            ("total", Tally(sum(t.calls for _, t in tallies), self.cost)),
        ]:
            cost = tally.cost
            lines.append(
                f"{name:<48}{tally.calls:>8,}{cost.flops:>18,}"
                f"{cost.bytes_read:>16,}{cost.bytes_written:>16,}"
            )
        return "\n".join(lines)

    def __enter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a CostCounter counts one block: make a new one for the next")
        self._entered = True
        self._modes.enter_context(_Dispatched(self))
        self._modes.enter_context(_Called(self))
        return self

    def __exit__(self, *exception: object) -> None:
        self._modes.close()

    def _add(self, name: str, cost: Cost) -> None:
        tally = self._by_op.get(name, Tally(0, Cost()))
        self._by_op[name] = Tally(tally.calls + 1, tally.cost + cost)


@contextmanager
def counting_suspended() -> Iterator[None]:
    """What runs inside is neither counted nor forbidden, by any counter: the grader's own work."""
    global _suspensions
    _suspensions += 1
    try:
        yield
    finally:
        _suspensions -= 1


class _Dispatched(TorchDispatchMode):
    """Sees every ATen operator after torch has broken functions down to them."""

    supports_higher_order_operators = True  # to refuse them below, like all that hides its work

    def __init__(self, counter: CostCounter):
        super().__init__()
        self.counter = counter

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # else torch imports its compiler at the first operator, which takes seconds

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _suspensions:
            return operator(*args, **kwargs)
        if operator.namespace not in ("aten", "prim", "prims"):
            raise LeftTorch(f"{operator} is not one of torch's own operators: its cost is unknown")
        with self:  # in inference mode composite functions arrive whole
            result = operator.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = operator(*args, **kwargs)
        with torch._C.DisableTorchFunction():  # reading shapes and pointers is the counter's own
            self.counter._add(str(operator.overloadpacket), cost_of(operator, args, kwargs, result))
            if is_asking(operator, args, kwargs):
                self.counter.waits.append(self.counter._called or operator.overloadpacket.__name__)
        return result


class _Called(TorchFunctionMode):
    """Sees calls of tensor methods, among them those through which numbers leave torch."""

    def __init__(self, counter: CostCounter):
        super().__init__()
        self.counter = counter

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if _suspensions:
            return function(*args, **kwargs)
        name = getattr(function, "__name__", "")
        if is_fetching(name, args, kwargs):
            self.counter.waits.append(name)
        if name in PRINTING:
            with counting_suspended():
                return function(*args, **kwargs)
        if name in DOORS:
            raise LeftTorch(
                f"Tensor.{name} hands numbers to code outside torch, where no cost can be counted: "
                "compute with torch operations (integers may leave by int() or tolist())"
            )
        if name == "tolist" and _is_data(args[0]):
            raise LeftTorch(
                f"Tensor.tolist of {args[0].numel()} floating-point numbers: compute with torch "
                "operations, outside torch no cost can be counted"
            )
        self.counter._called = name
        try:
            return function(*args, **kwargs)
        finally:
            self.counter._called = ""


def _is_data(tensor: Tensor) -> bool:
    return tensor.numel() > 1 and (tensor.is_floating_point() or tensor.is_complex())
