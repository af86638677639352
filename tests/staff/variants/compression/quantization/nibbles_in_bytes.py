"""Groups padded into rows; the layer keeps two codes a byte, filled across rows."""

import torch
import torch.nn.functional as F
from torch import nn

from assignment.provided.compression import Quantized

SMALLEST_SCALE = 1.17549435e-38


def _to2d(x, per):
    C = x.shape[-1]
    if per == "tensor":
        return x.reshape(1, -1), (1,) * x.ndim
    if per == "row":
        return x.reshape(-1, C), (*x.shape[:-1], 1)
    if per == "column":
        return x.reshape(-1, C).t(), (*(1,) * (x.ndim - 1), C)
    if not isinstance(per, int) or per <= 0:
        raise ValueError(f"per {per}")
    pad = (-C) % per
    y = F.pad(x, (0, pad), value=0)
    return y.reshape(-1, per), (*x.shape[:-1], (C + pad) // per)


def _back(y, shape, per):
    if per == "column":
        return y.t().reshape(shape).contiguous()
    if isinstance(per, int):
        return y.reshape(*shape[:-1], -1)[..., : shape[-1]]
    return y.reshape(shape)


def quantize(x, bits=8, per="row", symmetric=True):
    if bits < 2 or bits > 8:
        raise ValueError("bits")
    y, shape = _to2d(x.float(), per)
    lo, hi = y.amin(1).clamp(max=0).double(), y.amax(1).clamp(min=0).double()
    if symmetric:
        top = 2 ** (bits - 1) - 1
        scale = torch.maximum(hi, -lo) / top
    else:
        scale = (hi - lo) / (2**bits - 1)
    scale = scale.clamp(min=SMALLEST_SCALE).float().clamp(min=SMALLEST_SCALE)
    steps = torch.round(y / scale[:, None])
    if symmetric:
        codes = steps.clamp(-top, top).to(torch.int8)
        return Quantized(_back(codes, x.shape, per), scale.view(shape), None, per)
    zero = (-lo / scale).round()
    codes = (steps + zero[:, None]).clamp(0, 2**bits - 1).to(torch.uint8)
    zero = zero.to(torch.uint8).view(shape)
    return Quantized(_back(codes, x.shape, per), scale.view(shape), zero, per)


def dequantize(q):
    codes, _ = _to2d(q.codes.to(torch.int16), q.per)
    s = q.scale.reshape(-1, 1)
    if q.zero_point is not None:
        codes = codes.sub(q.zero_point.reshape(-1, 1).to(torch.int16))
    return _back(codes.mul(s), q.codes.shape, q.per).clone()


def bits_per_weight(columns, bits, group, scale_bits=16, zero_bits=0):
    if min(columns, bits, group) <= 0 or min(scale_bits, zero_bits) < 0:
        raise ValueError("sizes")
    return bits + (scale_bits + zero_bits) * ((columns - 1) // group + 1) / columns


def pack_int4(codes):
    C = codes.shape[-1]
    c = F.pad(codes, (0, (-C) % 8)).to(torch.int32).unflatten(-1, (-1, 8))
    out = c[..., 0].clone()
    for j in range(1, 8):
        out |= c[..., j] << 4 * j
    return out


def unpack_int4(packed, columns):
    idx = torch.arange(columns)
    words = packed[..., idx // 8].to(torch.int64) & 0xFFFFFFFF
    return ((words >> (4 * (idx % 8))) % 16).to(torch.uint8)


def fp8_values(mantissa_bits):
    if mantissa_bits == 3:
        return torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    if mantissa_bits == 2:
        # an E5M2 is the upper byte of a float16
        return (
            (torch.arange(256, dtype=torch.int32) << 8).to(torch.int16).view(torch.float16).float()
        )
    raise ValueError("mantissa_bits")


def to_fp8(x, mantissa_bits):
    values = fp8_values(mantissa_bits)
    dtype = torch.float8_e4m3fn if mantissa_bits == 3 else torch.float8_e5m2
    y = x.to(dtype).view(torch.uint8)
    top = {3: 126, 2: 123}[mantissa_bits]
    over = x.double().abs() > float(values[top])
    y = torch.where(over & (x > 0), torch.tensor(top, dtype=torch.uint8), y)
    return torch.where(over & (x < 0), torch.tensor(top + 128, dtype=torch.uint8), y)


def _bytes(codes):
    c = codes.reshape(-1)
    c = F.pad(c, (0, len(c) % 2))
    return c[::2] | c[1::2] << 4


def _nibbles(b, n):
    return torch.stack([b & 15, b >> 4], -1).reshape(-1)[:n]


class QuantizedLinear(nn.Module):
    def __init__(self, weight, bits, per="row"):
        super().__init__()
        if bits != 8 and bits not in range(2, 5):
            raise ValueError("bits")
        if per != "row" and not (isinstance(per, int) and per >= 1):
            raise ValueError("per")
        with torch.no_grad():
            q = quantize(weight, bits, per, bits == 8)
        self.bits, self.per, self.size = bits, per, weight.size()
        self.register_buffer("scale", q.scale)
        if bits == 8:
            self.register_buffer("codes", q.codes)
        else:
            self.register_buffer("codes", _bytes(q.codes))
            self.register_buffer("zero_points", _bytes(q.zero_point))

    @torch.no_grad()
    def dequantized(self):
        if self.bits == 8:
            return dequantize(Quantized(self.codes, self.scale, None, self.per))
        codes = _nibbles(self.codes, self.size.numel()).view(self.size)
        z = _nibbles(self.zero_points, self.scale.numel()).view_as(self.scale)
        return dequantize(Quantized(codes, self.scale, z, self.per))

    def forward(self, x):
        return torch.einsum("...i,oi->...o", x, self.dequantized().to(x.dtype))


class QuantizedCache:
    def __init__(self, codes, scales):
        self.codes, self.scales = codes, scales

    @property
    def lengths(self):
        return self.codes.lengths

    def positions(self, num_new):
        return self.codes.positions(num_new)

    def append(self, k, v, num_tokens=None):
        T = k.shape[2]
        if num_tokens is not None:
            real = (torch.arange(T) < num_tokens[:, None])[:, None, :, None]
            k, v = k.masked_fill(~real, 0), v.masked_fill(~real, 0)
        k, v = quantize(k), quantize(v)
        self.codes.append(k=k.codes, v=v.codes, num_tokens=num_tokens)
        self.scales.append(k=k.scale, v=v.scale, num_tokens=num_tokens)

    def keys_values(self):
        codes, scales = self.codes.keys_values(), self.scales.keys_values()
        return tuple((c.double() * s.double()).float() for c, s in zip(codes, scales, strict=True))

    def truncate(self, lengths):
        self.codes.truncate(lengths)
        self.scales.truncate(lengths)
