"""A paged KV cache: who holds which block. No tensor is in sight; this is the bookkeeping.

The memory for keys and values is cut into blocks of `block_size` tokens. A request has a block
table: its token i lies in slot i % block_size of block table[i // block_size]. So a request takes
one block at a time, as it grows; several may hold the same block, as long as none writes to it; and
a block that nobody holds any more still has its keys and values, until it is needed for others.

Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
SOSP 2023, arXiv:2309.06180.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from assignment.provided.serving import OutOfBlocks

HashBlock = Callable[[Hashable | None, tuple[int, ...]], Hashable]
"""(what came out for the block before, or None; the tokens of a full block) -> a key."""


def hash_block(before: Hashable | None, tokens: tuple[int, ...]) -> bytes:
    """SHA-256 of a block's tokens and of the key of the block before it.

    So the key stands for all tokens from the first on: keys and values depend on all of them.
    """
    return hashlib.sha256(repr((before, tokens)).encode()).digest()


class PagedCache:
    """Block tables over a pool of blocks, with sharing and a prefix cache.

    A request is a number of your choice. Its tokens have room in the cache first, and are computed
    later: `open` and `append` take room, `commit` says that keys and values are there. The work of
    one token more, `append` and `commit`, does not grow with the request.

    Errors. A method that raises has changed nothing. All of them raise ValueError for a request
    that is not open (or is, if it should be new), `open` and `append` also for an empty list of
    tokens. A message names the request, and the number that does not fit.

    Sharing. A block may be in several tables. It is free when it is in none. Nobody writes to a
    shared block: an `append` that would, gets a copy of its own first.

    Prefix cache. A full block whose tokens are all computed is published: a later request that
    begins with the same tokens, from its very first on, holds that block instead of computing it
    again. Of two blocks with the same content the first stays published. A published block that
    becomes free keeps its content until it is taken for something else; one that is written to
    (after `truncate`) is published no more.

    Which free block is taken: one that is not published; if there is none, the published one that
    has been free for longest, and of those that became free in one call the one that is last in
    the table. So prefixes lose their ends first.

    Hints: count in how many tables each block is. An `OrderedDict` is a queue that lets go of its
    middle, too. Size of a good answer: about 120 lines in all.
    """

    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        *,
        prefix_caching: bool = True,
        hash_block: HashBlock = hash_block,
    ):
        """
        Args:
            num_blocks, block_size: at least 1 each, else a ValueError. Blocks are 0 … num_blocks−1.
            prefix_caching: whether `open` may find anything.
            hash_block: makes the keys of published blocks. Even if it returns the same for all, no
                request ever gets a block with other tokens than its own, or behind other tokens:
                keys find candidates, tokens decide. It is called once for each block that is looked
                up or published, not again for the blocks before it.
        """
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"{num_blocks} blocks of {block_size}: expected at least 1 each")
        self.num_blocks, self.block_size = num_blocks, block_size
        raise NotImplementedError

    @property
    def num_free(self) -> int:
        """Blocks that no request holds, published ones included."""
        raise NotImplementedError

    def table(self, request: int) -> list[int]:
        """The request's blocks in order: ⌈length / block_size⌉ of them. A copy."""
        raise NotImplementedError

    def length(self, request: int) -> int:
        """How many tokens the request has room for, which are all that it was given."""
        raise NotImplementedError

    def computed(self, request: int) -> int:
        """How many of its tokens, from the first on, have their keys and values."""
        raise NotImplementedError

    def open(self, request: int, tokens: Sequence[int]) -> int:
        """Begin a request: take room for all of `tokens`.

        Returns how many of them are computed already: those in the most published blocks that hold
        its first tokens. At least one token is left to compute, since its logits are wanted: of
        n tokens at most the first n − 1 are looked up, in whole blocks.

        Raises:
            OutOfBlocks: fewer blocks are free than it needs beside those that it shares. One
                that it shares, and nobody else holds, is not free for it.
        """
        raise NotImplementedError

    def append(self, request: int, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Take room for more tokens at the end.

        Returns pairs (from, to) of blocks, here one at most: before the new tokens are written,
        keys and values are to be copied, since the request's last block was shared; its
        table has the copy now.

        Raises:
            OutOfBlocks: fewer blocks are free than it needs, a copy included.
        """
        raise NotImplementedError

    def commit(self, request: int, count: int) -> None:
        """The next `count` ≥ 0 tokens have been computed. Blocks that are full now are published.

        Raises:
            ValueError: the request does not have so many tokens that are not computed.
        """
        raise NotImplementedError

    def fork(self, request: int, new_request: int) -> None:
        """Begin a request with the tokens of another one, in the same blocks.

        Raises:
            ValueError: not all tokens of `request` are computed, so both would write them.
        """
        raise NotImplementedError

    def truncate(self, request: int, length: int) -> None:
        """Take back the tokens from `length` on (rejected drafts, say), and the blocks that only
        they needed. What other requests and the prefix cache have is not touched.

        Raises:
            ValueError: length is not from 0 to the request's length.
        """
        raise NotImplementedError

    def close(self, request: int) -> None:
        """End a request, and give back its blocks."""
        raise NotImplementedError
