"""Slots are put in order first, then a band is cut; owners by building the groups of a kind."""

from collections.abc import Sequence

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, key_positions, rotate_at


def kv_owners(windows: Sequence[int | None], share: int) -> list[int]:
    if share < 1:
        raise ValueError("share must be positive")
    owners = list(range(len(windows)))
    for kind in set(windows):
        members = [layer for layer, window in enumerate(windows) if window == kind]
        for start in range(0, len(members), share):
            for layer in members[start : start + share]:
                owners[layer] = members[start]
    return owners


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
        self.heads, self.kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.window, self.theta = window, rope_theta
        self.q_proj = nn.Linear(d_model, num_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * head_dim, d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: LayerCache,
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        batch, width, _ = x.shape
        new = torch.tensor([width] * batch) if num_tokens is None else num_tokens
        at = cache.lengths[:, None] - new[:, None] + torch.arange(width)
        at = torch.minimum(at, cache.lengths[:, None] - 1)  # padding stands where the last token is

        keys_at, order = key_positions(cache).sort(dim=1)
        k, v = (
            torch.stack([row[:, places] for row, places in zip(side, order, strict=True)])
            for side in cache.keys_values()
        )
        q = rotate_at(
            rearrange(self.q_proj(x), "b t (n h) -> b n t h", n=self.heads), at, self.theta
        )
        q = rearrange(q, "b (k g) t h -> b k g t h", k=self.kv_heads)
        scores = einsum(q.float(), k.float(), "b k g t h, b k s h -> b k g t s")
        scores = scores / self.head_dim**0.5
        begin = torch.zeros_like(at) if self.window is None else (at - self.window + 1).clamp(min=0)
        seen = (keys_at[:, None] >= begin[..., None]) & (keys_at[:, None] <= at[..., None])
        scores = torch.where(seen[:, None, None], scores, float("-inf"))
        weights = scores.softmax(dim=-1).nan_to_num(0.0)
        read = einsum(weights, v.float(), "b k g t s, b k s h -> b t k g h")
        return self.o_proj(rearrange(read, "b t k g h -> b t (k g h)").to(x.dtype))
