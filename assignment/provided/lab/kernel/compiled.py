"""What the compiler makes of a launch, for GPUs that this machine does not have.

Triton brings NVIDIA's assembler with it, so a kernel can be translated to machine code anywhere.
What cannot be said without the GPU is how long that takes; what can is whether it fits: registers
that spill to memory, shared memory that a multiprocessor does not have, products that do not reach
the tensor cores, loads that move less than 16 bytes at a time.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import JITFunction, create_function_from_signature

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@dataclass(frozen=True)
class Architecture:
    """What the compiler needs to know of a GPU, and what limits how many programs run at once.

    shared_memory: bytes of a multiprocessor, and the most that one program may have of it. From
    the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """

    name: str
    capability: int
    shared_memory: int
    shared_memory_of_a_program: int
    registers: int = 65_536
    warps: int = 64
    programs: int = 32


SM80 = Architecture("sm_80", 80, 164 * 1024, 163 * 1024)  # A100
SM90 = Architecture("sm_90", 90, 228 * 1024, 227 * 1024)  # H100, H200
ARCHITECTURES = {arch.name: arch for arch in (SM80, SM90)}


@dataclass(frozen=True)
class Compiled:
    """A launch as machine code.

    registers: of a thread. spilled: bytes that a thread stores to and loads from memory because it
    has no register left. shared: bytes of a program. loads, wide_loads: instructions that read
    global memory, and those of them that read 16 bytes a thread. tensor_core: instructions that
    multiply matrices. programs_at_once: of a multiprocessor, by registers, shared memory and warps;
    0 where even one does not fit.
    """

    architecture: str
    registers: int
    spilled: int
    shared: int
    loads: int
    wide_loads: int
    tensor_core: int
    programs_at_once: int


class DoesNotCompile(ValueError):
    """The compiler refuses a launch that the interpreter takes."""


def compile_launch(
    kernel: JITFunction, args: tuple, kwargs: dict, architecture: Architecture = SM90
) -> Compiled:
    """Translate kernel[…](*args, **kwargs) for a GPU, with the very constants of this launch.

    Tensors may be on the CPU. As in a launch, what the compiler may assume (addresses and integers
    that 16 divides, integers that are 1) is taken from the arguments.

    Raises:
        DoesNotCompile: the compiler refuses it.
    """
    target = GPUTarget("cuda", architecture.capability, 32)
    try:
        source, options = _source(kernel, args, kwargs, target)
        made = triton.compile(source, target=target, options=options.__dict__)
    except Exception as error:  # of many kinds; some have the reason as their cause only
        reason = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
        raise DoesNotCompile(
            f"{kernel.fn.__name__} for {architecture.name}: {reason[-1]}"
        ) from error
    return _read(made.asm["cubin"], made.asm["ptx"], made.metadata, architecture)


def _source(kernel: JITFunction, args: tuple, kwargs: dict, target: GPUTarget):
    """As `JITFunction.run` makes it for a launch."""
    backend = make_backend(target)
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, options = bind(*args, **kwargs)
    options, signature, constants, attributes = kernel._pack_args(
        backend, kwargs, bound, specialization, options
    )
    return ASTSource(kernel, signature, constants, attributes), options


def _read(cubin: bytes, ptx: str, metadata, architecture: Architecture) -> Compiled:
    code, resources = _disassembled(cubin)
    opcodes = Counter(
        re.findall(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]+)", code, re.MULTILINE)
    )

    def count(*starts: str, having: str = "") -> int:
        return sum(n for op, n in opcodes.items() if op.split(".")[0] in starts and having in op)

    registers = int(re.search(r"REG:(\d+)", resources)[1])
    return Compiled(
        architecture=architecture.name,
        registers=registers,
        spilled=_spilled(ptx, architecture),
        shared=metadata.shared,
        loads=count("LDG", "LDGSTS"),
        wide_loads=count("LDG", "LDGSTS", having=".128"),
        tensor_core=count("HMMA", "IMMA", "HGMMA", "IGMMA", "QGMMA"),
        programs_at_once=_programs_at_once(registers, metadata, architecture),
    )


@cache
def _disassembled(cubin: bytes) -> tuple[str, str]:
    """(machine code as text, what it needs)."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return _tool("nvdisasm", "-c", file.name)[0], _tool("cuobjdump", "-res-usage", file.name)[0]


@cache
def _spilled(ptx: str, architecture: Architecture) -> int:
    """Bytes of a thread, as the assembler says it."""
    with tempfile.NamedTemporaryFile(suffix=".ptx", mode="w") as file:
        file.write(ptx)
        file.flush()
        suffix = "a" if architecture.capability >= 90 else ""
        name = f"--gpu-name=sm_{architecture.capability}{suffix}"
        # As Triton has it assembled.
        told = _tool("ptxas", "-v", "--regAllocOptLevel=2", name, file.name, "-o", "/dev/null")[1]
    return sum(map(int, re.findall(r"(\d+) bytes spill (?:stores|loads)", told)))


def _tool(name: str, *arguments: str) -> tuple[str, str]:
    done = subprocess.run([TOOLS / name, *arguments], capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


def _programs_at_once(registers: int, metadata, architecture: Architecture) -> int:
    if metadata.shared > architecture.shared_memory_of_a_program:
        return 0
    warps = metadata.num_warps
    of_a_warp = -(-registers // 8) * 8 * 32  # registers are given out by eights
    return min(
        architecture.registers // (of_a_warp * warps),
        architecture.shared_memory // (metadata.shared + 1024),  # of which the system takes 1 KiB
        architecture.warps // warps,
        architecture.programs,
    )
