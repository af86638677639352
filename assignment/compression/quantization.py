"""Quantisation: numbers on a grid of few steps, so that a weight takes 8 or 4 bits, not 16 or 32.

A decode step reads all weights, so bytes are time. What the grid costs is decided by who shares a
scale: one large value makes the steps coarse for all others with it.

Axes: C columns, what is summed over in a product; O outputs of a linear layer, I inputs.
"""

import torch
from jaxtyping import Float, Int, Int32, UInt8
from torch import Tensor, nn

from assignment.provided.compression import Quantized, number_of_groups
from assignment.provided.models import LayerCache, key_positions

SMALLEST_SCALE = torch.finfo(torch.float32).tiny
"""No scale is smaller, so that a group of zeros has one too, which is a normal float32."""


def quantize(
    x: Float[Tensor, "... C"], bits: int = 8, per: str | int = "row", symmetric: bool = True
) -> Quantized:
    """Each element to the nearest step of its group's grid; halfway between two, either is right.

    symmetric:    scale = max|x| / (2^{bits−1} − 1)      codes −(2^{bits−1} − 1) … 2^{bits−1} − 1
    otherwise:    scale = (hi − lo) / (2^{bits} − 1)     codes 0 … 2^{bits} − 1
                  zero_point = round(−lo / scale)        hi = max(x, 0), lo = min(x, 0)

    taken over a group, in float32 whatever the dtype of x, and SMALLEST_SCALE for a scale
    below it. So zero is always on the grid, and no error is larger than scale / 2.

    Args:
        x: at least one axis, no |x| above 1e38. It is not changed.
        bits: 2 … 8.
        per: who shares a scale: "tensor", "row", "column", or g ≥ 1 neighbours of a row
            (`Quantized` gives the shapes). The last group of a row may be shorter.

    Raises:
        ValueError: bits or per is none of these.

    Hint: first lo and hi of every group, however `per` groups. About 25 lines with helpers.
    """
    raise NotImplementedError


def dequantize(quantized: Quantized) -> Float[Tensor, "... C"]:
    """scale · (code − zero_point), in float32; nothing is changed. 3 − 5 in uint8 is 254."""
    raise NotImplementedError


def bits_per_weight(
    columns: int, bits: int, group: int, scale_bits: int = 16, zero_bits: int = 0
) -> float:
    """What a weight takes in a row of `columns`, its share of scales and zero points included.

    4 bits in groups of 128 with a 16-bit scale and a 4-bit zero point: 4.15625. A short last group
    has a scale of its own too.

    Raises:
        ValueError: columns, bits or group is below 1, scale_bits or zero_bits below 0.
    """
    raise NotImplementedError


def pack_int4(codes: UInt8[Tensor, "... C"]) -> Int32[Tensor, "... W"]:
    """Codes 0 … 15, eight to an int32: code j in bits 4·(j mod 8) … 4·(j mod 8) + 3 of word j // 8.

    W = ceil(C / 8); the bits of codes that do not exist are 0. `codes` are not changed.

    Hint: code 7 holds the sign bit, so half of all words are negative. About 4 lines.
    """
    raise NotImplementedError


def unpack_int4(packed: Int32[Tensor, "... W"], columns: int) -> UInt8[Tensor, "... C"]:
    """The first `columns` codes of what `pack_int4` made. `packed` is not changed."""
    raise NotImplementedError


def fp8_values(mantissa_bits: int) -> Float[Tensor, "256"]:
    """The value of each code of an 8-bit float, in float32, NaN where it is none.

    Code = sign, 7 − M exponent bits e, M mantissa bits m. M = 3 is E4M3, M = 2 is E5M2.

        e > 0:  ± 2^{e − bias} · (1 + m / 2^M)        bias = 7 for E4M3, 15 for E5M2
        e = 0:  ± 2^{1 − bias} · m / 2^M

    E5M2 is IEEE's kind: the largest e means ±∞ for m = 0, else NaN. E4M3 has no infinity, and only
    m = 7 at the largest e is NaN, so it reaches 448 (Micikevicius et al., 2022, arXiv:2209.05433).

    Raises:
        ValueError: mantissa_bits is neither 3 nor 2.
    """
    raise NotImplementedError


def to_fp8(x: Float[Tensor, "..."], mantissa_bits: int) -> UInt8[Tensor, "..."]:
    """The codes of the nearest finite values: what lies outside, ±∞ too, becomes ±448 or ±57344.

    In the middle between two values the one with the even code is taken. NaN stays NaN. It does not
    matter which of the two zeros, and which code of NaN.

    Args:
        x: float32, float16 or bfloat16. It is not changed.

    Raises:
        ValueError: as `fp8_values`.

    Hint: torch has a cast, `x.to(torch.float8_e4m3fn)`. What does it make of 500? About 4 lines.
    """
    raise NotImplementedError


class QuantizedLinear(nn.Module):
    """A linear layer without bias that keeps codes and scales, and nothing else of its weight.

    8 bits: symmetric, an int8 a code. 2, 3 or 4 bits: with zero points; codes and zero points both
    packed eight to an int32, so that 3 bits take the place of 4. Scales as `quantize` makes them.

    Everything that is kept is a buffer (`register_buffer`): the state dict is the layer, and one of
    other weights that loads it computes the same.

    Args:
        weight: [O I], any floating dtype, may be a Parameter. It is not changed, and nothing of it
            is kept alive: not on an attribute, nor by autograd (`detach`).
        bits: 8, or 2 … 4.
        per: "row" or a group size, as in `quantize`.

    Raises:
        ValueError: bits or per is none of these.

    Size of a good answer: about 20 lines in all.
    """

    def __init__(self, weight: Float[Tensor, "O I"], bits: int, per: str | int = "row"):
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Float[Tensor, "... I"]) -> Float[Tensor, "... O"]:
        """x times the dequantised weight, in the dtype of x. (Fast in a fused kernel only.)"""
        raise NotImplementedError

    def dequantized(self) -> Float[Tensor, "O I"]:
        """The weight that the codes stand for, in float32."""
        raise NotImplementedError


class QuantizedCache:
    """A LayerCache whose keys and values are int8, with a scale for each token and head.

    It keeps nothing itself: codes and scales go into two caches that you give, and what is said of
    a LayerCache (ragged rows, positions, going back) is theirs to do.

    Args:
        codes, scales: empty; one will hold int8 [B K S H], the other float32 [B K S 1].

    Size of a good answer: about 8 lines in all.
    """

    def __init__(self, codes: LayerCache, scales: LayerCache):
        self.codes, self.scales = codes, scales

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.codes.lengths

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return self.codes.positions(num_new)

    def key_positions(self) -> Int[Tensor, "B S"]:
        return key_positions(self.codes)

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        """Quantise to 8 bits, symmetric, and keep codes and scales.

        Columns that num_tokens calls padding may hold anything, even NaN. k and v are not changed.
        """
        raise NotImplementedError

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        """Dequantised, in float32."""
        raise NotImplementedError

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """Keep the first lengths[b] tokens of each row, codes and scales."""
        raise NotImplementedError
