"""Groups by scatter and gather; FP8 by the exponent and mantissa of a float, words by bytes."""

import functools

import torch
from torch import Tensor, nn

from assignment.provided.compression import Quantized

SMALLEST_SCALE = torch.finfo(torch.float32).tiny


def _owners(shape, per) -> tuple[Tensor, torch.Size]:
    """For each element the number of its group, and the shape of the scales."""
    columns = torch.arange(shape[-1])
    if per == "tensor":
        columns, rows = columns * 0, False
    elif per == "row":
        columns, rows = columns * 0, True
    elif per == "column":
        rows = False
    elif isinstance(per, int) and per >= 1:
        columns, rows = columns // per, True
    else:
        raise ValueError(f"nobody shares a scale per {per!r}")
    width = int(columns[-1]) + 1
    before = list(shape[:-1]) if rows else [1] * (len(shape) - 1)
    numbers = torch.arange(width * functools.reduce(int.__mul__, before, 1)).view(*before, width)
    return numbers[..., columns].expand(shape), numbers.shape


def quantize(x: Tensor, bits: int = 8, per="row", symmetric: bool = True) -> Quantized:
    if not 1 < bits < 9:
        raise ValueError(f"{bits} bits")
    owners, shape = _owners(x.shape, per)
    flat, index = x.to(torch.float32).flatten(), owners.flatten()
    nothing = torch.zeros(shape.numel())
    high = nothing.scatter_reduce(0, index, flat, "amax")
    low = nothing.scatter_reduce(0, index, flat, "amin")
    steps = 2**bits - 1
    if symmetric:
        low, steps = -torch.maximum(high, -low), 2 ** (bits - 1) - 1
        high = torch.zeros_like(low)
    scale = ((high - low) / steps).clamp_min(SMALLEST_SCALE)
    nearest = (flat / scale[index]).round()
    if symmetric:
        codes = nearest.clamp(-steps, steps).to(torch.int8)
        return Quantized(codes.view(x.shape), scale.view(shape), None, per)
    zero = (-low / scale).round()
    codes = (nearest + zero[index]).clamp(0, steps).to(torch.uint8)
    return Quantized(codes.view(x.shape), scale.view(shape), zero.byte().view(shape), per)


def dequantize(quantized: Quantized) -> Tensor:
    owners, _ = _owners(quantized.codes.shape, quantized.per)
    scale = quantized.scale.flatten()[owners]
    if quantized.zero_point is None:
        return scale * quantized.codes
    zero = quantized.zero_point.flatten()[owners]
    return scale * (quantized.codes.short() - zero.short())


def bits_per_weight(
    columns: int, bits: int, group: int, scale_bits: int = 16, zero_bits: int = 0
) -> float:
    if not (columns > 0 and bits > 0 and group > 0 and scale_bits >= 0 and zero_bits >= 0):
        raise ValueError("sizes that no row has")
    total = 0
    for start in range(0, columns, group):
        total += bits * (min(start + group, columns) - start) + scale_bits + zero_bits
    return total / columns


def pack_int4(codes: Tensor) -> Tensor:
    """Bytes of two codes, four of which are an int32 of a little-endian machine."""
    columns = codes.shape[-1]
    padded = codes.new_zeros(*codes.shape[:-1], (columns + 7) // 8 * 8)
    padded[..., :columns] = codes
    pairs = padded[..., 0::2] | padded[..., 1::2] << 4
    return pairs.contiguous().view(torch.int32)


def unpack_int4(packed: Tensor, columns: int) -> Tensor:
    pairs = packed.contiguous().view(torch.uint8)
    return torch.stack([pairs & 15, pairs >> 4], dim=-1).flatten(-2)[..., :columns]


def fp8_values(mantissa_bits: int) -> Tensor:
    if mantissa_bits != 2 and mantissa_bits != 3:
        raise ValueError(f"no FP8 has {mantissa_bits} mantissa bits")
    bias = 7 if mantissa_bits == 3 else 15
    codes = torch.arange(256)
    exponent, mantissa = (codes & 127) >> mantissa_bits, codes & 2**mantissa_bits - 1
    bits = (exponent + 127 - bias) << 23 | mantissa << 23 - mantissa_bits
    normal = bits.int().view(torch.float32)
    value = torch.where(exponent > 0, normal, mantissa * 2.0 ** (1 - bias - mantissa_bits))
    last = exponent == (15 if mantissa_bits == 3 else 31)
    value = torch.where(last & (mantissa == (7 if mantissa_bits == 3 else 3)), torch.nan, value)
    if mantissa_bits == 2:
        value = torch.where(last & (mantissa == 0), torch.inf, value)
        value = torch.where(last & (mantissa == 1) | last & (mantissa == 2), torch.nan, value)
    return torch.where(codes < 128, value, -value)


def to_fp8(x: Tensor, mantissa_bits: int) -> Tensor:
    """The mantissa is rounded as an integer: a carry goes into the exponent by itself."""
    if mantissa_bits not in (2, 3):
        raise ValueError(f"no FP8 has {mantissa_bits} mantissa bits")
    bias, largest = (7, 448.0) if mantissa_bits == 3 else (15, 57344.0)
    magnitude = x.double().abs().clamp(max=largest).nan_to_num(0)
    _, exponent = torch.frexp(magnitude)  # magnitude < 2 ** exponent
    exponent = torch.where(magnitude > 0, exponent - 1, -bias).clamp(min=1 - bias)
    mantissa = (magnitude * torch.exp2(mantissa_bits - exponent.double())).round().long()
    codes = (exponent + bias - 1) * 2**mantissa_bits + mantissa
    codes = torch.where(x.isnan(), 127, codes)
    return (codes + 128 * (x < 0)).to(torch.uint8)


class QuantizedLinear(nn.Module):
    """Zero points and scales lie behind the codes, as bytes of one buffer."""

    def __init__(self, weight: Tensor, bits: int, per="row"):
        super().__init__()
        if bits not in (2, 3, 4, 8) or per in ("tensor", "column"):
            raise ValueError(f"bits {bits}, per {per}")
        quantized = quantize(weight.data, bits, per, symmetric=bits == 8)
        self.bits, self.per, self.shape = bits, per, weight.shape
        self.groups = quantized.scale.shape
        codes = quantized.codes.view(torch.uint8)
        if bits < 8:
            codes = pack_int4(codes).view(torch.uint8)
            zeros = pack_int4(quantized.zero_point).view(torch.uint8)
            codes = torch.cat([codes, zeros], dim=1)
        scale = quantized.scale.contiguous().view(torch.uint8)
        self.register_buffer("kept", torch.cat([codes, scale], dim=1))

    def forward(self, x: Tensor) -> Tensor:
        return (x.float() @ self.dequantized().T).to(x.dtype)

    def dequantized(self) -> Tensor:
        inputs = self.shape[1]
        codes = self.kept[:, : -4 * self.groups[1]]
        scale = self.kept[:, -4 * self.groups[1] :].contiguous().view(torch.float32)
        if self.bits == 8:
            return dequantize(Quantized(codes.view(torch.int8), scale, None, self.per))
        words = codes.contiguous().view(torch.int32)
        width = (inputs + 7) // 8
        zeros = unpack_int4(words[:, width:], self.groups[1])
        codes = unpack_int4(words[:, :width], inputs)
        return dequantize(Quantized(codes, scale, zeros, self.per))


class QuantizedCache:
    """Keys and values go through `quantize` side by side."""

    def __init__(self, codes, scales):
        self.codes, self.scales = codes, scales

    @property
    def lengths(self):
        return self.codes.lengths

    def positions(self, num_new: int):
        return self.codes.positions(num_new)

    def append(self, k: Tensor, v: Tensor, num_tokens=None) -> None:
        both = quantize(torch.stack([k, v]))
        self.codes.append(*both.codes.unbind(), num_tokens=num_tokens)
        self.scales.append(*both.scale.unbind(), num_tokens=num_tokens)

    def keys_values(self):
        both = (torch.stack(kept.keys_values()) for kept in (self.codes, self.scales))
        return tuple(dequantize(Quantized(*both, None, "row")).unbind())

    def truncate(self, lengths: Tensor) -> None:
        self.codes.truncate(lengths)
        self.scales.truncate(lengths)
