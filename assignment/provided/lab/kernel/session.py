"""A lab: everything that is launched inside it is run and watched here."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor

from ..cost import Cost
from ..counter import CostCounter, counting_suspended
from .allocations import Allocations, Fresh
from .call import Call
from .faults import check
from .launch import Launch
from .memory import Argument, Storage

try:
    import triton
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction
except ModuleNotFoundError:  # it exists for Linux only
    triton = None

if TYPE_CHECKING:
    from .compiled import Compiled
    from .ptx import Ptx

VERSIONS = ("3.6", "3.7")  # of Triton; the interpreter's insides are different in others
WITHOUT_TRITON = "the kernel lab needs Triton, which exists for Linux only: try this unit there"
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")  # of a launch, beside its arguments

__tracebackhide__ = True  # pytest's word: a failing test shows the launcher and the kernel


class Lab:
    """What was launched, and what it did.

    launches: in order. calls: the same as the compiler sees them. cost: of the torch operations
    around them. waits: what the launcher called, in order, to know what is in a tensor: on a GPU it
    would wait for it.
    """

    def __init__(self, seed: int = 0, integer_bits: int = 32):
        self.launches: list[Launch] = []
        self.calls: list[Call] = []
        self.fresh = Fresh()
        self._seed, self._integer_bits = seed, integer_bits
        self._storages: dict[int, tuple[Storage, Tensor]] = {}
        self._counter = CostCounter()

    @property
    def cost(self) -> Cost:
        return self._counter.cost

    @property
    def waits(self) -> list[str]:
        return self._counter.waits

    def check(self) -> None:
        """
        Raises:
            KernelFault: a launch read or wrote out of bounds, or what another program writes, or
                read what nobody had written.
        """
        check(self.launches, self._integer_bits)

    def compiled(self, architecture: str = "sm_90") -> list[Compiled]:
        """Each launch as machine code of an A100 ("sm_80") or H100 ("sm_90").

        Raises:
            DoesNotCompile: the compiler refuses a launch.
        """
        from .compiled import ARCHITECTURES, read

        chosen = ARCHITECTURES[architecture]
        return [read(ptx, chosen) for ptx in self.translated(architecture)]

    def translated(self, architecture: str) -> list[Ptx]:
        """Each launch as the assembler takes it; errors as `compiled`."""
        from .ptx import ptx_of

        return [ptx_of(call, architecture) for call in self.calls]

    def run(self, kernel: JITFunction, grid, args: tuple, kwargs: dict) -> None:
        """One launch, of kernel[grid](*args, **kwargs)."""
        from .execute import execute

        named, options = bound(kernel, args, kwargs)
        constants = {p.name: named[p.name] for p in kernel.params if p.is_constexpr}
        size = grid_of(grid, named)
        launch = Launch(kernel.fn.__name__, size, constants, options.get("num_warps", 4))
        launch.program_bytes = [0] * launch.programs
        launch.program_flops = [0] * launch.programs
        arguments = {
            name: Argument(name, value, self._storage(value))
            for name, value in named.items()
            if isinstance(value, Tensor)
        }
        for argument in arguments.values():
            argument.storage.begin_launch(launch.programs)
        try:
            order = self._seed + len(self.launches)
            execute(kernel, size, named, arguments, launch, order, self._integer_bits)
        finally:
            for argument in arguments.values():
                argument.tell_unique(launch)
            self.launches.append(launch)
            self.calls.append(Call.of(kernel, named, options))

    def _storage(self, tensor: Tensor) -> Storage:
        address = tensor.untyped_storage().data_ptr()
        if address not in self._storages:
            # The tensor is kept, so that no other gets its address.
            self._storages[address] = (Storage(tensor, self.fresh.is_fresh(tensor)), tensor)
        storage = self._storages[address][0]
        if not self.fresh.is_fresh(tensor):
            storage.filled()  # meanwhile
        return storage


@contextmanager
def lab(seed: int = 0, integer_bits: int = 32) -> Iterator[Lab]:
    """Inside, `kernel[grid](…)` on CPU tensors runs in the lab.

    Args:
        seed: decides the order of the programs.
        integer_bits: of int32. With 16, offsets in a small cache come to their end as those in one
            that is 65,536 times as large would: see `narrow`.

    Raises:
        RuntimeError: there is no Triton, or not one that the lab knows.
    """
    opened = Lab(seed, integer_bits)
    with launches_go_to(opened.run), opened._counter, Allocations(opened.fresh):
        yield opened


@contextmanager
def launches_go_to(run: Callable[[JITFunction, object, tuple, dict], None]) -> Iterator[None]:
    """Inside, kernel[grid](*args, **kwargs) is run(kernel, grid, args, kwargs).

    Raises:
        RuntimeError: as `lab`.
    """
    if triton is None:
        raise RuntimeError(WITHOUT_TRITON)
    if not triton.__version__.startswith(tuple(f"{version}." for version in VERSIONS)):
        known = ", ".join(VERSIONS)
        raise RuntimeError(f"the kernel lab knows Triton {known}; this is {triton.__version__}")
    before, timed = JITFunction.run, Autotuner._bench

    def launch(kernel, *args, grid, warmup=False, **kwargs):
        with counting_suspended():
            unwrap(kernel)
        grid = grid_of(grid, bound(kernel, args, kwargs)[0])  # the submission's work: it counts
        with counting_suspended():
            run(kernel, grid, args, kwargs)

    JITFunction.run = launch
    Autotuner._bench = lambda *_, **named: [0.0]  # no GPU to time on: the first config is taken
    try:
        yield
    finally:
        JITFunction.run, Autotuner._bench = before, timed


def unwrap(kernel: JITFunction) -> None:
    """Take off what an import hook (of shape checks, say) has put around a kernel and its helpers:
    they are not called as functions of Python are."""
    function = inspect.unwrap(kernel.fn)
    if function is kernel.fn:
        return
    kernel.fn, kernel.__globals__ = function, function.__globals__
    for value in function.__globals__.values():
        if isinstance(value, JITFunction):
            unwrap(value)


def bound(kernel: JITFunction, args: tuple, kwargs: dict) -> tuple[dict, dict]:
    """(every parameter of the kernel by name, options of the launch).

    Raises:
        TypeError: they do not fit the kernel's parameters.
    """
    options = {name: value for name, value in kwargs.items() if name in OPTIONS}
    others = {name: value for name, value in kwargs.items() if name not in OPTIONS}
    arguments = inspect.signature(kernel.fn).bind(*args, **others)
    arguments.apply_defaults()
    return dict(arguments.arguments), options


def grid_of(grid, named: dict[str, object]) -> tuple[int, int, int]:
    """Programs along three axes; a grid may be a function of the arguments."""
    size = grid(named) if callable(grid) else grid
    size = (size,) if isinstance(size, int) else tuple(map(operator.index, size))
    return (*size, *(1,) * (3 - len(size)))
