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


# BEGIN SOLUTION
@dataclass(eq=False)
class _Prefix:
    """All tokens from the first to the end of a full block: those of `parent`, then `tokens`.

    block: the published block that holds the last of them, or None while there is none.
    """

    key: Hashable
    parent: "_Prefix | None"
    tokens: tuple[int, ...]
    block: int | None = None


@dataclass
class _Held:
    """What a request has; `prefixes` are those that end with each of its computed full blocks."""

    tokens: list[int]
    computed: int
    table: list[int]
    prefixes: list[_Prefix]


# END SOLUTION


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
        # BEGIN SOLUTION
        self._prefix_caching, self._hash_block = prefix_caching, hash_block
        self._requests: dict[int, _Held] = {}
        self._holders = [0] * num_blocks  # in how many tables each block is
        self._empty = OrderedDict.fromkeys(range(num_blocks))  # free and not published
        self._kept: OrderedDict[int, None] = OrderedDict()  # free and published, longest first
        self._published: dict[int, _Prefix] = {}  # by block
        # A prefix lives as long as a block, a request or a longer prefix refers to it.
        self._prefixes: WeakValueDictionary[Hashable, _Prefix] = WeakValueDictionary()
        # END SOLUTION

    @property
    def num_free(self) -> int:
        """Blocks that no request holds, published ones included."""
        # BEGIN SOLUTION
        return len(self._empty) + len(self._kept)
        # END SOLUTION

    def table(self, request: int) -> list[int]:
        """The request's blocks in order: ⌈length / block_size⌉ of them. A copy."""
        # BEGIN SOLUTION
        return list(self._get(request).table)
        # END SOLUTION

    def length(self, request: int) -> int:
        """How many tokens the request has room for, which are all that it was given."""
        # BEGIN SOLUTION
        return len(self._get(request).tokens)
        # END SOLUTION

    def computed(self, request: int) -> int:
        """How many of its tokens, from the first on, have their keys and values."""
        # BEGIN SOLUTION
        return self._get(request).computed
        # END SOLUTION

    def open(self, request: int, tokens: Sequence[int]) -> int:
        """Begin a request: take room for all of `tokens`.

        Returns how many of them are computed already: those in the most published blocks that hold
        its first tokens. At least one token is left to compute, since its logits are wanted: of
        n tokens at most the first n − 1 are looked up, in whole blocks.

        Raises:
            OutOfBlocks: fewer blocks are free than it needs beside those that it shares. One
                that it shares, and nobody else holds, is not free for it.
        """
        # BEGIN SOLUTION
        if request in self._requests:
            raise ValueError(f"request {request} is open already")
        if not tokens:
            raise ValueError(f"request {request}: expected at least one token, got none")
        prefixes = self._find(tokens)
        shared = [prefix.block for prefix in prefixes]
        needed = self._blocks(len(tokens)) - len(shared)
        free = self.num_free - sum(self._holders[block] == 0 for block in shared)
        if needed > free:
            raise OutOfBlocks(request, needed, free)
        for block in shared:
            self._hold(block)
        computed, table = len(shared) * self.block_size, shared + self._take(needed)
        self._requests[request] = _Held(list(tokens), computed, table, prefixes)
        return computed
        # END SOLUTION

    def append(self, request: int, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Take room for more tokens at the end.

        Returns pairs (from, to) of blocks, here one at most: before the new tokens are written,
        keys and values are to be copied, since the request's last block was shared; its
        table has the copy now.

        Raises:
            OutOfBlocks: fewer blocks are free than it needs, a copy included.
        """
        # BEGIN SOLUTION
        held = self._get(request)
        if not tokens:
            raise ValueError(f"request {request}: expected at least one token, got none")
        last, filled = divmod(len(held.tokens), self.block_size)
        copy = filled > 0 and self._holders[held.table[last]] > 1
        added = self._blocks(len(held.tokens) + len(tokens)) - len(held.table)
        if added + copy > self.num_free:
            raise OutOfBlocks(request, added + copy, self.num_free)

        copies = []
        if copy:
            copies = [(held.table[last], *self._take(1))]
            self._release(held.table[last])
            held.table[last] = copies[0][1]
        elif filled:
            self._withdraw(held.table[last])
        held.table += self._take(added)
        held.tokens += tokens
        return copies
        # END SOLUTION

    def commit(self, request: int, count: int) -> None:
        """The next `count` ≥ 0 tokens have been computed. Blocks that are full now are published.

        Raises:
            ValueError: the request does not have so many tokens that are not computed.
        """
        # BEGIN SOLUTION
        held = self._get(request)
        left = len(held.tokens) - held.computed
        if not 0 <= count <= left:
            raise ValueError(f"request {request} has {left} tokens to compute, not {count}")
        before, held.computed = held.computed, held.computed + count
        if self._prefix_caching:
            for index in range(before // self.block_size, held.computed // self.block_size):
                self._publish(held, index)
        # END SOLUTION

    def fork(self, request: int, new_request: int) -> None:
        """Begin a request with the tokens of another one, in the same blocks.

        Raises:
            ValueError: not all tokens of `request` are computed, so both would write them.
        """
        # BEGIN SOLUTION
        held = self._get(request)
        if new_request in self._requests:
            raise ValueError(f"request {new_request} is open already")
        if left := len(held.tokens) - held.computed:
            raise ValueError(f"request {request} still has {left} tokens to compute")
        for block in held.table:
            self._hold(block)
        self._requests[new_request] = _Held(
            list(held.tokens), held.computed, list(held.table), list(held.prefixes)
        )
        # END SOLUTION

    def truncate(self, request: int, length: int) -> None:
        """Take back the tokens from `length` on (rejected drafts, say), and the blocks that only
        they needed. What other requests and the prefix cache have is not touched.

        Raises:
            ValueError: length is not from 0 to the request's length.
        """
        # BEGIN SOLUTION
        held = self._get(request)
        if not 0 <= length <= len(held.tokens):
            raise ValueError(f"request {request} has {len(held.tokens)} tokens, not {length}")
        kept = self._blocks(length)
        for block in reversed(held.table[kept:]):
            self._release(block)
        del held.table[kept:], held.tokens[length:]
        del held.prefixes[length // self.block_size :]
        held.computed = min(held.computed, length)
        # END SOLUTION

    def close(self, request: int) -> None:
        """End a request, and give back its blocks."""
        # BEGIN SOLUTION
        for block in reversed(self._get(request).table):
            self._release(block)
        del self._requests[request]
        # END SOLUTION

    # BEGIN SOLUTION
    def _get(self, request: int) -> _Held:
        if request not in self._requests:
            raise ValueError(f"request {request} is not open")
        return self._requests[request]

    def _blocks(self, length: int) -> int:
        return -(-length // self.block_size)

    def _take(self, count: int) -> list[int]:
        """Free blocks, for new content."""
        blocks = [(self._empty or self._kept).popitem(last=False)[0] for _ in range(count)]
        for block in blocks:
            self._withdraw(block)
            self._holders[block] = 1
        return blocks

    def _hold(self, block: int) -> None:
        if self._holders[block] == 0:
            del self._kept[block]
        self._holders[block] += 1

    def _release(self, block: int) -> None:
        self._holders[block] -= 1
        if self._holders[block] == 0:
            (self._kept if block in self._published else self._empty)[block] = None

    def _find(self, tokens: Sequence[int]) -> list[_Prefix]:
        """The published prefixes of `tokens`, up to the first that is not; never all tokens."""
        found: list[_Prefix] = []
        ends = range(self.block_size, len(tokens), self.block_size)
        for end in ends if self._prefix_caching else ():
            prefix = self._prefix(found, tokens[end - self.block_size : end])
            if prefix is None or prefix.block is None:
                break
            found.append(prefix)
        return found

    def _prefix(self, before: list[_Prefix], tokens: Sequence[int]) -> _Prefix | None:
        """With a block more: equal prefixes are one object. None if the key is another's."""
        parent, content = before[-1] if before else None, tuple(tokens)
        key = self._hash_block(parent.key if parent else None, content)
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = self._prefixes[key] = _Prefix(key, parent, content)
        same = prefix.parent is parent and prefix.tokens == content
        return prefix if same else None

    def _publish(self, held: _Held, index: int) -> None:
        """Publish a full block of a request, if all before it could be."""
        start = index * self.block_size
        tokens = held.tokens[start : start + self.block_size]
        prefix = self._prefix(held.prefixes, tokens) if len(held.prefixes) == index else None
        if prefix is not None:
            held.prefixes.append(prefix)
            if prefix.block is None:
                prefix.block = held.table[index]
                self._published[prefix.block] = prefix

    def _withdraw(self, block: int) -> None:
        if prefix := self._published.pop(block, None):
            prefix.block = None

    # END SOLUTION
