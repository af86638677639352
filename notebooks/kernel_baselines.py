"""What PyTorch offers in place of the kernels, for gpu_kernels.py."""

from __future__ import annotations

import torch.nn.functional as F
from kernel_cases import Case
from torch import Tensor


def gathered(case: Case) -> tuple[Tensor, Tensor]:
    """Keys and values out of their blocks, [B, K, T, H]: PyTorch's attention knows no tables.

    For requests that are equally long.
    """
    length = case.shape.lengths[0]
    return tuple(
        cache[case.tables[:, :-1]].flatten(1, 2)[:, :length].transpose(1, 2)
        for cache in (case.k_cache, case.v_cache)
    )


def attention(case: Case, k: Tensor, v: Tensor) -> Tensor:
    """PyTorch's own, over gathered keys and values: [B, N, H]."""
    q = case.q[:, :, None]
    out = F.scaled_dot_product_attention(q, k, v, scale=case.shape.scale, enable_gqa=True)
    return out[:, :, 0]


def index_put(k: Tensor, v: Tensor, k_cache: Tensor, v_cache: Tensor, slots: Tensor) -> None:
    """As `store_kv`, for slots that are none of them −1."""
    for new, cache in ((k, k_cache), (v, v_cache)):
        cache.flatten(0, 1).index_put_((slots,), new)
