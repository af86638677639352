"""Row by row, over the tokens of the row alone; owners by counting each kind."""

import math
from collections import Counter
from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from assignment.provided.models import LayerCache, key_positions, rotate_at


def kv_owners(windows: Sequence[int | None], share: int) -> list[int]:
    if share <= 0:
        raise ValueError(f"share is {share}, expected 1 or more")
    seen, owner, owners = Counter(), {}, []
    for layer, window in enumerate(windows):
        if seen[window] % share == 0:
            owner[window] = layer
        seen[window] += 1
        owners.append(owner[window])
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
        self.per_kv, self.head_dim = num_heads // num_kv_heads, head_dim
        self.window, self.rope_theta = math.inf if window is None else window, rope_theta
        self.q_proj = nn.Linear(d_model, num_heads * head_dim, bias=False)
        self.o_proj = nn.Linear(num_heads * head_dim, d_model, bias=False)

    def forward(
        self,
        x: Float[Tensor, "B T D"],
        cache: LayerCache,
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        lengths, slots = cache.lengths.tolist(), key_positions(cache)
        counts = [x.shape[1]] * len(x) if num_tokens is None else num_tokens.tolist()
        keys, values = cache.keys_values()
        out = torch.zeros_like(x)
        for row, (length, count) in enumerate(zip(lengths, counts, strict=True)):
            if count:
                at = torch.arange(length - count, length)
                held = slots[row] >= 0
                tokens = keys[row, :, held], values[row, :, held], slots[row, held]
                out[row, :count] = self._attend(x[row, :count], at, *tokens)
        return out

    def _attend(self, x: Tensor, at: Tensor, k: Tensor, v: Tensor, keys_at: Tensor) -> Tensor:
        q = self.q_proj(x).unflatten(-1, (-1, self.head_dim)).transpose(0, 1)[None]
        q = rotate_at(q, at[None], self.rope_theta)[0]
        k, v = (y.repeat_interleave(self.per_kv, dim=0) for y in (k, v))
        age = at[:, None] - keys_at
        scores = q.float() @ k.float().transpose(1, 2) * self.head_dim**-0.5
        scores = scores.masked_fill((age < 0) | (age >= self.window), -math.inf)
        read = (scores.softmax(dim=-1) @ v.float()).to(x.dtype)
        return self.o_proj(read.transpose(0, 1).flatten(start_dim=1))
