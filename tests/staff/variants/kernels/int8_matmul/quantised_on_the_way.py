"""x has no codes in memory: who multiplies reads x itself and quantises it. Wide tiles make up."""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def find_columns(x_ptr, flag_ptr, threshold, M, I2: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
    """A byte for each column."""
    c = tl.program_id(0) * C + tl.arange(0, C)
    found = tl.zeros((C,), tl.int32)
    start = 0
    while start < M:
        r = start + tl.arange(0, R)
        mask = (r < M)[:, None] & (c < I2)[None, :]
        v = tl.load(x_ptr + r.to(tl.int64)[:, None] * I2 + c[None, :], mask=mask, other=0)
        hit = (tl.abs(v.to(tl.float32)) >= threshold) & mask
        found = tl.maximum(found, tl.max(hit.to(tl.int32), 0))
        start += R
    tl.store(flag_ptr + c, found.to(tl.int8), mask=c < I2)


@triton.jit
def find_scales(x_ptr, flag_ptr, scale_ptr, I2: tl.constexpr, C: tl.constexpr):
    """A row, tile by tile."""
    r = tl.program_id(0)
    largest = tl.zeros((C,), tl.float32)
    for start in range(0, I2, C):
        c = start + tl.arange(0, C)
        flag = tl.load(flag_ptr + c, mask=c < I2, other=1)
        v = tl.load(x_ptr + r.to(tl.int64) * I2 + c, mask=c < I2, other=0).to(tl.float32)
        largest = tl.where(flag == 0, tl.maximum(largest, tl.abs(v)), largest)
    tl.store(scale_ptr + r, tl.maximum(tl.max(largest, 0) / 127.0, 1.1754943508222875e-38))


@triton.jit
def multiply(
    out_ptr, x_ptr, flag_ptr, x_scale_ptr, w_ptr, w_scale_ptr, M, O2, I2: tl.constexpr,
    R: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * N + tl.arange(0, N)
    r = tl.program_id(1) * R + tl.arange(0, R)
    x_scale = tl.load(x_scale_ptr + r, mask=r < M, other=1.0)
    exact = tl.zeros((R, N), tl.int32)
    rest = tl.zeros((R, N), tl.float32)
    for start in range(0, I2, K):
        k = start + tl.arange(0, K)
        flag = tl.load(flag_ptr + k, mask=k < I2, other=0) != 0
        x = tl.load(
            x_ptr + r.to(tl.int64)[:, None] * I2 + k[None, :],
            mask=(r < M)[:, None] & (k < I2)[None, :],
            other=0.0,
        )
        w = tl.load(
            w_ptr + n.to(tl.int64)[None, :] * I2 + k[:, None],
            mask=(n < O2)[None, :] & (k < I2)[:, None],
            other=0,
        )
        steps = tl.where(flag[None, :], 0.0, x.to(tl.float32)) / x_scale[:, None]
        code = tl.where(steps < 0, tl.ceil(steps - 0.5), tl.floor(steps + 0.5)).to(tl.int8)
        exact = tl.dot(code, w, exact, out_dtype=tl.int32)
        if tl.sum(flag.to(tl.int32), 0) > 0:
            held = tl.where(flag[None, :], x, tl.zeros_like(x))
            rest = tl.dot(held, w.to(x.dtype), rest, input_precision="ieee")
    w_scale = tl.load(w_scale_ptr + n, mask=n < O2, other=0.0)[None, :]
    result = exact.to(tl.float32) * (x_scale[:, None] * w_scale) + rest * w_scale
    place = r.to(tl.int64)[:, None] * O2 + n[None, :]
    mask = (r < M)[:, None] & (n < O2)[None, :]
    tl.store(out_ptr + place, result.to(out_ptr.dtype.element_ty), mask=mask)


def int8_matmul(x: Tensor, codes: Tensor, scales: Tensor, threshold: float = 6.0) -> Tensor:
    M, width = x.shape
    outputs = codes.shape[0]
    out = x.new_empty(M, outputs)
    if M == 0:
        return out
    flags = torch.empty(width, dtype=torch.int8)
    x_scales = torch.empty(M, dtype=torch.float32)
    find_columns[(triton.cdiv(width, 32),)](x, flags, threshold, M, I2=width, R=64, C=32)
    find_scales[(M,)](x, flags, x_scales, I2=width, C=256)
    R = 16
    while min(M, 128) > R:
        R *= 2
    N = 256 if R == 16 else 128
    while N > 16 and triton.cdiv(M, R) * triton.cdiv(outputs, N) < 64:
        N //= 2
    multiply[(triton.cdiv(outputs, N), triton.cdiv(M, R))](
        out, x, flags, x_scales, codes, scales, M, outputs, I2=width, R=R, N=N,
        K=64 if x.element_size() == 2 else 32, num_warps=8,
    )  # fmt: skip
    return out
