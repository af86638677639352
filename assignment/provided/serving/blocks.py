"""A paged cache as the scheduler sees it, and one that only counts."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable


class OutOfBlocks(RuntimeError):
    """A request needs more blocks than are free; nothing has changed."""

    def __init__(self, request: int, needed: int, free: int):
        super().__init__(f"request {request} needs {needed} more blocks, {free} are free")
        self.request, self.needed, self.free = request, needed, free

    def __reduce__(self):
        return type(self), (self.request, self.needed, self.free)


@runtime_checkable
class BlockCache(Protocol):
    """What the scheduler needs. `serving.paged_cache` has more to say about each."""

    num_blocks: int
    block_size: int

    def open(self, request: int, tokens: Sequence[int]) -> int:
        """Take blocks for all tokens of a new request; how many are computed already (of a prefix
        that it shares). Raises OutOfBlocks."""

    def append(self, request: int, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Take room for more tokens; the blocks to copy first, from and to. Raises OutOfBlocks."""

    def commit(self, request: int, count: int) -> None:
        """The next `count` tokens of the request have been computed."""

    def fork(self, request: int, new_request: int) -> None:
        """Let a new request share all that this one has."""

    def close(self, request: int) -> None:
        """Give back what the request holds."""


class CountedBlocks:
    """A BlockCache without blocks: it knows how many tokens each request has, and shares nothing:
    here a fork takes blocks, and may raise OutOfBlocks; in a real one it does neither.

    Args:
        num_blocks, block_size: what there is. A request of n tokens needs ⌈n / block_size⌉ blocks.
        find_prefix: tokens -> how many of them a prefix cache would have; by default none. They
            count as computed, and need blocks as all others do.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        find_prefix: Callable[[list[int]], int] | None = None,
    ):
        self.num_blocks, self.block_size = num_blocks, block_size
        self._find_prefix = find_prefix or (lambda tokens: 0)
        self._lengths: dict[int, int] = {}

    @property
    def num_free(self) -> int:
        return self.num_blocks - sum(map(self._blocks, self._lengths.values()))

    def open(self, request: int, tokens: Sequence[int]) -> int:
        if request in self._lengths:
            raise ValueError(f"request {request} is open already")
        self._take(request, len(tokens))
        return self._find_prefix(list(tokens))

    def append(self, request: int, tokens: Sequence[int]) -> list[tuple[int, int]]:
        self._take(request, self._lengths[request] + len(tokens))
        return []

    def commit(self, request: int, count: int) -> None:
        """Nothing to count."""

    def fork(self, request: int, new_request: int) -> None:
        if new_request in self._lengths:
            raise ValueError(f"request {new_request} is open already")
        self._take(new_request, self._lengths[request])

    def close(self, request: int) -> None:
        del self._lengths[request]

    def _take(self, request: int, length: int) -> None:
        needed = self._blocks(length) - self._blocks(self._lengths.get(request, 0))
        if needed > self.num_free:
            raise OutOfBlocks(request, needed, self.num_free)
        self._lengths[request] = length

    def _blocks(self, length: int) -> int:
        return -(-length // self.block_size)
