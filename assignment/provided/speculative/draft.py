"""What a drafter hands to the verification."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

NO_TOKEN = -1  # fills up the rows of sequences that have fewer tokens


@dataclass(frozen=True)
class Draft:
    """Drafted tokens of B sequences, up to G of each.

    tokens: int64. Of row b the first num_draft[b] are drafted; the rest may hold anything.
    num_draft: 0 … G for each sequence.
    probs: the distribution p that each token was drawn from, after all before it. None for a
        deterministic draft, which has one guess and no doubt: p is 1 on it.

    Raises:
        ValueError: if the shapes do not fit each other, or a num_draft is out of its range.
    """

    tokens: Int[Tensor, "B G"]
    num_draft: Int[Tensor, "B"]
    probs: Float[Tensor, "B G V"] | None = None

    def __post_init__(self) -> None:
        if self.tokens.dim() != 2:
            raise ValueError(f"tokens: expected [B, G], got {list(self.tokens.shape)}")
        rows, width = self.tokens.shape
        counts = self.num_draft.tolist()
        if self.num_draft.shape != (rows,) or not all(0 <= count <= width for count in counts):
            raise ValueError(f"num_draft: expected {rows} values from 0 to {width}, got {counts}")
        if self.probs is not None and self.probs.shape[:-1] != (rows, width):
            raise ValueError(f"probs: expected [{rows}, {width}, V], got {list(self.probs.shape)}")

    @classmethod
    def of(cls, rows: list[list[int]], width: int) -> "Draft":
        """A deterministic draft: the tokens of each row, at most `width`."""
        tokens = torch.full((len(rows), width), NO_TOKEN)
        for row, drafted in zip(tokens, rows, strict=True):
            row[: len(drafted)] = torch.tensor(drafted, dtype=torch.int64)
        return cls(tokens, torch.tensor([len(drafted) for drafted in rows], dtype=torch.int64))
