"""Multiplies by 127 / absmax, sums in float32 a thousand inputs at a time, and zeroes by a mask."""

import torch
from torch import Tensor, nn


def outlier_columns(x: Tensor, threshold: float = 6.0) -> Tensor:
    largest = x.detach().reshape(-1, x.shape[-1]).abs().max(dim=0).values
    return torch.where(largest >= threshold)[0]


def int8_matmul(x: Tensor, weight: Tensor) -> Tensor:
    """127² · 1024 is below 2²⁴: each part is exact in float32."""
    total = torch.zeros(x.shape[0], weight.shape[0], dtype=torch.int32)
    for start in range(0, x.shape[1], 1024):
        part = slice(start, start + 1024)
        total += (x[:, part].float() @ weight[:, part].float().t()).to(torch.int32)
    return total


def _quantised(x: Tensor) -> tuple[Tensor, Tensor]:
    x = x.to(torch.float32)
    absmax = x.abs().max(dim=1, keepdim=True).values
    factor = torch.where(absmax == 0, torch.zeros_like(absmax), 127 / absmax)
    return (x * factor).round().char(), absmax


def llm_int8_matmul(x: Tensor, weight: Tensor, threshold: float = 6.0) -> Tensor:
    is_large = torch.zeros(x.shape[1], dtype=torch.bool)
    is_large[outlier_columns(x, threshold)] = True
    small_x, small_weight = x.masked_fill(is_large, 0), weight.masked_fill(is_large, 0)
    x_codes, x_absmax = _quantised(small_x)
    weight_codes, weight_absmax = _quantised(small_weight)
    back = x_absmax * weight_absmax.t() / 127**2
    small = int8_matmul(x_codes, weight_codes).float() * back
    large = (x * is_large).float() @ weight.float().t()
    return (small + large).to(x.dtype)


class Int8Linear(nn.Module):
    def __init__(self, weight: Tensor, threshold: float = 6.0):
        super().__init__()
        self.threshold = threshold
        codes, absmax = _quantised(weight.detach())
        self.register_buffer("weight_codes", codes)
        self.register_buffer("absmax", absmax.flatten())

    def forward(self, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        is_large = torch.zeros(flat.shape[1], dtype=torch.bool)
        is_large[outlier_columns(flat, self.threshold)] = True
        codes, absmax = _quantised(flat.masked_fill(is_large, 0))
        back = absmax * self.absmax / 127**2
        small = int8_matmul(codes, self.weight_codes).float() * back
        weight = self.weight_codes.float() * (self.absmax / 127).unsqueeze(1)
        large = (flat * is_large).float() @ weight.t()
        return (small + large).to(x.dtype).reshape(*x.shape[:-1], -1)


def int8_share(x: Tensor, threshold: float = 6.0) -> float:
    return float(x.shape[-1] - outlier_columns(x, threshold).numel()) / x.shape[-1]


def relative_error(got: Tensor, exact: Tensor) -> float:
    if got.size() != exact.size() or not exact.any():
        raise ValueError("tensors of one shape, not zero, please")
    difference = got.to(torch.float64) - exact.to(torch.float64)
    return (difference.pow(2).sum() / exact.to(torch.float64).pow(2).sum()).sqrt().item()
