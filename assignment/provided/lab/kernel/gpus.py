"""GPUs, as far as the time of a kernel depends on them; each figure with its source.

Of a chip as a whole (16-bit products, main memory) see `provided.lab.chips`. All rates are dense:
data sheets print those of INT8 twice as high, "with sparsity". Clocks are boost clocks.

A100: NVIDIA A100 Tensor Core GPU Architecture, 2020, table 4: 108 multiprocessors, 1410 MHz; peak
FP32 19.5 TFLOP/s, INT8 624 TOP/s.

H100: NVIDIA H100 Tensor Core GPU Architecture, 2022, and its data sheet, 2023: 132 multiprocessors;
FP32 67 TFLOP/s, INT8 3,958 TOP/s with sparsity. Clock: that of its 16-bit rate, as 4 tensor cores
do 4096 FLOPs a clock in all: 989e12 / (132 · 4096) = 1.83 GHz.

H200: NVIDIA H200 data sheet, 2024: FP32 67 TFLOP/s, INT8 3,958 TOP/s with sparsity, as the H100's;
so are multiprocessors and clock, as it is the same processor with other memory.

L4: NVIDIA L4 data sheet, 2023: FP32 30.3 TFLOP/s, INT8 485 TOP/s with sparsity. Clock: 2040 MHz, as
databases of GPUs list it. Multiprocessors: 30.3e12 / (2 · 128 · 2.04e9) = 58, with 128 FP32 cores
in each (NVIDIA Ada GPU Architecture, 2022).

T4: NVIDIA T4 data sheet, 2018: FP32 8.1 TFLOP/s, INT8 130 TOP/s, 2560 CUDA cores; 64 of them are a
multiprocessor (NVIDIA Turing GPU Architecture, 2018), so there are 40. Clock: 1590 MHz, as
databases list it; 8.1e12 / (2 · 2560) is 1.58 GHz.

TF32: half of the rate in 16 bits. The same sources have 156 TFLOP/s for an A100; with sparsity 989
for an H100 or H200, 120 for an L4. A T4 has none, and the compiler takes its FP32 cores.
"""

from dataclasses import dataclass

from ..chips import CHIPS, Chip


class NoRate(ValueError):
    """Products of a dtype that the GPU's tensor cores do not know, or of which nothing is known."""


@dataclass(frozen=True)
class GPU:
    """A chip, and how its work is shared among multiprocessors.

    clock: Hz. int8_ops_per_second: of products by tensor cores. fp32_flops_per_second: outside
    them. architecture: the compiler's name.

    bytes_per_clock: between one multiprocessor and the rest: one sector, as in the performance
    model of XLA ("Each SM can issue at most one 32B memory transaction per clock": openxla/xla,
    xla/service/gpu/model/gpu_performance_model_base.cc, 2024). NVIDIA prints no such figure; all
    108 at once, those of an A100 get 5,120 out of the L2 (its whitepaper), 47 each.
    """

    chip: Chip
    architecture: str
    multiprocessors: int
    clock: float
    int8_ops_per_second: float
    fp32_flops_per_second: float
    bytes_per_clock: int = 32

    @property
    def name(self) -> str:
        return self.chip.name

    @property
    def flops_per_second(self) -> float:
        """In 16 bits."""
        return self.chip.flops_per_second

    @property
    def bandwidth(self) -> float:
        return self.chip.bandwidth

    def dot_rate(self, dtype: str) -> float:
        """FLOP/s (or operations/s) of `tl.dot`, named as in `Launch.dot_flops`: fp32 has "ieee"
        precision, and is done by the FP32 cores.

        Raises:
            NoRate: of a dtype.
        """
        if dtype == "fp16" or (dtype == "bf16" and self.architecture != "sm_75"):
            return self.flops_per_second
        if dtype in ("int8", "uint8"):
            return self.int8_ops_per_second
        if dtype == "fp32" or (dtype == "tf32" and self.architecture == "sm_75"):
            return self.fp32_flops_per_second
        if dtype == "tf32":
            return self.flops_per_second / 2
        raise NoRate(f"{self.name}: no rate is known for tl.dot of {dtype}")


GPUS = {
    "A100": GPU(CHIPS["A100"], "sm_80", 108, 1.41e9, 624e12, 19.5e12),
    "H100": GPU(CHIPS["H100"], "sm_90", 132, 1.83e9, 1979e12, 67e12),
    "H200": GPU(CHIPS["H200"], "sm_90", 132, 1.83e9, 1979e12, 67e12),
    "L4": GPU(CHIPS["L4"], "sm_89", 58, 2.04e9, 242.5e12, 30.3e12),
    "T4": GPU(CHIPS["T4"], "sm_75", 40, 1.59e9, 130e12, 8.1e12),
}


def gpu_called(gpu: GPU | str) -> GPU:
    """One of `GPUS` by its name; a GPU is itself.

    Raises:
        ValueError: none has this name.
    """
    if isinstance(gpu, GPU):
        return gpu
    if gpu not in GPUS:
        raise ValueError(f"no GPU here is called {gpu!r}; known are {', '.join(GPUS)}")
    return GPUS[gpu]
