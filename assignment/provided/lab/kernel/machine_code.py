"""PTX as machine code, by the tools that come with Triton: registers, spills, instructions.

The text may be a stranger's: the tools get time, memory and a folder, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import triton

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
SECONDS = 60  # of a tool
LIMITS = {  # of a tool's process
    resource.RLIMIT_CPU: SECONDS,
    resource.RLIMIT_AS: 4 * 2**30,
    resource.RLIMIT_FSIZE: 64 * 2**20,
    resource.RLIMIT_CORE: 0,
}


class ToolFailed(Exception):
    """The assembler refuses a text, or needs too much for it."""


@dataclass(frozen=True)
class MachineCode:
    """registers: of a thread. spilled: bytes that a thread stores to and loads from memory because
    it has no register left. instructions: how many of each, by opcode, as "LDG.E.128"."""

    registers: int
    spilled: int
    instructions: Mapping[str, int]


@lru_cache(maxsize=1000)
def assembled(ptx: str, architecture: str) -> MachineCode:
    """
    Raises:
        ToolFailed: the assembler does not make machine code of it.
    """
    suffix = "a" if int(architecture.removeprefix("sm_")) >= 90 else ""
    with tempfile.TemporaryDirectory(prefix="ptx-") as folder:
        (Path(folder) / "kernel.ptx").write_text(ptx)
        # As Triton has it assembled.
        told = _run(
            folder, "ptxas", "-v", "--regAllocOptLevel=2", f"--gpu-name={architecture}{suffix}",
            "kernel.ptx", "-o", "kernel.cubin",
        )  # fmt: skip
        code = _run(folder, "nvdisasm", "-c", "kernel.cubin")
    opcodes = re.findall(r"^\s*/\*[0-9a-f]+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]+)", code, re.M)
    return MachineCode(
        registers=int(re.search(r"Used (\d+) registers", told)[1]),
        spilled=sum(map(int, re.findall(r"(\d+) bytes spill (?:stores|loads)", told))),
        instructions=Counter(opcodes),
    )


def _run(folder: str, tool: str, *arguments: str) -> str:
    """What a tool says, on either stream."""
    process = subprocess.Popen(
        [TOOLS / tool, *arguments],
        cwd=folder,
        env={"TMPDIR": folder},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    with process:
        try:
            for limit, most in LIMITS.items():
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    resource.prlimit(process.pid, limit, (most, most))
            told, _ = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise ToolFailed(f"{tool} needs more than {SECONDS} seconds for it") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    if process.returncode:
        raise ToolFailed(f"{tool}: {_reason(told, process.returncode)}")
    return told


def _reason(told: str, status: int) -> str:
    errors = [line for line in told.splitlines() if "error" in line.lower() or "fatal" in line]
    return errors[0].strip() if errors else f"exit status {status}"
