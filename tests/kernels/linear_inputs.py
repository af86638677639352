"""Sequences with new tokens, the decay of each, and a state from before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

LEVELS = (0.02, 1.0, 0.2)  # of the decay of heads 0, 1, 2; 3 is as 0


@dataclass(frozen=True)
class Linear:
    """Arguments of `chunked_linear_attention`, in order. lengths: new tokens of each sequence."""

    arguments: list
    lengths: list[int]

    @property
    def q(self) -> Tensor:
        return self.arguments[0]

    @property
    def state(self) -> Tensor:
        return self.arguments[4]

    @property
    def scale(self) -> float:
        return self.arguments[7]

    def rows(self, sequence: int) -> slice:
        first = sum(self.lengths[:sequence])
        return slice(first, first + self.lengths[sequence])

    def part(self, firsts: Sequence[int], ends: Sequence[int], state: Tensor) -> Linear:
        """Of each sequence the tokens from its first to before its end, with another state."""
        pieces = [
            torch.arange(self.rows(b).start + first, self.rows(b).start + end)
            for b, (first, end) in enumerate(zip(firsts, ends, strict=True))
        ]
        chosen = torch.cat(pieces)
        tokens = [argument[chosen] for argument in self.arguments[:4]]
        lengths = [len(piece) for piece in pieces]
        return Linear([*tokens, state, starts_of(lengths), max(lengths), self.scale], lengths)


def draw_linear(
    draw,
    heads: int,
    lengths: Sequence[int],
    *,
    key_dim: int = 16,
    value_dim: int = 24,
    dtype: torch.dtype = torch.float16,
    scale: float | None = None,
    decay: float | None = None,
    closed: Sequence[int] = (),
    level: float = 2.0,
    max_tokens: int | None = None,
    padding: int = 0,
) -> Linear:
    """
    Args:
        decay: log_decay of all tokens, about; by default each head has its own level, from one that
            remembers for 50 tokens to one that forgets after 1.
        closed: tokens of each sequence whose gate is 0.
        level: of the numbers in the given state.
        padding: rows of NaN behind the last sequence.
    """
    tokens = sum(lengths)
    q, k = (draw.normal(tokens, heads, key_dim) for _ in "qk")
    v = draw.normal(tokens, heads, value_dim)
    levels = torch.tensor([LEVELS[head % 3] for head in range(heads)])
    log_decay = -2 * draw.uniform(tokens, heads) * levels
    if decay is not None:
        log_decay = decay * (1 + 0.2 * draw.uniform(tokens, heads))
    state = draw.normal(len(lengths), heads, key_dim, value_dim) * level
    most = max(lengths) if max_tokens is None else max_tokens
    own_scale = key_dim**-0.5 if scale is None else scale
    starts = starts_of(lengths)
    for first, end in pairwise(starts.tolist()):
        log_decay[[first + token for token in closed if first + token < end]] = -torch.inf
    given = [q.to(dtype), k.to(dtype), v.to(dtype), log_decay]
    if padding:
        given = [torch.cat([x, torch.full_like(x[:1], torch.nan).repeat_interleave(padding, 0)])
                 for x in given]  # fmt: skip
    return Linear([*given, state, starts, most, own_scale], list(lengths))


def starts_of(lengths: Sequence[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def least_bytes(linear: Linear) -> int:
    """Values, outputs and both states once; queries, keys and decays once for each 64 columns of
    the values; two numbers of `starts` by each program."""
    tokens, (batch, heads, key_dim, value_dim) = sum(linear.lengths), linear.state.shape
    width, tiles = linear.q.element_size(), -(-value_dim // 64)
    states = 2 * 4 * linear.state.numel()
    once = 2 * tokens * heads * value_dim * width
    for_each_tile = tokens * heads * (2 * key_dim * width + 4) + 2 * 4 * batch * heads
    return states + once + tiles * for_each_tile
