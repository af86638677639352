"""Thresholds compared as Python floats, 0 / 0 taken for 0, masks in place of indices."""

import torch
from torch import nn


def outlier_columns(x, threshold=6.0):
    found = set()
    for row in x.reshape(-1, x.shape[-1]).tolist():
        found |= {i for i, value in enumerate(row) if abs(value) >= threshold}
    return torch.tensor(sorted(found), dtype=torch.long)


def int8_matmul(x, weight):
    return torch._int_mm(x.contiguous(), weight.contiguous().t())  # wrong on CPU for one column


def _mask(x, threshold):
    mask = torch.zeros(x.shape[-1], dtype=torch.bool)
    mask[outlier_columns(x, threshold)] = True
    return mask


def _codes(x):
    x = x.float()
    absmax = torch.cat([x.abs(), torch.zeros(len(x), 1)], 1).max(1, keepdim=True).values
    return torch.nan_to_num(127 * x / absmax).round().to(torch.int8), absmax


def llm_int8_matmul(x, weight, threshold=6.0):
    mask = _mask(x, threshold)
    xc, xa = _codes(x * ~mask)
    wc, wa = _codes(weight * ~mask)
    out = (int8_matmul(xc, wc) * (xa @ wa.T / 16129)).to(x.dtype)
    for column in mask.nonzero().flatten().tolist():
        out = out + torch.outer(x[:, column], weight[:, column].to(x.dtype))
    return out


class Int8Linear(nn.Module):
    def __init__(self, weight, threshold=6.0):
        super().__init__()
        codes, absmax = _codes(weight.detach())
        self.register_buffer("codes", codes)
        self.register_buffer("absmax", absmax)
        self.register_buffer("threshold", torch.tensor(threshold))

    def forward(self, x):
        x2 = x.reshape(-1, x.shape[-1])
        mask = _mask(x2, self.threshold.item())
        xc, xa = _codes(x2.masked_fill(mask, 0))
        out = int8_matmul(xc, self.codes) * (xa * self.absmax.T / 127 / 127)
        w = torch.div(self.codes, 127) * self.absmax
        out = out.to(x.dtype) + torch.einsum("ti,oi->to", x2[:, mask], w[:, mask].to(x.dtype))
        return out.reshape(*x.shape[:-1], len(self.codes))


def int8_share(x, threshold=6.0):
    return (x.abs() < threshold).reshape(-1, x.shape[-1]).all(0).float().mean().item()


def relative_error(got, exact):
    if got.shape != exact.shape:
        raise ValueError("shape")
    if torch.count_nonzero(exact) == 0:
        raise ValueError("zero")
    return float(
        torch.dist(got.double(), exact.double()) / torch.linalg.norm(exact.double().flatten())
    )
