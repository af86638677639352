"""A KV cache: keys and values are kept, so that a decode step computes only those of the new token.

Keys and values of a token never change once it is processed: causal attention lets nothing later
reach them. So each step appends its own and reads the rest. All memory is allocated once; a row of
the batch is a sequence, and its length says how much of the row's memory means anything. Taking
tokens back is then free: only the length changes, and what comes next overwrites them.

Shazeer, "Fast Transformer Decoding: One Write-Head is All You Need", 2019, arXiv:1911.02150, §2.4.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


class KVCache:
    """Keys and values of one layer for a batch of sequences of unequal length.

    Axes: B rows (sequences), K KV heads, T new tokens, S slots, H head dim. The tokens of row b are
    its slots 0 … lengths[b] − 1, in order. How they lie in memory is yours to choose; every method
    is possible without a Python loop over tokens. `capacity` is the number of slots of a row.

    Size of a good answer: about 30 lines in all.
    """

    def __init__(
        self,
        batch_size: int,
        capacity: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """An empty cache with room for `capacity` tokens in every row, all of it allocated now.

        Hint: a slot that was never written is read too, as the padding of a short row. A mask
        gives it weight 0 later, but 0 · NaN is NaN: the memory must start as zeros.
        """
        self.capacity = capacity
        # BEGIN SOLUTION
        self._lengths = torch.zeros(batch_size, dtype=torch.int64)
        self._keys = torch.zeros(batch_size, num_kv_heads, capacity, head_dim, dtype=dtype)
        self._values = torch.zeros_like(self._keys)
        # END SOLUTION

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        """Tokens held by each row, int64: a copy, which the caller may change."""
        # BEGIN SOLUTION
        return self._lengths.clone()
        # END SOLUTION

    def positions(self, num_new: int) -> Int[Tensor, "B T"]:
        """The positions that the next `num_new` tokens of each row will have, int64.

        positions[b, t] = lengths[b] + t: a token's position is the number of tokens before it in
        its own row, whatever the other rows hold.
        """
        # BEGIN SOLUTION
        return self._lengths[:, None] + torch.arange(num_new)
        # END SOLUTION

    def append(
        self,
        k: Float[Tensor, "B K T H"],
        v: Float[Tensor, "B K T H"],
        num_tokens: Int[Tensor, "B"] | None = None,
    ) -> None:
        """Put the keys and values of new tokens behind what each row holds.

        Args:
            k, v: of T columns a row, in the dtype of the cache; they are not changed.
            num_tokens: how many of row b's columns, from the left, are tokens (0 … T); the rest is
                padding, which may hold anything, even NaN, and is never stored. Default: all T.

        The bytes moved grow with the new tokens, not with what is held or could be held.

        Raises:
            ValueError: a row has no room for its tokens (the message names the row, what it holds,
                what came, the capacity), or a num_tokens[b] is not in 0 … T. Nothing has changed
                then, in any row.

        Hint: list the (row, column) pairs that are tokens; each one's slot follows from its row's
        length. Or go row by row, with slices.
        """
        # BEGIN SOLUTION
        num_columns = k.shape[2]
        if num_tokens is None:
            num_tokens = torch.full_like(self._lengths, num_columns)
        self._check_room(num_tokens, num_columns)  # every row, before any of them changes

        is_token = torch.arange(num_columns) < num_tokens[:, None]
        rows, columns = is_token.nonzero(as_tuple=True)
        slots = self._lengths[rows] + columns
        self._keys[rows, :, slots] = k[rows, :, columns]
        self._values[rows, :, slots] = v[rows, :, columns]
        self._lengths += num_tokens
        # END SOLUTION

    def keys_values(self) -> tuple[Float[Tensor, "B K S H"], Float[Tensor, "B K S H"]]:
        """All keys and all values, S = the length of the longest row. Views: no byte is copied.

        A shorter row is padded on the right. Padding slots never written hold zeros; those that
        held a token once (see `truncate`) hold any finite numbers.
        """
        # BEGIN SOLUTION
        longest = int(self._lengths.max())
        return self._keys[:, :, :longest], self._values[:, :, :longest]
        # END SOLUTION

    def truncate(self, lengths: Int[Tensor, "B"]) -> None:
        """Keep the first lengths[b] tokens of each row and forget the rest.

        Only the lengths change: no key or value is moved or cleared, and the same memory takes the
        tokens that come next.

        Raises:
            ValueError: a row holds fewer tokens than it should keep, or a length is negative (the
                message names the row and both numbers). Nothing has changed then, in any row.
        """
        # BEGIN SOLUTION
        for row, (held, kept) in self._each_row(lengths):
            if not 0 <= kept <= held:
                raise ValueError(f"row {row}: asked to keep {kept} tokens, expected 0 to {held}")
        self._lengths.copy_(lengths)
        # END SOLUTION

    # BEGIN SOLUTION
    def _check_room(self, num_tokens: Int[Tensor, "B"], num_columns: int) -> None:
        for row, (held, new) in self._each_row(num_tokens):
            if not 0 <= new <= num_columns:
                raise ValueError(f"row {row}: num_tokens is {new}, expected 0 to {num_columns}")
            if held + new > self.capacity:
                raise ValueError(
                    f"row {row}: {new} tokens came on {held} held, capacity is {self.capacity}"
                )

    def _each_row(self, numbers: Int[Tensor, "B"]) -> enumerate:
        """(row, (tokens it holds, its number)) for every row."""
        return enumerate(zip(self._lengths.tolist(), numbers.tolist(), strict=True))

    # END SOLUTION
