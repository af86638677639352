"""Keeps the codes transposed, as a product wants them, and computes in whole-matrix steps."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

TINY = 1e-38


def outlier_columns(x: Tensor, threshold: float = 6.0) -> Tensor:
    columns = x.detach().unbind(dim=-1)
    return torch.tensor(
        [i for i, c in enumerate(columns) if bool((c.abs() >= threshold).any())], dtype=torch.long
    )


def int8_matmul(x: Tensor, weight: Tensor) -> Tensor:
    return torch.matmul(x.to(torch.int32), weight.to(torch.int32).transpose(0, 1))


def absmax(x: Tensor) -> Tensor:
    padded = F.pad(x.float().abs(), (0, 1))  # so that a row of nothing has a largest value
    return torch.clamp(padded.amax(1), min=TINY)


def codes_of(x: Tensor, largest: Tensor) -> Tensor:
    return torch.round(127 * (x.float() / largest[:, None])).to(torch.int8)


def llm_int8_matmul(x: Tensor, weight: Tensor, threshold: float = 6.0) -> Tensor:
    keep = torch.ones(x.size(1))
    keep[outlier_columns(x, threshold)] = 0
    keep = keep.bool()
    a, b = x[:, keep], weight[:, keep]
    a_max, b_max = absmax(a), absmax(b)
    out = int8_matmul(codes_of(a, a_max), codes_of(b, b_max)).to(torch.float32)
    out = out * (a_max[:, None] / 127) * (b_max[None, :] / 127)
    return (F.linear(x[:, ~keep], weight[:, ~keep].to(x.dtype)) + out).to(x.dtype)


class Int8Linear(nn.Module):
    def __init__(self, weight: Tensor, threshold: float = 6.0):
        super().__init__()
        self.threshold = threshold
        largest = absmax(weight.detach())
        self.register_buffer("codes_t", codes_of(weight.detach(), largest).t().contiguous())
        self.register_buffer("largest", largest)

    def forward(self, x: Tensor) -> Tensor:
        lead = x.shape[:-1]
        x = x.flatten(end_dim=-2)
        columns = outlier_columns(x, self.threshold)
        outside = torch.index_select(x, 1, columns)
        inside = torch.clone(x)
        inside.index_fill_(1, columns, 0.0)
        x_max = absmax(inside)
        out = int8_matmul(codes_of(inside, x_max), self.codes_t.t()).float()
        out = out * (x_max / 127)[:, None] * (self.largest / 127)
        weight = torch.index_select(self.codes_t, 0, columns).float() * (self.largest / 127)
        return (out + outside.float() @ weight).to(x.dtype).view(*lead, -1)


def int8_share(x: Tensor, threshold: float = 6.0) -> float:
    columns = x.shape[-1]
    return (columns - len(outlier_columns(x, threshold))) / columns


def relative_error(got: Tensor, exact: Tensor) -> float:
    if tuple(got.shape) != tuple(exact.shape):
        raise ValueError("two shapes")
    below = torch.linalg.vector_norm(exact, dtype=torch.float64)
    if below == 0:
        raise ValueError("nothing to be relative to")
    difference = got.to(torch.float64) - exact.to(torch.float64)
    return (torch.linalg.vector_norm(difference) / below).item()
