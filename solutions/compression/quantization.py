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
    # BEGIN SOLUTION
    if not 2 <= bits <= 8:
        raise ValueError(f"bits: expected 2 to 8, got {bits}")
    wide, columns = x.float(), x.shape[-1]
    low, high = _extremes(wide, per)
    if symmetric:
        top = 2 ** (bits - 1) - 1
        scale = (torch.maximum(high, -low) / top).clamp(min=SMALLEST_SCALE)
        codes = (wide / _spread(scale, per, columns)).round().clamp(-top, top)
        return Quantized(codes.to(torch.int8), scale, None, per)
    top = 2**bits - 1
    low, high = low.clamp(max=0), high.clamp(min=0)
    scale = ((high - low) / top).clamp(min=SMALLEST_SCALE)
    zero_point = (-low / scale).round().clamp(0, top)
    steps = (wide / _spread(scale, per, columns)).round()
    codes = (steps + _spread(zero_point, per, columns)).clamp(0, top)
    return Quantized(codes.to(torch.uint8), scale, zero_point.to(torch.uint8), per)
    # END SOLUTION


# BEGIN SOLUTION
def _extremes(x: Tensor, per: str | int) -> tuple[Tensor, Tensor]:
    """Smallest and largest element of each group, in the shape of its scale."""
    if isinstance(per, int):
        if per < 1:
            raise ValueError(f"per: expected at least 1, got {per}")
        groups = x.split(per, dim=-1)
        low, high = [g.amin(-1) for g in groups], [g.amax(-1) for g in groups]
        return torch.stack(low, dim=-1), torch.stack(high, dim=-1)
    if per not in ("tensor", "row", "column"):
        raise ValueError(f"per: expected tensor, row, column or a number, got {per!r}")
    if per == "row":
        return x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    together = x.flatten() if per == "tensor" else x.reshape(-1, x.shape[-1])
    shape = [1] * (x.dim() - 1) + [-1]
    return together.amin(0).view(shape), together.amax(0).view(shape)


def _spread(of_groups: Tensor, per: str | int, columns: int) -> Tensor:
    """One value a group to one that broadcasts against the elements."""
    if not isinstance(per, int):
        return of_groups
    return of_groups.repeat_interleave(per, dim=-1)[..., :columns]


# END SOLUTION


def dequantize(quantized: Quantized) -> Float[Tensor, "... C"]:
    """scale · (code − zero_point), in float32; nothing is changed. 3 − 5 in uint8 is 254."""
    # BEGIN SOLUTION
    codes, per = quantized.codes.float(), quantized.per
    if quantized.zero_point is not None:
        codes = codes - _spread(quantized.zero_point.float(), per, codes.shape[-1])
    return codes * _spread(quantized.scale, per, codes.shape[-1])
    # END SOLUTION


def bits_per_weight(
    columns: int, bits: int, group: int, scale_bits: int = 16, zero_bits: int = 0
) -> float:
    """What a weight takes in a row of `columns`, its share of scales and zero points included.

    4 bits in groups of 128 with a 16-bit scale and a 4-bit zero point: 4.15625. A short last group
    has a scale of its own too.

    Raises:
        ValueError: columns, bits or group is below 1, scale_bits or zero_bits below 0.
    """
    # BEGIN SOLUTION
    if min(columns, bits, group) < 1 or min(scale_bits, zero_bits) < 0:
        raise ValueError("columns, bits and group: expected at least 1; overheads at least 0")
    return bits + (scale_bits + zero_bits) * number_of_groups(columns, group) / columns
    # END SOLUTION


def pack_int4(codes: UInt8[Tensor, "... C"]) -> Int32[Tensor, "... W"]:
    """Codes 0 … 15, eight to an int32: code j in bits 4·(j mod 8) … 4·(j mod 8) + 3 of word j // 8.

    W = ceil(C / 8); the bits of codes that do not exist are 0. `codes` are not changed.

    Hint: code 7 holds the sign bit, so half of all words are negative. About 4 lines.
    """
    # BEGIN SOLUTION
    padding = -codes.shape[-1] % 8
    eights = nn.functional.pad(codes.long(), (0, padding)).unflatten(-1, (-1, 8))
    words = (eights << (4 * torch.arange(8))).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).int()  # as two's complement
    # END SOLUTION


def unpack_int4(packed: Int32[Tensor, "... W"], columns: int) -> UInt8[Tensor, "... C"]:
    """The first `columns` codes of what `pack_int4` made. `packed` is not changed."""
    # BEGIN SOLUTION
    eights = (packed.unsqueeze(-1) >> (4 * torch.arange(8, dtype=torch.int32))) & 15
    return eights.flatten(-2)[..., :columns].to(torch.uint8)
    # END SOLUTION


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
    # BEGIN SOLUTION
    if mantissa_bits not in (2, 3):
        raise ValueError(f"mantissa_bits: expected 3 (E4M3) or 2 (E5M2), got {mantissa_bits}")
    codes = torch.arange(128)
    exponent, mantissa = codes >> mantissa_bits, codes % 2**mantissa_bits
    bias = 2 ** (6 - mantissa_bits) - 1
    fraction = mantissa / 2**mantissa_bits + (exponent > 0)
    positive = fraction * torch.exp2(exponent.clamp(min=1).float() - bias)
    if mantissa_bits == 3:
        positive[127] = torch.nan
    else:
        positive[124], positive[125:] = torch.inf, torch.nan
    return torch.cat([positive, -positive])
    # END SOLUTION


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
    # BEGIN SOLUTION
    values = fp8_values(mantissa_bits)
    dtype = {3: torch.float8_e4m3fn, 2: torch.float8_e5m2}[mantissa_bits]
    largest = values[values.isfinite()].max()
    return x.float().clamp(-largest, largest).to(dtype).view(torch.uint8)
    # END SOLUTION


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
        # BEGIN SOLUTION
        if bits not in (2, 3, 4, 8):
            raise ValueError(f"bits: expected 2, 3, 4 or 8, got {bits}")
        if per in ("tensor", "column"):
            raise ValueError(f"per: expected row or a group size, got {per!r}")
        quantized = quantize(weight.detach(), bits, per, symmetric=bits == 8)
        self.columns, self.per = weight.shape[1], per
        packed = bits <= 4
        self.register_buffer("codes", pack_int4(quantized.codes) if packed else quantized.codes)
        self.register_buffer("scale", quantized.scale)
        self.register_buffer("zero_point", pack_int4(quantized.zero_point) if packed else None)
        # END SOLUTION

    def forward(self, x: Float[Tensor, "... I"]) -> Float[Tensor, "... O"]:
        """x times the dequantised weight, in the dtype of x. (Fast in a fused kernel only.)"""
        # BEGIN SOLUTION
        return nn.functional.linear(x, self.dequantized().to(x.dtype))
        # END SOLUTION

    def dequantized(self) -> Float[Tensor, "O I"]:
        """The weight that the codes stand for, in float32."""
        # BEGIN SOLUTION
        codes, zero_point = self.codes, self.zero_point
        if zero_point is not None:
            codes = unpack_int4(codes, self.columns)
            zero_point = unpack_int4(zero_point, self.scale.shape[-1])
        return dequantize(Quantized(codes, self.scale, zero_point, self.per))
        # END SOLUTION


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
        # BEGIN SOLUTION
        k_quantized, v_quantized = quantize(k, 8, "row"), quantize(v, 8, "row")
        self.codes.append(k_quantized.codes, v_quantized.codes, num_tokens)
        self.scales.append(k_quantized.scale, v_quantized.scale, num_tokens)
        # END SOLUTION

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        """Dequantised, in float32."""
        # BEGIN SOLUTION
        pairs = zip(self.codes.keys_values(), self.scales.keys_values(), strict=True)
        k, v = (dequantize(Quantized(codes, scale, None, "row")) for codes, scale in pairs)
        return k, v
        # END SOLUTION

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """Keep the first lengths[b] tokens of each row, codes and scales."""
        # BEGIN SOLUTION
        self.codes.truncate(lengths)
        self.scales.truncate(lengths)
        # END SOLUTION
