"""A loop over groups; halves go up, words are filled across rows, FP8 is found by bisection."""

import math

import torch
from torch import Tensor, nn

from assignment.provided.compression import Quantized

SMALLEST_SCALE = 2.0**-126


def _groups(shape, per) -> tuple[list[tuple], list[int]]:
    """The index of each group's elements, and the shape of the scales."""
    columns, rows = shape[-1], math.prod(shape[:-1])
    everything, ones = slice(None), [1] * (len(shape) - 1)
    if per == "tensor":
        return [(everything, everything)], [*ones, 1]
    if per == "column":
        return [(everything, column) for column in range(columns)], [*ones, columns]
    size = columns if per == "row" else per
    if type(size) is not int or size < 1:
        raise ValueError(f"per: {per!r}")
    parts = [slice(start, start + size) for start in range(0, columns, size)]
    return [(row, part) for row in range(rows) for part in parts], [*shape[:-1], len(parts)]


def quantize(x: Tensor, bits: int = 8, per="row", symmetric: bool = True) -> Quantized:
    if bits not in range(2, 9):
        raise ValueError(f"bits: {bits!r}")
    rows = x.float().reshape(-1, x.shape[-1])
    codes, scales, zeros = torch.empty_like(rows), [], []
    groups, shape = _groups(x.shape, per)
    for where in groups:
        members = rows[where].double()
        low, high = min(float(members.min()), 0.0), max(float(members.max()), 0.0)
        if symmetric:
            least, most = 1 - 2 ** (bits - 1), 2 ** (bits - 1) - 1
            scale = max(high, -low) / most
        else:
            least, most = 0, 2**bits - 1
            scale = (high - low) / most
        scale = max(scale, SMALLEST_SCALE) if high > low else 1.0
        zero = 0 if symmetric else math.floor(-low / scale + 0.5)
        codes[where] = (members / scale + zero + 0.5).floor().clamp(least, most).float()
        scales.append(scale)
        zeros.append(zero)
    integers = torch.int8 if symmetric else torch.uint8
    zero_point = None if symmetric else torch.tensor(zeros, dtype=integers).view(shape)
    codes, scale = codes.to(integers).view(x.shape), torch.tensor(scales).view(shape)
    return Quantized(codes, scale, zero_point, per)


def dequantize(quantized: Quantized) -> Tensor:
    shape = quantized.codes.shape
    steps = quantized.codes.float().reshape(-1, shape[-1]).clone()
    for i, where in enumerate(_groups(shape, quantized.per)[0]):
        if quantized.zero_point is not None:
            steps[where] -= int(quantized.zero_point.flatten()[i])
        steps[where] *= quantized.scale.flatten()[i]
    return steps.view(shape)


def bits_per_weight(
    columns: int, bits: int, group: int, scale_bits: int = 16, zero_bits: int = 0
) -> float:
    for number, least in [(columns, 1), (bits, 1), (group, 1), (scale_bits, 0), (zero_bits, 0)]:
        if number < least:
            raise ValueError(f"{number} is less than {least}")
    return bits + math.ceil(columns / group) * (scale_bits + zero_bits) / columns


def _words(codes: list[int]) -> list[int]:
    starts = range(0, len(codes), 8)
    words = [sum(c << 4 * j for j, c in enumerate(codes[i : i + 8])) for i in starts]
    return [word - (word >> 31 << 32) for word in words]


def pack_int4(codes: Tensor) -> Tensor:
    rows = codes.reshape(-1, codes.shape[-1]).tolist()
    packed = torch.tensor([_words(row) for row in rows], dtype=torch.int32)
    return packed.view(*codes.shape[:-1], -1)


def unpack_int4(packed: Tensor, columns: int) -> Tensor:
    columns_of = [packed[..., j // 8] >> 4 * (j % 8) & 15 for j in range(columns)]
    return torch.stack(columns_of, dim=-1).to(torch.uint8)


def fp8_values(mantissa_bits: int) -> Tensor:
    if mantissa_bits == 3:
        return torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    if mantissa_bits == 2:
        return torch.arange(256, dtype=torch.uint8).view(torch.float8_e5m2).float()
    raise ValueError(f"mantissa_bits: {mantissa_bits}")


def to_fp8(x: Tensor, mantissa_bits: int) -> Tensor:
    values = fp8_values(mantissa_bits)[:128].double()
    values = values[values.isfinite()]
    magnitude = x.double().abs().clamp(max=float(values[-1]))
    right = torch.searchsorted(values, magnitude).clamp(1, len(values) - 1)
    left = right - 1
    to_left, to_right = magnitude - values[left], values[right] - magnitude
    take_left = (to_left < to_right) | ((to_left == to_right) & (left % 2 == 0))
    codes = torch.where(take_left, left, right)
    codes = torch.where(x < 0, codes + 128, codes)
    return torch.where(x.isnan(), 127, codes).to(torch.uint8)


class QuantizedLinear(nn.Module):
    def __init__(self, weight: Tensor, bits: int, per="row"):
        super().__init__()
        if per in ("tensor", "column") or bits not in (8, 4, 3, 2):
            raise ValueError(f"bits {bits!r}, per {per!r}")
        self.bits, self.per, self.shape = bits, per, tuple(weight.shape)
        quantized = quantize(weight.detach(), bits, per, bits == 8)
        self.register_buffer("columns", torch.tensor(weight.shape[1]))
        self.register_buffer("scale", quantized.scale)
        if bits == 8:
            self.register_buffer("codes", quantized.codes)
        else:
            self.register_buffer("codes", pack_int4(quantized.codes.flatten()))
            self.register_buffer("zeros", pack_int4(quantized.zero_point.flatten()))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.dequantized().to(x.dtype).T

    def dequantized(self) -> Tensor:
        codes, zeros = self.codes, None
        if self.bits < 8:
            codes = unpack_int4(codes, math.prod(self.shape)).view(self.shape)
            zeros = unpack_int4(self.zeros, self.scale.numel()).view(self.scale.shape)
        return dequantize(Quantized(codes, self.scale, zeros, self.per))


class QuantizedCache:
    def __init__(self, codes, scales):
        self.codes, self.scales = codes, scales

    @property
    def lengths(self):
        return self.scales.lengths

    def positions(self, num_new: int):
        return self.scales.positions(num_new)

    def append(self, k: Tensor, v: Tensor, num_tokens=None) -> None:
        parts = []
        for new in (k, v):
            scale = (new.float().abs().amax(dim=-1, keepdim=True) / 127).clamp(min=SMALLEST_SCALE)
            parts.append(((new.float() / scale).round().to(torch.int8), scale))
        codes, scales = zip(*parts, strict=True)
        self.codes.append(*codes, num_tokens)
        self.scales.append(*scales, num_tokens)

    def keys_values(self):
        pairs = zip(self.codes.keys_values(), self.scales.keys_values(), strict=True)
        return tuple(codes.float() * scale for codes, scale in pairs)

    def truncate(self, lengths: Tensor) -> None:
        for cache in (self.codes, self.scales):
            cache.truncate(lengths)
