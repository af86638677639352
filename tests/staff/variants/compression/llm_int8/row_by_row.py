"""In NumPy, one token at a time, with integers of 64 bits; the layer keeps scales in a vector."""

import numpy as np
import torch
from torch import Tensor, nn


def outlier_columns(x: Tensor, threshold: float = 6.0) -> Tensor:
    values = np.abs(x.detach().float().numpy()).reshape(-1, x.shape[-1])
    found = sorted({int(column) for row in values for column in np.flatnonzero(row >= threshold)})
    return torch.tensor(found, dtype=torch.int64)


def int8_matmul(x: Tensor, weight: Tensor) -> Tensor:
    product = np.einsum("ti,oi->to", x.numpy().astype(np.int64), weight.numpy().astype(np.int64))
    return torch.from_numpy(product.astype(np.int32))


def _row(values: np.ndarray) -> tuple[np.ndarray, np.float32]:
    largest = np.abs(values).max() if values.size else np.float32(0)
    if largest == 0:
        return np.zeros(values.shape, np.int8), np.float32(0)
    scale = np.float32(largest / np.float32(127))
    return np.rint(values / scale).astype(np.int8), scale


def _rows(values: np.ndarray) -> tuple[Tensor, Tensor]:
    pairs = [_row(row) for row in values]
    codes = np.stack([codes for codes, _ in pairs])
    return torch.from_numpy(codes), torch.tensor([float(scale) for _, scale in pairs])


def llm_int8_matmul(x: Tensor, weight: Tensor, threshold: float = 6.0) -> Tensor:
    large = outlier_columns(x, threshold).tolist()
    small = [column for column in range(x.shape[1]) if column not in large]
    x_codes, x_scale = _rows(x[:, small].float().numpy())
    weight_codes, weight_scale = _rows(weight[:, small].float().numpy())
    result = int8_matmul(x_codes, weight_codes).double() * torch.outer(x_scale, weight_scale)
    for column in large:
        result += torch.outer(x[:, column].double(), weight[:, column].double())
    return result.to(x.dtype)


class Int8Linear(nn.Module):
    def __init__(self, weight: Tensor, threshold: float = 6.0):
        super().__init__()
        self.threshold = threshold
        codes, scale = _rows(weight.detach().float().numpy())
        self.codes = nn.Buffer(codes)
        self.scale = nn.Buffer(scale)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1])
        large = outlier_columns(rows, self.threshold)
        rest = rows.float().clone()
        rest[:, large] = 0
        codes, scale = _rows(rest.numpy())
        result = int8_matmul(codes, self.codes).double() * torch.outer(scale, self.scale)
        weight = self.codes[:, large].double() * self.scale.double()[:, None]
        result += rows[:, large].double() @ weight.T
        return result.to(x.dtype).reshape(*x.shape[:-1], len(self.scale))


def int8_share(x: Tensor, threshold: float = 6.0) -> float:
    return 1.0 - outlier_columns(x, threshold).shape[0] / x.size(-1)


def relative_error(got: Tensor, exact: Tensor) -> float:
    if got.shape != exact.shape:
        raise ValueError(f"{got.shape} against {exact.shape}")
    size = np.linalg.norm(exact.double().numpy())
    if not size > 0:
        raise ValueError("exact is zero")
    return float(np.linalg.norm((got.double() - exact.double()).numpy()) / size)
