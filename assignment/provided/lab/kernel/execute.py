"""Run one launch in Triton's interpreter, under the meter, its programs in an order of chance."""

from __future__ import annotations

import itertools
import random
from contextlib import contextmanager
from types import FunctionType

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

from .builder import OWNER, MeteredBuilder
from .launch import Launch
from .memory import Access, Argument
from .reductions import Reduce, Scan

_interpreted: dict[FunctionType, interpreter.InterpretedFunction] = {}


def execute(
    kernel: JITFunction,
    grid: tuple[int, int, int],
    named: dict[str, object],
    arguments: dict[str, Argument],
    launch: Launch,
    seed: int,
) -> None:
    """Run all programs of a launch; what they do is in `launch` and in the tensors.

    Args:
        grid: programs along each axis.
        named: every parameter of the kernel by name.
        arguments: for those that are tensors.
        seed: decides the order of the programs.
    """
    access = Access(launch)
    builder = MeteredBuilder(launch, access)
    builder.set_grid_dim(*grid)
    body = python_of(kernel)
    order = list(enumerate(itertools.product(*map(range, grid))))
    random.Random(seed).shuffle(order)
    with interpreting(builder):
        values = {
            name: value if name in launch.constants else _value(value, arguments.get(name))
            for name, value in named.items()
        }
        for index, program in order:
            access.index, access.program = index, program
            builder.set_grid_idx(*program)
            body(**values)


def python_of(kernel: JITFunction) -> FunctionType:
    """The kernel's body as the interpreter runs it: rewritten once, kept for later launches."""
    if kernel.fn not in _interpreted:
        _interpreted[kernel.fn] = interpreter.InterpretedFunction(kernel.fn)
    return _interpreted[kernel.fn].rewrite()


def _value(value: object, argument: Argument | None) -> object:
    converted = interpreter._implicit_cvt(value)
    if argument is not None:
        converted.handle.attr[OWNER] = argument
    return converted


def _patched() -> FunctionType:
    """For `_patch_lang`, which looks at a function's globals for what to patch."""
    return FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})


@contextmanager
def interpreting(builder: MeteredBuilder):
    """Inside, `tl` computes with `builder`, and a kernel's helpers can be called."""
    names = ("interpreter_builder", "interpreter_semantic", "ReduceOps", "ScanOps")
    before = {name: getattr(interpreter, name) for name in names}
    call = JITFunction.__call__
    interpreter.interpreter_builder = builder
    interpreter.interpreter_semantic = TritonSemantic(builder)
    interpreter.ReduceOps, interpreter.ScanOps = Reduce, Scan
    JITFunction.__call__ = lambda helper, *args, **kwargs: python_of(helper)(*args, **kwargs)
    scope = interpreter._patch_lang(_patched())
    scope.set_attr(tl.tensor, "__index__", lambda scalar: int(scalar.handle.data.squeeze()))
    try:
        yield
    finally:
        scope.restore()
        JITFunction.__call__ = call
        for name, value in before.items():
            setattr(interpreter, name, value)
