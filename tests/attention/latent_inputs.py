"""Inputs of `attention.latent`'s tests, and the comparison of a cache with its oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from tests.attention import oracles_latent as oracles
from tests.grading.closeness import assert_equal
from tests.grading.refusal import assert_value_error


@dataclass(frozen=True)
class Sizes:
    """Of a head and of what is cached. No two should be equal: what swaps them must not fit."""

    heads: int
    nope: int
    rope: int
    value: int
    latent: int

    def __str__(self) -> str:
        return f"N{self.heads}-P{self.nope}-R{self.rope}-E{self.value}-C{self.latent}"


def draw_parts(draw, n: Sizes, num_new, num_keys, *, rows=2, dtype=torch.float32) -> list[Tensor]:
    """The arguments of both forms except the positions, different in every row and head."""
    return [
        draw.normal(rows, n.heads, num_new, n.nope, dtype=dtype),
        draw.normal(rows, n.heads, num_new, n.rope, dtype=dtype),
        draw.normal(rows, num_keys, n.latent, dtype=dtype),
        draw.normal(rows, num_keys, n.rope, dtype=dtype),
        draw.normal(n.heads, n.nope, n.latent, scale=n.latent**-0.5, dtype=dtype),
        draw.normal(n.heads, n.value, n.latent, scale=n.latent**-0.5, dtype=dtype),
    ]


def draw_weights(draw, n: Sizes, d_model: int) -> dict[str, Tensor]:
    """A layer's state_dict, every matrix from N(0, 1 / inputs)."""
    shapes = {
        "q_proj": (n.heads * (n.nope + n.rope), d_model),
        "kv_down": (n.latent, d_model),
        "k_rope_proj": (n.rope, d_model),
        "k_up": (n.heads * n.nope, n.latent),
        "v_up": (n.heads * n.value, n.latent),
        "o_proj": (d_model, n.heads * n.value),
    }
    return {
        f"{name}.weight": draw.normal(*shape, scale=shape[1] ** -0.5)
        for name, shape in shapes.items()
    }


def fed_in_steps(feed: Callable, truncate: Callable, inputs: Tensor, steps: list) -> Tensor:
    """What `feed` said last to each element of inputs [B, S, …], fed in ragged steps.

    Args:
        feed: (new [B, T, …], num_tokens [B] or None) -> [B, T, width].
        truncate: (lengths [B]) -> None.
        steps: of (T, tokens of each row or None for T, lengths to go back to afterwards or None).
            A row's padding columns hold another row's elements.
    """
    held, said = [0] * len(inputs), {}
    for num_columns, num_tokens, kept in steps:
        new = [num_columns] * len(inputs) if num_tokens is None else num_tokens
        columns = torch.arange(num_columns)
        places = (torch.tensor(held)[:, None] + columns).clamp(max=inputs.shape[1] - 1)
        rows = torch.arange(len(inputs))[:, None]
        is_token = columns < torch.tensor(new)[:, None]
        chosen = torch.where(is_token, rows, (rows + 1) % len(inputs))
        got = feed(inputs[chosen, places], None if num_tokens is None else torch.tensor(new))
        assert got.isfinite().all(), "the result holds numbers that are not finite"
        for row, count in enumerate(new):
            said |= {(row, held[row] + i): got[row, i] for i in range(count)}
            held[row] += count
        if kept is not None:
            truncate(torch.tensor(kept))
            held = list(kept)
    return torch.stack([said[place] for place in sorted(said)]).unflatten(0, inputs.shape[:2])


class CachePair:
    """A cache under test and the oracle beside it: both get every call, `check` compares them."""

    def __init__(
        self,
        draw,
        cache,
        rows: int,
        capacity: int,
        latent_dim: int,
        rope_dim: int,
        dtype: torch.dtype,
    ):
        self.draw, self.cache, self.capacity, self.dtype = draw, cache, capacity, dtype
        self.shapes = [(rows, latent_dim), (rows, rope_dim)]
        self.oracle = oracles.Cache(rows, latent_dim, rope_dim, dtype)

    def new(self, num_columns: int) -> list[Tensor]:
        return [
            self.draw.normal(rows, num_columns, dim, dtype=self.dtype) for rows, dim in self.shapes
        ]

    def append(self, num_columns: int, num_tokens: list[int] | None = None) -> None:
        counts = None if num_tokens is None else torch.tensor(num_tokens)
        new = self.new(num_columns)
        self.cache.append(*new, counts)
        self.oracle.append(*new, counts)

    def truncate(self, lengths: list[int]) -> None:
        self.cache.truncate(torch.tensor(lengths))
        self.oracle.truncate(torch.tensor(lengths))

    def check(self) -> None:
        assert_equal(self.cache.lengths, self.oracle.lengths, axes="row", what="lengths")
        latent, k_rope = self.cache.latents()
        assert_holds(latent, self.oracle.latent, "latent")
        assert_holds(k_rope, self.oracle.k_rope, "k_rope")

    def check_append_refused(
        self, latent: Tensor, k_rope: Tensor, num_tokens: Tensor | None = None
    ) -> None:
        """append(…) raises ValueError, and the cache is as it was before."""
        counts = "None" if num_tokens is None else num_tokens.tolist()
        columns = f"{latent.shape[1]} columns, num_tokens {counts},"
        what = f"append of {columns} to rows that hold {self._held()}"
        assert_value_error(what, self.cache.append, latent, k_rope, num_tokens)
        self.check()

    def check_truncate_refused(self, lengths: list[int]) -> None:
        """truncate(lengths) raises ValueError, and the cache is as it was before."""
        what = f"truncate({lengths}) of rows that hold {self._held()}"
        assert_value_error(what, self.cache.truncate, torch.tensor(lengths))
        self.check()

    def _held(self) -> str:
        return f"{self.oracle.lengths.tolist()} of {self.capacity}"


def assert_holds(got: Tensor, rows: list[Tensor], what: str) -> None:
    """Row b of `got` begins with rows[b]; what follows may be anything finite."""
    shape = [len(rows), max(map(len, rows)), rows[0].shape[1]]
    assert list(got.shape) == shape, f"{what}: expected shape {shape}, got {list(got.shape)}"
    assert got.dtype == rows[0].dtype, f"{what}: expected {rows[0].dtype}, got {got.dtype}"
    for row, slot, _ in (~got.isfinite()).nonzero().tolist():
        pytest.fail(f"{what}: row {row}, slot {slot} holds a number that is not finite")
    expected = got.clone()  # the padding, which is unspecified, is compared with itself
    for row, tokens in enumerate(rows):
        expected[row, : len(tokens)] = tokens
    assert_equal(got, expected, axes="row slot dim", what=what)
