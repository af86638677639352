"""Groups as an axis of their own, padded with zeros; the zero point is added before rounding."""

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from assignment.provided.compression import Quantized, number_of_groups

SMALLEST_SCALE = torch.finfo(torch.float32).tiny


def _in_groups(x: Tensor, per) -> tuple[Tensor, list[int]]:
    """[groups, members], and the shape of the scales."""
    columns, before = x.shape[-1], list(x.shape[:-1])
    if per == "tensor":
        return x.reshape(1, -1), [1] * x.dim()
    if per == "column":
        return x.reshape(-1, columns).T, [1] * len(before) + [columns]
    if per == "row":
        per = columns
    elif not isinstance(per, int) or per < 1:
        raise ValueError(f"per = {per}")
    groups = number_of_groups(columns, per)
    padded = F.pad(x, (0, groups * per - columns))
    return padded.reshape(-1, per), [*before, groups]


def _as_before(groups: Tensor, shape, per) -> Tensor:
    columns = shape[-1]
    if per == "tensor":
        return groups.reshape(shape)
    if per == "column":
        return groups.T.reshape(shape)
    return groups.reshape(*shape[:-1], -1)[..., :columns]


def quantize(x: Tensor, bits: int = 8, per="row", symmetric: bool = True) -> Quantized:
    if bits < 2 or bits > 8:
        raise ValueError("bits must lie in 2..8")
    groups, shape = _in_groups(x.to(torch.float32), per)
    if symmetric:
        top = 2 ** (bits - 1) - 1
        scale = groups.abs().max(dim=1, keepdim=True).values / top
        scale[scale < SMALLEST_SCALE] = SMALLEST_SCALE
        codes = torch.round(groups * (1 / scale)).to(torch.int8)
        return Quantized(_as_before(codes, x.shape, per), scale.view(shape), None, per)
    top = 2**bits - 1
    with_zero = F.pad(groups, (0, 1))
    low, high = with_zero.aminmax(dim=1, keepdim=True)
    scale = torch.clamp(high / top - low / top, SMALLEST_SCALE)
    zero = torch.round(-low / scale)
    codes = torch.round(groups / scale + zero).clip(0, top).to(torch.uint8)
    zero = zero.to(torch.uint8).view(shape)
    return Quantized(_as_before(codes, x.shape, per), scale.view(shape), zero, per)


def dequantize(quantized: Quantized) -> Tensor:
    codes, per = quantized.codes.to(torch.int32), quantized.per
    groups, _ = _in_groups(codes, per)
    if quantized.zero_point is not None:
        groups = groups - quantized.zero_point.to(torch.int32).view(-1, 1)
    return _as_before(groups * quantized.scale.view(-1, 1), codes.shape, per)


def bits_per_weight(
    columns: int, bits: int, group: int, scale_bits: int = 16, zero_bits: int = 0
) -> float:
    if columns < 1 or bits < 1 or group < 1 or scale_bits < 0 or zero_bits < 0:
        raise ValueError("out of range")
    groups = columns // group + (columns % group > 0)
    return (columns * bits + groups * (scale_bits + zero_bits)) / columns


def pack_int4(codes: Tensor) -> Tensor:
    columns = codes.shape[-1]
    lanes = F.pad(codes, (0, (8 - columns % 8) % 8)).to(torch.int32)
    lanes = rearrange(lanes, "... (w e) -> e ... w", e=8)
    words = torch.zeros_like(lanes[0])
    for lane in reversed(lanes):
        words = (words << 4) | lane
    return words


def unpack_int4(packed: Tensor, columns: int) -> Tensor:
    lanes = [(packed >> (4 * lane)).bitwise_and(0xF) for lane in range(8)]
    return torch.stack(lanes, dim=-1).reshape(*packed.shape[:-1], -1)[..., :columns].byte()


def fp8_values(mantissa_bits: int) -> Tensor:
    if mantissa_bits not in (2, 3):
        raise ValueError("3 for E4M3, 2 for E5M2")
    bias = {3: 7, 2: 15}[mantissa_bits]
    values = []
    for code in range(256):
        exponent = code >> mantissa_bits & (1 << 7 - mantissa_bits) - 1
        mantissa = code & (1 << mantissa_bits) - 1
        if exponent:
            value = 2.0 ** (exponent - bias) * (1 + mantissa / 2**mantissa_bits)
        else:
            value = 2.0 ** (1 - bias) * mantissa / 2**mantissa_bits
        if mantissa_bits == 3 and code & 127 == 127:
            value = float("nan")
        if mantissa_bits == 2 and exponent == 31:
            value = float("nan") if mantissa else float("inf")
        values.append(-value if code > 127 else value)
    return torch.tensor(values)


def to_fp8(x: Tensor, mantissa_bits: int) -> Tensor:
    """By distance to every value; an even code is preferred by looking at those first."""
    values = fp8_values(mantissa_bits).double()
    order = torch.cat([torch.arange(0, 256, 2), torch.arange(1, 256, 2)])
    order = order[values[order].isfinite()]
    grid = values[order]
    inside = x.double().clamp(grid.min(), grid.max()).flatten()
    codes = order[(inside[:, None] - grid).abs().min(dim=1).indices].to(torch.uint8)
    return torch.where(x.isnan(), torch.tensor(255, dtype=torch.uint8), codes.view(x.shape))


class QuantizedLinear(nn.Module):
    def __init__(self, weight: Tensor, bits: int, per="row"):
        super().__init__()
        if bits not in (2, 3, 4, 8) or per in ("tensor", "column"):
            raise ValueError(f"bits {bits}, per {per}")
        self.bits, self.inputs = bits, weight.shape[1]
        quantized = quantize(weight.detach(), bits, per, symmetric=bits == 8)
        self.group = self.inputs if per == "row" else per
        self.register_buffer("scale", quantized.scale)
        if bits == 8:
            self.register_buffer("codes", quantized.codes)
        else:
            self.register_buffer("codes", pack_int4(quantized.codes))
            self.register_buffer("zeros", pack_int4(quantized.zero_point))

    def _steps(self) -> Tensor:
        if self.bits == 8:
            return self.codes.float()
        codes = unpack_int4(self.codes, self.inputs).float()
        zeros = unpack_int4(self.zeros, self.scale.shape[1]).float()
        return codes - zeros.repeat_interleave(self.group, 1)[:, : self.inputs]

    def forward(self, x: Tensor) -> Tensor:
        """A product for each group, each times its scale."""
        steps, out = self._steps(), 0
        for i, start in enumerate(range(0, self.inputs, self.group)):
            part = slice(start, start + self.group)
            out = out + (x[..., part].float() @ steps[:, part].T) * self.scale[:, i]
        return out.to(x.dtype)

    def dequantized(self) -> Tensor:
        scale = self.scale.repeat_interleave(self.group, 1)[:, : self.inputs]
        return self._steps() * scale


class QuantizedCache:
    def __init__(self, codes, scales):
        self.codes, self.scales = codes, scales

    @property
    def lengths(self):
        return self.codes.lengths

    def positions(self, num_new: int):
        return self.codes.positions(num_new)

    def append(self, k: Tensor, v: Tensor, num_tokens=None) -> None:
        k, v = quantize(k), quantize(v)
        self.scales.append(k.scale, v.scale, num_tokens)
        self.codes.append(k.codes, v.codes, num_tokens)

    def keys_values(self):
        k, v = self.codes.keys_values()
        k_scale, v_scale = self.scales.keys_values()
        return k * k_scale, v * v_scale

    def truncate(self, lengths: Tensor) -> None:
        self.scales.truncate(lengths)
        self.codes.truncate(lengths)
