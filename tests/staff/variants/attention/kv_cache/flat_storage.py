"""Flat storage [batch · capacity, head, dim]: a slot is one number, as in a paged cache."""

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
        self._first_slot = torch.arange(batch_size) * capacity
        self._length = torch.zeros(batch_size, dtype=torch.int64)
        self._storage = tuple(
            torch.zeros(batch_size * capacity, num_kv_heads, head_dim, dtype=dtype) for _ in "kv"
        )

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self._length + 0

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return self._length.view(-1, 1) + torch.arange(0, num_new)

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        batch_size, _, columns, _ = k.shape
        counts = [columns] * batch_size if num_tokens is None else num_tokens.tolist()
        for row, (count, held) in enumerate(zip(counts, self._length.tolist(), strict=True)):
            if count < 0 or count > columns:
                raise ValueError(f"row {row}: {count} tokens in {columns} columns")
            if count > self.capacity - held:
                raise ValueError(f"row {row}: {held} + {count} > capacity {self.capacity}")

        source = [row * columns + i for row, count in enumerate(counts) for i in range(count)]
        target = [
            row * self.capacity + held + i
            for row, (count, held) in enumerate(zip(counts, self._length.tolist(), strict=True))
            for i in range(count)
        ]
        source, target = torch.tensor(source).long(), torch.tensor(target).long()
        for storage, new in zip(self._storage, (k, v), strict=True):
            tokens = new.transpose(1, 2)[source // max(columns, 1), source % max(columns, 1)]
            storage.index_copy_(0, target, tokens)
        self._length += torch.tensor(counts)

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        longest = max(self._length.tolist())
        k, v = (
            storage.view(-1, self.capacity, *storage.shape[1:])[:, :longest].transpose(1, 2)
            for storage in self._storage
        )
        return k, v

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        for row, (new, old) in enumerate(zip(lengths.tolist(), self._length.tolist(), strict=True)):
            if new > old or new < 0:
                raise ValueError(f"row {row}: {new} is not between 0 and {old}")
        self._length = torch.tensor(lengths.tolist())
