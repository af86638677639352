"""What was seen of one launch."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Traffic:
    """What a launch moved between one argument's memory and the chip.

    operations: loads, stores and atomics, each of a whole tile.
    requested: bytes asked for. The same byte in one operation counts once; in two operations, or in
        two programs, twice. This is what reaches the caches.
    unique: different bytes: what main memory has to send at least.
    sectors: 32-byte sectors that the operations touched: requested / (32 · sectors) is how much of
        what is moved is used.
    """

    operations: int = 0
    requested: int = 0
    unique: int = 0
    sectors: int = 0


@dataclass(frozen=True)
class Problem:
    """A mistake that the hardware would not report.

    kind: "load out of bounds", "store out of bounds", "race" or "unwritten read".
    argument: whose memory. offset: of the first such byte, from the argument's first element; it
        may be negative. elements: how many in that operation. program: (x, y, z).
    index, shape: the offset as an index into the argument, if it is one, and the argument's shape.
    """

    kind: str
    argument: str
    offset: int
    elements: int
    program: tuple[int, int, int]
    index: tuple[int, ...] | None = None
    shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        many = "1 element" if self.elements == 1 else f"{self.elements} elements"
        told = (
            f"{self.kind}: program {self.program}, argument {self.argument!r}, byte {self.offset}, "
            f"{many}"
        )
        if not self.index:
            return told
        which = "at" if self.elements == 1 else "the first at"
        return f"{told}, {which} {self.argument}{list(self.index)} of shape {list(self.shape)}"


@dataclass
class Launch:
    """One kernel, launched once.

    programs: how many ran. loaded, stored: by argument; an atomic is both. dot_flops: FLOPs of
    `tl.dot` by the dtype of its left operand ("fp16", "int8", …); those of float32 are "tf32" or,
    where "ieee" is asked for, "fp32" (see `tf32`). vector_flops: one for each element of each
    floating-point operation outside dot. program_bytes, program_flops: requested bytes, and FLOPs
    of both kinds, of each program, the grid's last axis running fastest. program_dot_flops: as
    dot_flops, of each program.
    """

    kernel: str
    grid: tuple[int, int, int]
    constants: dict[str, object]
    num_warps: int
    loaded: dict[str, Traffic] = field(default_factory=dict)
    stored: dict[str, Traffic] = field(default_factory=dict)
    dot_flops: dict[str, int] = field(default_factory=dict)
    vector_flops: int = 0
    program_bytes: list[int] = field(default_factory=list)
    program_flops: list[int] = field(default_factory=list)
    program_dot_flops: dict[str, list[int]] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    @property
    def programs(self) -> int:
        x, y, z = self.grid
        return x * y * z

    @property
    def bytes_loaded(self) -> int:
        return sum(traffic.requested for traffic in self.loaded.values())

    @property
    def bytes_stored(self) -> int:
        return sum(traffic.requested for traffic in self.stored.values())
