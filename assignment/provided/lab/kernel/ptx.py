"""A launch as PTX, the text between Triton and NVIDIA's assembler: made in this process.

No GPU, no file and no other program is needed for it. What comes after, registers and
instructions, is the assembler's work: see `machine_code`.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass

from triton import knobs
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget, Language
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

from .call import Call

PTX_VERSION = 87  # of the assembler, CUDA 12.8's, that comes with Triton 3.6 and 3.7
STAGES = ("ttir", "ttgir", "llir", "ptx")  # what Triton makes of a kernel, one after the other


class DoesNotCompile(ValueError):
    """The compiler refuses a launch that the interpreter takes."""


@dataclass(frozen=True)
class Ptx:
    """A launch, translated.

    shared: bytes of shared memory that a program takes. num_warps: of a program.
    """

    kernel: str
    text: str
    shared: int
    num_warps: int


_made: dict[tuple, Ptx] = {}  # by all that it depends on: many tests launch the same


def ptx_of(call: Call, architecture: str) -> Ptx:
    """Translate a launch for "sm_90", say, with the very constants of this launch.

    As in a launch, what the compiler may assume (addresses and integers that 16 divides, integers
    that are 1) is taken from the arguments.

    Raises:
        DoesNotCompile: the compiler refuses it.
    """
    name = call.kernel.fn.__name__
    try:
        with _without_line_numbers():
            return _translated(call, GPUTarget("cuda", int(architecture.removeprefix("sm_")), 32))
    except Exception as error:  # of many kinds; some have the reason as their cause only
        reason = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
        raise DoesNotCompile(f"{name} for {architecture}: {reason[-1]}") from error


def _translated(call: Call, target: GPUTarget) -> Ptx:
    """As `JITFunction.run` and `triton.compile` do it, but that no other program is asked for the
    version, and nothing is written."""
    kernel, backend = call.kernel, make_backend(target)
    options = call.options | {"ptx_version": PTX_VERSION}
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    given, specialization, _ = bind(**call.named, **options)
    options, signature, constants, attributes = kernel._pack_args(
        backend, options, given, specialization, options
    )
    typed = [(place, type(value), repr(value)) for place, value in constants.items()]
    key = (kernel.cache_key, repr(signature), repr(typed), repr(attributes), repr(options))
    if key not in _made:
        source = ASTSource(kernel, signature, constants, attributes)
        _made[key] = _compiled(source, target, backend, options)
    return _made[key]


def _compiled(source: ASTSource, target: GPUTarget, backend, options) -> Ptx:
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    functions, modules = backend.get_codegen_implementation(options), backend.get_module_map()
    made = source.make_ir(target, options, functions, modules, context)
    metadata, stages = dict(options.__dict__), {}
    backend.add_stages(stages, options, Language.TRITON)
    for stage in STAGES:
        made = stages[stage](made, metadata)
    return Ptx(source.name, made, metadata["shared"], metadata["num_warps"])


@contextmanager
def _without_line_numbers():
    """The same kernel is the same text, wherever it stands."""
    before = knobs.compilation.disable_line_info
    knobs.compilation.disable_line_info = True
    try:
        yield
    finally:
        knobs.compilation.disable_line_info = before
