"""One tensor for keys and values; new tokens and their slots are picked by two boolean masks."""

import torch
from jaxtyping import Bool, Float, Int
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
        self._kv = torch.zeros(2, batch_size, capacity, num_kv_heads, head_dim, dtype=dtype)
        self._used = torch.zeros(batch_size, dtype=torch.int64)

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return self._used.detach().clone()

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        return torch.arange(num_new).repeat(len(self._used), 1) + self._used[:, None]

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        num_columns = k.shape[-2]
        if num_tokens is None:
            num_tokens = torch.tensor(num_columns).expand(len(self._used))
        if num_tokens.min() < 0 or num_tokens.max() > num_columns:
            raise ValueError(f"num_tokens {num_tokens.tolist()}: expected 0 to {num_columns} each")
        free = self.capacity - self._used
        if (num_tokens > free).any():
            raise ValueError(
                f"lengths {self._used.tolist()} + new {num_tokens.tolist()} exceed the capacity "
                f"{self.capacity} in rows {(num_tokens > free).nonzero().flatten().tolist()}"
            )
        new = _between(0 * self._used, num_tokens, num_columns)
        slots = _between(self._used, self._used + num_tokens, self.capacity)
        # Both masks are walked row by row, left to right: the tokens meet their slots.
        self._kv[0][slots] = k.movedim(1, 2)[new]
        self._kv[1][slots] = v.movedim(1, 2)[new]
        self._used = self._used + num_tokens

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        held = self._kv[:, :, : int(self._used.max())].movedim(2, 3)
        return held[0], held[1]

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        if (lengths > self._used).any() or (lengths < 0).any():
            raise ValueError(f"lengths {lengths.tolist()}, but {self._used.tolist()} are held")
        self._used = lengths.long().clone()


def _between(start: Int[Tensor, "B"], end: Int[Tensor, "B"], width: int) -> Bool[Tensor, "B W"]:
    place = torch.arange(width)
    return (place >= start[:, None]) & (place < end[:, None])
