"""Run one launch in Triton's interpreter, under the meter, its programs in an order of chance."""

from __future__ import annotations

import ast
import itertools
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from types import FunctionType, TracebackType

import numpy as np
import triton.compiler.code_generator  # noqa: F401  # keeps tl.min and tl.max: not the patched ones
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

from .builder import OWNER, MeteredBuilder
from .launch import Launch
from .memory import Access, Argument
from .narrow import BITS, given_as_int64
from .reductions import Reduce, Scan

__tracebackhide__ = True  # pytest's word: a failing test shows the kernel, not the lab

TRITONS = ("triton.language.core", "triton.language.semantic")

_interpreted: dict[FunctionType, FunctionType] = {}


class NoTruth(TypeError):
    """A tile where one value is wanted, as in `if`."""


def execute(
    kernel: JITFunction,
    grid: tuple[int, int, int],
    named: dict[str, object],
    arguments: dict[str, Argument],
    launch: Launch,
    seed: int,
    integer_bits: int = BITS,
) -> None:
    """Run all programs of a launch; what they do is in `launch` and in the tensors.

    Args:
        grid: programs along each axis.
        named: every parameter of the kernel by name.
        arguments: for those that are tensors.
        seed: decides the order of the programs.
        integer_bits: of int32; see `narrow`.
    """
    access = Access(launch)
    builder = MeteredBuilder(launch, access, integer_bits)
    builder.set_grid_dim(*grid)
    body = python_of(kernel)
    order = list(enumerate(itertools.product(*map(range, grid))))
    random.Random(seed).shuffle(order)
    with interpreting(builder), np.errstate(all="ignore"):  # as a GPU, which says nothing
        values = {
            name: value
            if name in launch.constants
            else _value(value, arguments.get(name), given_as_int64(value, integer_bits))
            for name, value in named.items()
        }
        for index, program in order:
            access.index, access.program = index, program
            builder.set_grid_idx(*program)
            try:
                body(**values)
            except Exception as error:
                ended = error.with_traceback(_without_triton(error.__traceback__))
                raise ended from error.__cause__


def python_of(kernel: JITFunction) -> FunctionType:
    """The kernel's body as the interpreter runs it: rewritten once, kept for later launches."""
    if kernel.fn not in _interpreted:
        _interpreted[kernel.fn] = _Rewriter(kernel.fn).rewrite_ast()
    return _interpreted[kernel.fn]


class _Rewriter(interpreter.FunctionRewriter):
    """Triton's, with another `range` inside the kernel; around it the name means what it did."""

    def _compile_and_exec(self, tree: ast.Module) -> FunctionType:
        name = self.fn.__name__
        around = ast.parse(f"def {name}(range): return {name}")
        around.body[0].body[:0] = tree.body
        return super()._compile_and_exec(around)(_counted)


def _counted(start, end=None, step=1, **hints) -> Iterator[tl.tensor]:
    """`range` and `tl.range`: as in a compiled kernel it gives tensors, of the bounds' dtype."""
    bounds = (0, start, step) if end is None else (start, end, step)
    semantic = interpreter.interpreter_semantic
    kinds = [semantic.to_tensor(bound).dtype for bound in bounds]
    if not all(kind.is_int() for kind in kinds):
        raise TypeError(f"bounds of a loop are integers, not {', '.join(map(str, kinds))}")
    kind = reduce(semantic.integer_promote_impl, kinds)
    dtype = interpreter._get_np_dtype(kind)
    for value in range(*bounds):
        yield tl.tensor(interpreter.TensorHandle(np.array([value], dtype), kind), kind)


def _value(value: object, argument: Argument | None, is_int64: bool) -> object:
    if is_int64:
        handle = interpreter.TensorHandle(np.array([value], np.int64), tl.int64)
        return tl.tensor(handle, tl.int64)
    converted = interpreter._implicit_cvt(value)
    if argument is not None:
        converted.handle.attr[OWNER] = argument
    return converted


def _patched() -> FunctionType:
    """For `_patch_lang`, which looks at a function's globals for what to patch."""
    return FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})


def _truth(value: tl.tensor) -> bool:
    """Of a scalar. Triton's interpreter says that a tile is true, so that `a and b` would be b.

    To Triton's own code, as `other.handle if other else None`, a value is true if there is one.
    """
    if sys._getframe(1).f_globals.get("__name__") in TRITONS:
        return True
    if value.handle.data.size > 1:
        shape = " × ".join(map(str, value.handle.data.shape))
        raise NoTruth(
            f"a tile of {shape} is neither true nor false: use &, | and ~ between tiles, not and, "
            "or, not; tl.where, not if; and (a <= b) & (b < c), not a <= b < c"
        )
    return bool(value.handle.data)


def _without_triton(whole: TracebackType | None) -> TracebackType | None:
    """The frames of a traceback but for those of libraries: it ends at the kernel's own line."""
    frames = []
    while whole:
        frames.append(whole)
        whole = whole.tb_next
    kept = None
    for frame in reversed(frames):
        if not frame.tb_frame.f_globals.get("__name__", "").startswith(("triton.", "numpy")):
            kept = TracebackType(kept, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return kept


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
    scope.set_attr(tl.tensor, "__bool__", _truth)
    scope.set_attr(tl, "range", _counted)
    try:
        yield
    finally:
        scope.restore()
        JITFunction.__call__ = call
        for name, value in before.items():
            setattr(interpreter, name, value)
