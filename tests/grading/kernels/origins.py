"""Whose work a tensor is: the test's, a kernel's, or torch's in the process of the submission.

That process counts torch's work itself, and what it says need not be so. But all tensors of all
launches pass through here: bytes that neither the test sent nor a kernel left were written by
torch, once at least.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

_SMALL = 4096  # bytes: lengths, offsets and the like, which a launcher may well compute


class Origins:
    """written_by_torch: bytes that it wrote, at least."""

    def __init__(self, arguments: object):
        self.written_by_torch = 0
        self._known: set[bytes] = set()
        self.know(arguments)

    def know(self, value: object) -> None:
        """Its tensors come from the test, or out of a kernel."""
        self._known |= {_digest(content) for content in _contents(value)}

    def meet(self, value: object) -> None:
        """Its tensors come from the submission's process: into a launch, or as its answer."""
        for content in _contents(value):
            digest = _digest(content)
            if digest not in self._known and content.numel() > _SMALL:
                self.written_by_torch += content.numel()
            self._known.add(digest)


def _contents(value: object) -> Iterator[Tensor]:
    """The bytes of each tensor in it."""
    if isinstance(value, Tensor):
        yield value.detach().contiguous().flatten().view(torch.uint8)
    elif isinstance(value, dict):
        yield from _contents(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _contents(part)


def _digest(content: Tensor) -> bytes:
    return hashlib.blake2b(content.numpy().data, digest_size=16).digest()
