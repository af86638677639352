"""A lab: everything that is launched inside it is run and watched here."""

from __future__ import annotations

import inspect
from contextlib import contextmanager

import triton
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.jit import JITFunction

from ..counter import CostCounter, counting_suspended
from .execute import execute
from .launch import Launch
from .memory import Argument, Storage

VERSIONS = ("3.6", "3.7")  # of Triton; the interpreter's insides are different in others
NOT_ARGUMENTS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "warmup")
MOST_PROBLEMS = 5  # that a message lists


class KernelFault(AssertionError):
    """A kernel did what no kernel may: its message lists what, where, in which program."""


class Lab:
    """What was launched, and what it did.

    launches: in order. cost: of the torch operations around them.
    """

    def __init__(self, seed: int):
        self.launches: list[Launch] = []
        self._seed = seed
        self._storages: dict[int, tuple[Storage, Tensor]] = {}
        self._counter = CostCounter()

    @property
    def cost(self):
        return self._counter.cost

    def check(self) -> None:
        """
        Raises:
            KernelFault: a launch read or wrote out of bounds, or what another program writes, or
                read what nobody had written.
        """
        lines = [
            f"{launch.kernel}: {problem}" for launch in self.launches for problem in launch.problems
        ]
        if lines:
            more = (
                [f"… and {len(lines) - MOST_PROBLEMS} more"] if len(lines) > MOST_PROBLEMS else []
            )
            raise KernelFault("\n".join(lines[:MOST_PROBLEMS] + more))

    def run(self, kernel: JITFunction, grid, args: tuple, kwargs: dict) -> None:
        """One launch."""
        options = {name: kwargs.pop(name) for name in NOT_ARGUMENTS if name in kwargs}
        bound = inspect.signature(kernel.fn).bind(*args, **kwargs)
        bound.apply_defaults()
        named = dict(bound.arguments)
        constants = {p.name: named[p.name] for p in kernel.params if p.is_constexpr}
        size = _grid(grid, named)
        launch = Launch(kernel.fn.__name__, size, constants, options.get("num_warps", 4))
        launch.program_bytes = [0] * launch.programs
        launch.program_flops = [0] * launch.programs
        arguments = {
            name: Argument(name, value, self._storage(value))
            for name, value in named.items()
            if isinstance(value, Tensor) and name not in constants
        }
        for argument in arguments.values():
            argument.storage.begin_launch()
        try:
            execute(kernel, size, named, arguments, launch, self._seed + len(self.launches))
        finally:
            for name, argument in arguments.items():
                for kind in ("loaded", "stored"):
                    if name in getattr(launch, kind):
                        getattr(launch, kind)[name].unique = int(argument.seen[kind].sum())
            self.launches.append(launch)

    def allocated(self, tensor: Tensor) -> None:
        """Its memory holds nothing yet."""
        # The tensor is kept, so that its address belongs to no other.
        self._storages[tensor.untyped_storage().data_ptr()] = (Storage(tensor, True), tensor)

    def filled(self, tensor: Tensor) -> None:
        """Torch wrote to it."""
        known = self._storages.get(tensor.untyped_storage().data_ptr())
        if known is not None:
            known[0].written[:] = True

    def _storage(self, tensor: Tensor) -> Storage:
        address = tensor.untyped_storage().data_ptr()
        if address not in self._storages:
            self._storages[address] = (Storage(tensor, False), tensor)
        return self._storages[address][0]


@contextmanager
def lab(seed: int = 0):
    """Inside, `kernel[grid](…)` on CPU tensors runs in the lab.

    Args:
        seed: decides the order of the programs.

    Raises:
        RuntimeError: this version of Triton is not one that the lab knows.
    """
    if not triton.__version__.startswith(tuple(f"{v}." for v in VERSIONS)):
        known = ", ".join(VERSIONS)
        raise RuntimeError(f"the kernel lab knows Triton {known}; this is {triton.__version__}")
    opened = Lab(seed)
    run = JITFunction.run

    def launch(kernel, *args, grid, warmup=False, **kwargs):
        with counting_suspended():
            opened.run(kernel, grid, args, kwargs)

    JITFunction.run = launch
    try:
        with opened._counter, _Allocations(opened):
            yield opened
    finally:
        JITFunction.run = run


class _Allocations(TorchDispatchMode):
    """Tells the lab which memory torch allocated without filling it, and which it filled."""

    def __init__(self, opened: Lab):
        super().__init__()
        self._lab = opened

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if function.overloadpacket.__name__ in (
            "empty",
            "empty_strided",
            "empty_like",
            "new_empty",
        ):
            self._lab.allocated(result)
        elif function._schema.is_mutable:
            for parameter, value in zip(function._schema.arguments, args, strict=False):
                is_written = parameter.alias_info is not None and parameter.alias_info.is_write
                if is_written and isinstance(value, Tensor):
                    self._lab.filled(value)
        return result


def _grid(grid, named: dict[str, object]) -> tuple[int, int, int]:
    size = grid(named) if callable(grid) else grid
    size = (size,) if isinstance(size, int) else tuple(size)
    return (*size, *(1,) * (3 - len(size)))
