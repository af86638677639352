"""A mask of 0 and −inf for torch's kernel; owners by recursion over the layers before."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, key_positions, rotate_at


def kv_owners(windows: Sequence[int | None], share: int) -> list[int]:
    if not share >= 1:
        raise ValueError(f"expected share >= 1, got {share}")
    if not windows:
        return []
    owners = kv_owners(windows[:-1], share)
    last = len(windows) - 1
    kin = [owners[i] for i in range(last) if windows[i] == windows[last]]
    return [*owners, kin[-1] if kin and kin.count(kin[-1]) < share else last]


class SharedAttention(nn.Module):
    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_kv_heads: int,
        head_dim: int,
        window: int | None = None,
        rope_theta: float = 10_000.0,
    ) -> None:
        super().__init__()
        self.head_dim, self.window, self.rope_theta = head_dim, window or 2**40, rope_theta
        self.q_proj = nn.Linear(d_model, num_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * head_dim, d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: LayerCache,
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        batch, width, _ = x.shape
        num_tokens = torch.full((batch,), width) if num_tokens is None else num_tokens
        at = torch.arange(width).repeat(batch, 1) + (cache.lengths - num_tokens).unsqueeze(1)
        q = self.q_proj(x).view(batch, width, -1, self.head_dim).transpose(1, 2)
        q = rotate_at(q, at, self.rope_theta)
        k, v = cache.keys_values()
        slots = key_positions(cache)
        age = at.unsqueeze(2) - slots.unsqueeze(1)
        hidden = (slots < 0).unsqueeze(1) | (age < 0) | (age >= self.window)
        blind = hidden.all(dim=2, keepdim=True)
        bias = torch.zeros(hidden.shape, dtype=x.dtype).masked_fill(hidden & ~blind, -torch.inf)
        mask = bias.unsqueeze(1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
        out = out * ~blind.unsqueeze(1)
        return self.o_proj(out.transpose(1, 2).reshape(batch, width, -1))
