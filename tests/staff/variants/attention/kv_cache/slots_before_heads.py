"""Storage [batch, slot, head, dim]: a token's keys lie together, as in most serving engines."""

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor


class KVCache:
    def __init__(
        self,
        batch_size: int,
        capacity: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.capacity = capacity
        shape = (batch_size, capacity, num_kv_heads, head_dim)
        self.k, self.v = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)
        self.held = torch.zeros(batch_size, dtype=torch.long)

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self.held.clone()

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return self.held.unsqueeze(1) + torch.arange(num_new).unsqueeze(0)

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        width = k.size(2)
        if num_tokens is None:
            num_tokens = torch.full_like(self.held, width)
        if bool(((num_tokens < 0) | (num_tokens > width)).any()):
            raise ValueError(f"num_tokens must lie in 0..{width}, got {num_tokens.tolist()}")
        after = self.held + num_tokens
        if int(after.max()) > self.capacity:
            row = int(after.argmax())
            raise ValueError(
                f"row {row} has {self.held[row]} tokens, {num_tokens[row]} new ones do not fit "
                f"into a capacity of {self.capacity}"
            )
        row, column = torch.where(torch.arange(width) < num_tokens[:, None])
        slot = self.held[row] + column
        self.k[row, slot] = rearrange(k, "b h t d -> b t h d")[row, column]
        self.v[row, slot] = rearrange(v, "b h t d -> b t h d")[row, column]
        self.held = after

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        end = self.held.max().item()
        k, v = (rearrange(x[:, :end], "b s h d -> b h s d") for x in (self.k, self.v))
        return k, v

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        if bool(((lengths < 0) | (lengths > self.held)).any()):
            raise ValueError(f"cannot keep {lengths.tolist()} of {self.held.tolist()} tokens")
        self.held = lengths.clone()
