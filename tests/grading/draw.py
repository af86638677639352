"""Seeded random inputs for graded tests."""

from __future__ import annotations

import hashlib
import hmac

import torch
from torch import Tensor


def test_seed(seed: int, test: str) -> int:
    """A seed for one test from the run's seed: fresh inputs per test, the same in every regrade."""
    return _digest(str(seed).encode(), test)


def official_seed(secret: str, problem: str) -> int:
    """HMAC(term secret, problem): known to nobody before grading, equal for every submission."""
    return _digest(secret.encode(), problem)


test_seed.__test__ = False  # not a test, whatever its name


def _digest(key: bytes, message: str) -> int:
    return int.from_bytes(hmac.new(key, message.encode(), hashlib.sha256).digest()[:6], "big")


class Draw:
    """Draws inputs for one test from one seed, on the grader's side only."""

    def __init__(self, seed: int):
        self._generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Tensor:
        """Standard normal times `scale`, rounded to `dtype`."""
        return (torch.randn(shape, generator=self._generator) * scale).to(dtype)

    def uniform(self, *shape: int) -> Tensor:
        """float32 in [0, 1)."""
        return torch.rand(shape, generator=self._generator)

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """int64 in [low, high)."""
        return torch.randint(low, high, shape, generator=self._generator)

    def permutation(self, n: int) -> Tensor:
        """0 … n − 1 in random order, int64."""
        return torch.randperm(n, generator=self._generator)

    def seed(self) -> int:
        """A fresh integer seed, to hand to a submission or a model."""
        return int(self.integers(0, 2**31, 1))
