"""`commit` only notes what is full; the next `open`, `append`, `fork`, `truncate` or `close`
publishes it.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from assignment.provided.serving import OutOfBlocks

HashBlock = Callable[[Hashable | None, tuple[int, ...]], Hashable]


def hash_block(before: Hashable | None, tokens: tuple[int, ...]) -> bytes:
    return hashlib.sha256(repr((before, tokens)).encode()).digest()


@dataclass(eq=False)
class _Prefix:
    key: Hashable
    parent: "_Prefix | None"
    tokens: tuple[int, ...]
    block: int | None = None


@dataclass
class _Held:
    tokens: list[int]
    computed: int
    table: list[int]
    prefixes: list[_Prefix]


class PagedCache:
    def __init__(
        self,
        num_blocks: int,
        block_size: int = 16,
        *,
        prefix_caching: bool = True,
        hash_block: HashBlock = hash_block,
    ):
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"{num_blocks} blocks of {block_size}: expected at least 1 each")
        self.num_blocks, self.block_size = (num_blocks, block_size)
        self._prefix_caching, self._hash_block = (prefix_caching, hash_block)
        self._requests: dict[int, _Held] = {}
        self._holders = [0] * num_blocks
        self._empty = OrderedDict.fromkeys(range(num_blocks))
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._published: dict[int, _Prefix] = {}
        self._pending: list = []
        self._prefixes: WeakValueDictionary[Hashable, _Prefix] = WeakValueDictionary()

    @property
    def num_free(self) -> int:
        return len(self._empty) + len(self._kept)

    def table(self, request: int) -> list[int]:
        return list(self._get(request).table)

    def length(self, request: int) -> int:
        return len(self._get(request).tokens)

    def computed(self, request: int) -> int:
        return self._get(request).computed

    def open(self, request: int, tokens: Sequence[int]) -> int:
        if request in self._requests:
            raise ValueError(f"request {request} is open already")
        if not tokens:
            raise ValueError(f"request {request}: expected at least one token, got none")
        self._flush()
        prefixes = self._find(tokens)
        shared = [prefix.block for prefix in prefixes]
        needed = self._blocks(len(tokens)) - len(shared)
        free = self.num_free - sum(self._holders[block] == 0 for block in shared)
        if needed > free:
            raise OutOfBlocks(request, needed, free)
        for block in shared:
            self._hold(block)
        computed, table = (len(shared) * self.block_size, shared + self._take(needed))
        self._requests[request] = _Held(list(tokens), computed, table, prefixes)
        return computed

    def append(self, request: int, tokens: Sequence[int]) -> list[tuple[int, int]]:
        self._flush()
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

    def commit(self, request: int, count: int) -> None:
        held = self._get(request)
        left = len(held.tokens) - held.computed
        if not 0 <= count <= left:
            raise ValueError(f"request {request} has {left} tokens to compute, not {count}")
        before, held.computed = (held.computed, held.computed + count)
        if self._prefix_caching:
            for index in range(before // self.block_size, held.computed // self.block_size):
                self._pending.append((held, index))

    def fork(self, request: int, new_request: int) -> None:
        self._flush()
        held = self._get(request)
        if new_request in self._requests:
            raise ValueError(f"request {new_request} is open already")
        if left := (len(held.tokens) - held.computed):
            raise ValueError(f"request {request} still has {left} tokens to compute")
        for block in held.table:
            self._hold(block)
        self._requests[new_request] = _Held(
            list(held.tokens), held.computed, list(held.table), list(held.prefixes)
        )

    def truncate(self, request: int, length: int) -> None:
        self._flush()
        held = self._get(request)
        if not 0 <= length <= len(held.tokens):
            raise ValueError(f"request {request} has {len(held.tokens)} tokens, not {length}")
        kept = self._blocks(length)
        for block in reversed(held.table[kept:]):
            self._release(block)
        del held.table[kept:], held.tokens[length:]
        del held.prefixes[length // self.block_size :]
        held.computed = min(held.computed, length)

    def close(self, request: int) -> None:
        self._flush()
        for block in reversed(self._get(request).table):
            self._release(block)
        del self._requests[request]

    def _flush(self):
        pending, self._pending = (self._pending, [])
        for held, index in pending:
            self._publish(held, index)

    def _get(self, request: int) -> _Held:
        if request not in self._requests:
            raise ValueError(f"request {request} is not open")
        return self._requests[request]

    def _blocks(self, length: int) -> int:
        return -(-length // self.block_size)

    def _take(self, count: int) -> list[int]:
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
        found: list[_Prefix] = []
        ends = range(self.block_size, len(tokens), self.block_size)
        for end in ends if self._prefix_caching else ():
            prefix = self._prefix(found, tokens[end - self.block_size : end])
            if prefix is None or prefix.block is None:
                break
            found.append(prefix)
        return found

    def _prefix(self, before: list[_Prefix], tokens: Sequence[int]) -> _Prefix | None:
        parent, content = (before[-1] if before else None, tuple(tokens))
        key = self._hash_block(parent.key if parent else None, content)
        prefix = self._prefixes.get(key)
        if prefix is None:
            prefix = self._prefixes[key] = _Prefix(key, parent, content)
        same = prefix.parent is parent and prefix.tokens == content
        return prefix if same else None

    def _publish(self, held: _Held, index: int) -> None:
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
