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
from dataclasses import dataclass, field

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
    """A published block: the tokens in it, behind those of its parent."""

    key: Hashable
    parent: "_Prefix | None"
    tokens: tuple[int, ...]
    block: int


@dataclass
class _Held:
    """What one request has. `prefixes`: of its first blocks, as far as they are published."""

    tokens: list[int]
    computed: int
    table: list[int]
    prefixes: list[_Prefix] = field(default_factory=list)


# END SOLUTION


class PagedCache:
    """Block tables over a pool of blocks, with sharing and a prefix cache.

    A request is a number of your choice. Its tokens have room in the cache first, and are computed
    later: `open` and `append` take room, `commit` says that keys and values are there.

    Every method that changes something is all or nothing: if it raises, nothing has changed.
    All of them raise ValueError for a request that is not open (or, if new, is), and for an
    empty list of tokens. Errors name the request.

    Sharing. A block may be in several tables. It is free when it is in none. Nobody writes to a
    shared block: an `append` that would, gets a copy of its own first.

    Prefix cache. A full block whose tokens are all computed is published: a later request that
    begins with the same tokens, from its very first on, holds that block instead of computing it
    again. Of two blocks with the same content the first stays published. A published block that
    becomes free keeps its content until it is taken for something else; one that is written to
    (after `truncate`) is published no more.

    Which free block is taken: one that is not published; if there is none, the published one that
    has been free for longest, and of those that became free in one `close` the one that is last in
    the table. So prefixes lose their ends first.

    Size of a good answer: about 100 lines in all.
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
            hash_block: makes the keys of published blocks. Whatever it returns, and if it is the
                same for all blocks, no request ever gets a block with other tokens than its
                own, or behind other tokens: keys find candidates, tokens decide. It is called
                once for each block that is looked up or published, not again for blocks before it.
        """
        for name, value in {"num_blocks": num_blocks, "block_size": block_size}.items():
            if value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1")
        self.num_blocks, self.block_size = num_blocks, block_size
        # BEGIN SOLUTION
        self._prefix_caching, self._hash_block = prefix_caching, hash_block
        self._requests: dict[int, _Held] = {}
        self._holders = [0] * num_blocks
        self._empty = OrderedDict.fromkeys(range(num_blocks))  # free and not published
        self._kept: OrderedDict[int, None] = OrderedDict()  # free and published, longest first
        self._by_key: dict[Hashable, _Prefix] = {}
        self._published: dict[int, _Prefix] = {}  # by block
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
        tokens = _checked(request, tokens)
        prefixes = self._find(tokens[: len(tokens) - 1])
        shared = [prefix.block for prefix in prefixes]
        needed = self._blocks(len(tokens)) - len(shared)
        free = self.num_free - sum(self._holders[block] == 0 for block in shared)
        if needed > free:
            raise OutOfBlocks(request, needed, free)
        for block in shared:
            self._hold(block)
        table = shared + [self._take() for _ in range(needed)]
        computed = len(shared) * self.block_size
        self._requests[request] = _Held(tokens, computed, table, prefixes)
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
        tokens = _checked(request, tokens)
        last, filled = divmod(len(held.tokens), self.block_size)
        copy = filled > 0 and self._holders[held.table[last]] > 1
        added = self._blocks(len(held.tokens) + len(tokens)) - len(held.table)
        if added + copy > self.num_free:
            raise OutOfBlocks(request, added + copy, self.num_free)

        copies = []
        if copy:
            shared, held.table[last] = held.table[last], self._take()
            self._release(shared)
            copies.append((shared, held.table[last]))
        elif filled:
            self._withdraw(held.table[last])
        held.table += [self._take() for _ in range(added)]
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
            raise ValueError(f"count is {count}, but request {request} has {left} to compute")
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
        if held.computed < len(held.tokens):
            left = len(held.tokens) - held.computed
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
            raise ValueError(
                f"length is {length}, expected 0 to {len(held.tokens)}, which request {request} has"
            )
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

    # Blocks and their holders.

    def _take(self) -> int:
        """A free block, for new content."""
        block, _ = (self._empty or self._kept).popitem(last=False)
        self._withdraw(block)
        self._holders[block] = 1
        return block

    def _hold(self, block: int) -> None:
        if self._holders[block] == 0:
            del self._kept[block]
        self._holders[block] += 1

    def _release(self, block: int) -> None:
        self._holders[block] -= 1
        if self._holders[block] == 0:
            (self._kept if block in self._published else self._empty)[block] = None

    # Published blocks.

    def _find(self, tokens: list[int]) -> list[_Prefix]:
        found: list[_Prefix] = []
        if not self._prefix_caching:
            return found
        for start in range(0, len(tokens) - self.block_size + 1, self.block_size):
            parent = found[-1] if found else None
            content = tuple(tokens[start : start + self.block_size])
            prefix = self._lookup(self._key(parent, content), parent, content)
            if prefix is None:
                break
            found.append(prefix)
        return found

    def _key(self, parent: _Prefix | None, content: tuple[int, ...]) -> Hashable:
        return self._hash_block(parent.key if parent else None, content)

    def _lookup(self, key: Hashable, parent: _Prefix | None, content: tuple) -> _Prefix | None:
        prefix = self._by_key.get(key)
        same = prefix is not None and prefix.parent is parent and prefix.tokens == content
        return prefix if same else None

    def _publish(self, held: _Held, index: int) -> None:
        """Publish the request's block `index`, if all before it are."""
        if len(held.prefixes) != index:
            return
        parent = held.prefixes[-1] if index else None
        start = index * self.block_size
        content = tuple(held.tokens[start : start + self.block_size])
        key = self._key(parent, content)
        prefix = self._lookup(key, parent, content)
        if prefix is None:
            if key in self._by_key:
                return  # two contents with one key: the first keeps it
            prefix = _Prefix(key, parent, content, held.table[index])
            self._by_key[key] = self._published[prefix.block] = prefix
        held.prefixes.append(prefix)

    def _withdraw(self, block: int) -> None:
        prefix = self._published.pop(block, None)
        if prefix is not None:
            del self._by_key[prefix.key]

    # END SOLUTION


# BEGIN SOLUTION
def _checked(request: int, tokens: Sequence[int]) -> list[int]:
    if not tokens:
        raise ValueError(f"request {request}: expected at least one token, got none")
    return list(tokens)


# END SOLUTION
