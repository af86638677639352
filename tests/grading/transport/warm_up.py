"""What every child would otherwise do for the first time, done once before the forks.

A shape check is compiled when a function is decorated, and torch sets much up at its first
operations: in a fresh child that is more work than most tests. One thread only (see `zygote`).
"""

from __future__ import annotations

import importlib
import sys
import tempfile
from pathlib import Path

import torch

from assignment.provided.lab.counter import CostCounter
from assignment.provided.models import Llama, LlamaConfig
from tests.grading import submission

_TYPICAL = """
from collections.abc import Callable, Collection
import torch
from einops import einsum, rearrange, reduce
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

class Typical:
    def __init__(self, size: int, dtype: torch.dtype = torch.float32) -> None:
        self.size = size

    @property
    def lengths(self) -> Int[Tensor, "B"]:
        return torch.zeros(2, dtype=torch.int64)

    def add(self, x: Float[Tensor, "B K T H"], n: Int[Tensor, "B"] | None = None) -> None:
        pass

    def both(self) -> tuple[Float[Tensor, "B T"], Bool[Tensor, "B T"]]:
        return torch.ones(2, 2), torch.ones(2, 2) > 0

class Layer(nn.Module):
    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        return rearrange(einsum(x, x, "b t d, b s d -> b t s") @ x, "b t (h d) -> b t (h d)", h=1)

def run(
    f: Callable[[int], int], ids: list[list[int]], p: float = 1.0, stop: Collection[int] = ()
) -> list[list[int]]:
    return ids
"""


def warm_up() -> None:
    """Load a typical module through the switch and call it."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "warm").mkdir()
        (Path(folder) / "warm" / "typical.py").write_text(_TYPICAL)
        sys.dont_write_bytecode = True
        submission.install(Path(folder))
        typical = importlib.import_module(f"{submission.PACKAGE}.warm.typical")
        _use(typical)
        submission.uninstall()


def _use(typical) -> None:
    x = torch.randn(2, 3, 4)
    thing = typical.Typical(3)
    typical.Layer()(x)
    typical.run(len, [[1]])
    with CostCounter():
        thing.add(torch.zeros(2, 2, 3, 4), thing.lengths)
        thing.both()
        x.softmax(-1).masked_fill(x > 0, 0).to(torch.bfloat16).cumsum(-1).nonzero()
        x[torch.tensor([0, 1]), :, torch.tensor([1, 2])] = 0
    tiny = LlamaConfig(
        vocab_size=8, num_layers=1, d_model=8, num_heads=2, num_kv_heads=1, head_dim=4, d_ff=8
    )
    Llama(tiny)(torch.zeros(1, 2, dtype=torch.int64))
