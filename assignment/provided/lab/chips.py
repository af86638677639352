"""Chips, by the three numbers that decide how fast a model runs on them.

FLOP rates are those of dense 16-bit products with sums in 32 bits: data sheets print twice as much,
"with sparsity". Bandwidth is to the chip's main memory. Both are what a program can at best reach.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """flops_per_second: FLOP/s, 16 bits. bandwidth: bytes/s. memory: bytes. source: data sheet."""

    name: str
    flops_per_second: float
    bandwidth: float
    memory: float
    source: str = ""


H100 = Chip("H100 SXM", 989e12, 3.35e12, 80e9, "NVIDIA H100 data sheet, 2023")
H200 = Chip("H200 SXM", 989e12, 4.8e12, 141e9, "NVIDIA H200 data sheet, 2024")
A100 = Chip("A100 SXM 80 GB", 312e12, 2.039e12, 80e9, "NVIDIA A100 data sheet, 2021")
L4 = Chip("L4", 121e12, 300e9, 24e9, "NVIDIA L4 data sheet, 2023")
T4 = Chip("T4", 65e12, 320e9, 16e9, "NVIDIA T4 data sheet, 2018; float16")

CHIPS = {"H100": H100, "H200": H200, "A100": A100, "L4": L4, "T4": T4}
