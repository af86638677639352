"""A plain loop over the rows with slices; lengths are a list of Python integers."""

import torch
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
        self.row_lengths = [0] * batch_size
        self.keys = torch.zeros((batch_size, num_kv_heads, capacity, head_dim), dtype=dtype)
        self.values = torch.zeros((batch_size, num_kv_heads, capacity, head_dim), dtype=dtype)

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return torch.tensor(self.row_lengths)

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        rows = [torch.arange(length, length + num_new) for length in self.row_lengths]
        return torch.stack(rows)

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        batch_size, _, width, _ = k.shape
        new = [width] * batch_size if num_tokens is None else [int(n) for n in num_tokens]
        for row in range(batch_size):
            if not 0 <= new[row] <= width:
                raise ValueError(f"num_tokens[{row}] = {new[row]}, but there are {width} columns")
            if self.row_lengths[row] + new[row] > self.capacity:
                raise ValueError(
                    f"row {row}: length {self.row_lengths[row]}, new {new[row]}, "
                    f"capacity {self.capacity}"
                )
        for row in range(batch_size):
            start = self.row_lengths[row]
            end = start + new[row]
            self.keys[row, :, start:end] = k[row, :, : new[row]]
            self.values[row, :, start:end] = v[row, :, : new[row]]
            self.row_lengths[row] = end

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        longest = max(self.row_lengths)
        return self.keys.narrow(2, 0, longest), self.values.narrow(2, 0, longest)

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        wanted = lengths.tolist()
        for row, (want, have) in enumerate(zip(wanted, self.row_lengths, strict=True)):
            if want < 0 or want > have:
                raise ValueError(f"row {row} holds {have} tokens, cannot keep {want}")
        self.row_lengths = wanted
