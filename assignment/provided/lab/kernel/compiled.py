"""What the compiler makes of a launch, for GPUs that this machine does not have.

Triton brings NVIDIA's assembler with it, so a kernel can be translated to machine code anywhere.
What cannot be said without the GPU is how long that takes; what can is whether it fits: registers
that spill to memory, shared memory that a multiprocessor does not have, products that do not reach
the tensor cores, loads that move less than 16 bytes at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from triton.runtime.jit import JITFunction

from .call import Call
from .machine_code import ToolFailed, assembled
from .ptx import DoesNotCompile, Ptx, ptx_of
from .session import bound, unwrap

__all__ = ["ARCHITECTURES", "SM80", "SM90", "Architecture", "Compiled", "DoesNotCompile"]
__all__ += ["compile_launch", "read"]


@dataclass(frozen=True)
class Architecture:
    """What the compiler needs to know of a GPU, and what limits how many programs run at once.

    shared_memory: bytes of a multiprocessor, and the most that one program may have of it. From
    the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
    """

    name: str
    shared_memory: int
    shared_memory_of_a_program: int
    registers: int = 65_536
    warps: int = 64
    programs: int = 32


SM80 = Architecture("sm_80", 164 * 1024, 163 * 1024)  # A100
SM90 = Architecture("sm_90", 228 * 1024, 227 * 1024)  # H100, H200
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

    kernel: str
    architecture: str
    registers: int
    spilled: int
    shared: int
    loads: int
    wide_loads: int
    tensor_core: int
    programs_at_once: int


def compile_launch(
    kernel: JITFunction, args: tuple, kwargs: dict, architecture: Architecture = SM90
) -> Compiled:
    """Translate kernel[…](*args, **kwargs) for a GPU, with the very constants of this launch.

    Tensors may be on the CPU.

    Raises:
        DoesNotCompile: the compiler refuses it.
    """
    unwrap(kernel)
    return read(
        ptx_of(Call.of(kernel, *bound(kernel, args, kwargs)), architecture.name), architecture
    )


def read(ptx: Ptx, architecture: Architecture) -> Compiled:
    """What the assembler makes of a translated launch.

    Raises:
        DoesNotCompile: the assembler refuses it.
    """
    try:
        code = assembled(ptx.text, architecture.name)
    except ToolFailed as error:
        raise DoesNotCompile(f"{ptx.kernel} for {architecture.name}: {error}") from error

    def count(*starts: str, having: str = "") -> int:
        found = code.instructions.items()
        return sum(n for op, n in found if op.split(".")[0] in starts and having in op)

    return Compiled(
        kernel=ptx.kernel,
        architecture=architecture.name,
        registers=code.registers,
        spilled=code.spilled,
        shared=ptx.shared,
        loads=count("LDG", "LDGSTS"),
        wide_loads=count("LDG", "LDGSTS", having=".128"),
        tensor_core=count("HMMA", "IMMA", "HGMMA", "IGMMA", "QGMMA"),
        programs_at_once=_programs_at_once(code.registers, ptx, architecture),
    )


def _programs_at_once(registers: int, ptx: Ptx, architecture: Architecture) -> int:
    if ptx.shared > architecture.shared_memory_of_a_program:
        return 0
    of_a_warp = -(-registers // 8) * 8 * 32  # registers are given out by eights
    return min(
        architecture.registers // (of_a_warp * ptx.num_warps),
        architecture.shared_memory // (ptx.shared + 1024),  # of which the system takes 1 KiB
        architecture.warps // ptx.num_warps,
        architecture.programs,
    )
