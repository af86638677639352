"""Blocks as objects in a queue, keys of a whole prompt made at once, several blocks with one key.

A prefix whose own block is gone may still have its later blocks: they are found again once the
first is there again.
"""

import hashlib
from collections import defaultdict, deque

from assignment.provided.serving import OutOfBlocks


def hash_block(before, tokens):
    return hashlib.sha256(repr((before, tokens)).encode()).digest()


class Block:
    def __init__(self, number):
        self.number = number
        self.references = 0
        self.prefix = None  # all tokens up to its end, if it is published
        self.key = None
        self.freed = -1  # when


class Request:
    def __init__(self, tokens, blocks, computed):
        self.tokens, self.blocks, self.computed = tokens, blocks, computed
        self.keys = []


class PagedCache:
    def __init__(self, num_blocks, block_size=16, *, prefix_caching=True, hash_block=hash_block):
        if num_blocks < 1 or block_size < 1:
            raise ValueError(f"{num_blocks} blocks of {block_size}")
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.prefix_caching = prefix_caching
        self.make_key = hash_block
        self.plain = deque(Block(number) for number in range(num_blocks))
        self.cached = deque()  # (when it was freed, block): stale if the block was freed since
        self.free_cached = 0
        self.by_key = defaultdict(list)
        self.requests = {}
        self.clock = 0

    @property
    def num_free(self):
        return len(self.plain) + self.free_cached

    def table(self, request):
        return [block.number for block in self.find(request).blocks]

    def length(self, request):
        return len(self.find(request).tokens)

    def computed(self, request):
        return self.find(request).computed

    def find(self, request):
        try:
            return self.requests[request]
        except KeyError:
            raise ValueError(f"no open request {request}") from None

    def open(self, request, tokens):
        if request in self.requests:
            raise ValueError(f"request {request} exists")
        if len(tokens) == 0:
            raise ValueError(f"request {request} has no tokens")
        new = Request(list(tokens), [], 0)
        if self.prefix_caching:
            self.extend_keys(new)
            for index in range((len(tokens) - 1) // self.block_size):
                block = self.cached_block(new, index)
                if block is None:
                    break
                new.blocks.append(block)
        hits = len(new.blocks)
        missing = self.count(len(tokens)) - hits
        idle = sum(block.references == 0 for block in new.blocks)
        if missing + idle > self.num_free:
            raise OutOfBlocks(request, missing + idle, self.num_free)
        for block in new.blocks:
            self.retain(block)
        new.blocks.extend(self.allocate() for _ in range(missing))
        new.computed = hits * self.block_size
        self.requests[request] = new
        return new.computed

    def append(self, request, tokens):
        found = self.find(request)
        if len(tokens) == 0:
            raise ValueError(f"nothing to append to request {request}")
        inside = len(found.tokens) % self.block_size
        copy = inside != 0 and found.blocks[-1].references > 1
        more = self.count(len(found.tokens) + len(tokens)) - len(found.blocks) + int(copy)
        if more > self.num_free:
            raise OutOfBlocks(request, more, self.num_free)
        copies = []
        if copy:
            old, new = found.blocks[-1], self.allocate()
            found.blocks[-1] = new
            self.release(old)
            copies.append((old.number, new.number))
            more -= 1
        elif inside:
            self.unpublish(found.blocks[-1])
        for _ in range(more):
            found.blocks.append(self.allocate())
        found.tokens.extend(tokens)
        return copies

    def commit(self, request, count):
        found = self.find(request)
        if count < 0 or found.computed + count > len(found.tokens):
            raise ValueError(
                f"request {request}: {found.computed} + {count} of {len(found.tokens)} computed"
            )
        first = found.computed // self.block_size
        found.computed += count
        if not self.prefix_caching:
            return
        self.extend_keys(found, found.computed)
        for index in range(first, found.computed // self.block_size):
            block = found.blocks[index]
            if block.prefix is None:
                block.key = found.keys[index]
                block.prefix = tuple(found.tokens[: (index + 1) * self.block_size])
                self.by_key[block.key].append(block)

    def fork(self, request, new_request):
        parent = self.find(request)
        if new_request in self.requests:
            raise ValueError(f"request {new_request} exists")
        if parent.computed != len(parent.tokens):
            raise ValueError(f"request {request} is computed to {parent.computed} only")
        child = Request(list(parent.tokens), list(parent.blocks), parent.computed)
        child.keys = list(parent.keys)
        for block in child.blocks:
            block.references += 1
        self.requests[new_request] = child

    def truncate(self, request, length):
        found = self.find(request)
        if length < 0 or length > len(found.tokens):
            raise ValueError(f"request {request}: cannot keep {length} of {len(found.tokens)}")
        while len(found.blocks) > self.count(length):
            self.release(found.blocks.pop())
        del found.tokens[length:]
        del found.keys[length // self.block_size :]
        found.computed = min(found.computed, length)

    def close(self, request):
        found = self.find(request)
        del self.requests[request]
        while found.blocks:
            self.release(found.blocks.pop())

    def count(self, length):
        return (length + self.block_size - 1) // self.block_size

    def extend_keys(self, request, length=None):
        size = self.block_size
        length = len(request.tokens) if length is None else length
        for index in range(len(request.keys), length // size):
            before = request.keys[-1] if request.keys else None
            content = tuple(request.tokens[index * size : (index + 1) * size])
            request.keys.append(self.make_key(before, content))

    def cached_block(self, request, index):
        prefix = tuple(request.tokens[: (index + 1) * self.block_size])
        for block in self.by_key.get(request.keys[index], ()):
            if block.prefix == prefix:
                return block
        return None

    def retain(self, block):
        if block.references == 0:
            self.free_cached -= 1
        block.references += 1

    def release(self, block):
        block.references -= 1
        if block.references > 0:
            return
        if block.prefix is None:
            self.plain.append(block)
        else:
            self.clock += 1
            block.freed = self.clock
            self.cached.append((self.clock, block))
            self.free_cached += 1

    def allocate(self):
        if self.plain:
            block = self.plain.popleft()
        else:
            freed, block = self.cached.popleft()
            while block.references or block.freed != freed:
                freed, block = self.cached.popleft()
            self.free_cached -= 1
            self.unpublish(block)
        block.references = 1
        return block

    def unpublish(self, block):
        if block.prefix is not None:
            self.by_key[block.key].remove(block)
            if not self.by_key[block.key]:
                del self.by_key[block.key]
            block.prefix = block.key = None
