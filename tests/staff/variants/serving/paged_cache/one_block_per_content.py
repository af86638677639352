"""`commit` changes a request's block for the published one with the same content, if there is one.

So no content lies in two blocks for long.
"""

import hashlib
from collections import Counter, OrderedDict

from assignment.provided.serving import OutOfBlocks


def hash_block(before, tokens):
    text = ",".join(map(str, tokens))
    return hashlib.blake2b(text.encode() + b"|" + (before or b""), digest_size=20).digest()


class PagedCache:
    def __init__(self, num_blocks, block_size=16, *, prefix_caching=True, hash_block=hash_block):
        if min(num_blocks, block_size) < 1:
            raise ValueError(f"num_blocks {num_blocks}, block_size {block_size}: at least 1 each")
        self.num_blocks, self.block_size = num_blocks, block_size
        self.prefix_caching, self.hash_block = prefix_caching, hash_block
        self.references = Counter()
        self.free = OrderedDict((block, None) for block in range(num_blocks))  # the next one first
        self.content = {}  # of a published block: key, the block before it, tokens
        self.owner = {}  # of a key: the published block
        self.tokens, self.tables, self.done = {}, {}, {}

    @property
    def num_free(self):
        return len(self.free)

    def _known(self, request):
        if request not in self.tokens:
            raise ValueError(f"{request} is not an open request")

    def table(self, request):
        self._known(request)
        return [*self.tables[request]]

    def length(self, request):
        self._known(request)
        return len(self.tokens[request])

    def computed(self, request):
        self._known(request)
        return self.done[request]

    def _size(self, length):
        return length // self.block_size + (length % self.block_size > 0)

    def _key(self, before, tokens):
        return self.hash_block(self.content[before][0] if before is not None else None, tokens)

    def _published(self, key, before, tokens):
        block = self.owner.get(key)
        return block if block is not None and self.content[block][1:] == (before, tokens) else None

    def open(self, request, tokens):
        if request in self.tokens:
            raise ValueError(f"{request} is an open request")
        if not len(tokens):
            raise ValueError(f"request {request} needs tokens")
        table, before = [], None
        for i in range((len(tokens) - 1) // self.block_size if self.prefix_caching else 0):
            part = tuple(tokens[i * self.block_size : (i + 1) * self.block_size])
            before = self._published(self._key(before, part), before, part)
            if before is None:
                break
            table.append(before)
        computed = len(table) * self.block_size
        free = len(self.free) - len(self.free.keys() & set(table))
        need = self._size(len(tokens)) - len(table)
        if need > free:
            raise OutOfBlocks(request, need, free)
        for block in table:
            self._reference(block)
        for _ in range(need):
            table.append(self._fresh())
        self.tokens[request], self.tables[request] = list(tokens), table
        self.done[request] = computed
        return computed

    def append(self, request, tokens):
        self._known(request)
        if not len(tokens):
            raise ValueError(f"request {request} gets no tokens")
        table, length = self.tables[request], len(self.tokens[request])
        copied = length % self.block_size > 0 and self.references[table[-1]] > 1
        need = self._size(length + len(tokens)) - len(table) + (1 if copied else 0)
        if need > len(self.free):
            raise OutOfBlocks(request, need, len(self.free))
        copies = []
        if copied:
            copies.append((table[-1], self._fresh()))
            self._drop(table[-1])
            table[-1] = copies[0][1]
        elif length % self.block_size:
            self._forget(table[-1])
        while len(table) < self._size(length + len(tokens)):
            table.append(self._fresh())
        self.tokens[request].extend(tokens)
        return copies

    def commit(self, request, count):
        self._known(request)
        left = len(self.tokens[request]) - self.done[request]
        if count < 0 or count > left:
            raise ValueError(f"{count} tokens of request {request}, which has {left} left")
        first, self.done[request] = (
            self.done[request] // self.block_size,
            self.done[request] + count,
        )
        if self.prefix_caching:
            for i in range(first, self.done[request] // self.block_size):
                self._publish(request, i)

    def _publish(self, request, i):
        table, tokens = self.tables[request], self.tokens[request]
        before = table[i - 1] if i else None
        if i and before not in self.content:
            return
        part = tuple(tokens[i * self.block_size : (i + 1) * self.block_size])
        key = self._key(before, part)
        twin = self._published(key, before, part)
        if twin is not None:
            self._reference(twin)
            self._drop(table[i])
            table[i] = twin
        elif key not in self.owner:  # else it is the key of another content, which keeps it
            self.content[table[i]], self.owner[key] = (key, before, part), table[i]

    def fork(self, request, new_request):
        self._known(request)
        if new_request in self.tokens:
            raise ValueError(f"{new_request} is an open request")
        if self.done[request] != len(self.tokens[request]):
            raise ValueError(f"{request} has only {self.done[request]} tokens computed")
        self.references.update(self.tables[request])
        self.tables[new_request] = [*self.tables[request]]
        self.tokens[new_request] = [*self.tokens[request]]
        self.done[new_request] = self.done[request]

    def truncate(self, request, length):
        self._known(request)
        if not 0 <= length <= len(self.tokens[request]):
            raise ValueError(f"{length} tokens of request {request}, {len(self.tokens[request])}")
        while len(self.tables[request]) > self._size(length):
            self._drop(self.tables[request].pop())
        self.tokens[request] = self.tokens[request][:length]
        self.done[request] = min(length, self.done[request])

    def close(self, request):
        self.truncate(request, 0)
        del self.tokens[request], self.tables[request], self.done[request]

    def _reference(self, block):
        self.free.pop(block, None)
        self.references[block] += 1

    def _drop(self, block):
        self.references[block] -= 1
        if not self.references[block]:
            self.free[block] = None
            if block not in self.content:
                self.free.move_to_end(block, last=False)

    def _fresh(self):
        block, _ = self.free.popitem(last=False)
        self._forget(block)
        self.references[block] = 1
        return block

    def _forget(self, block):
        """The block is published no more, nor is what stands behind it: it could not be found."""
        behind = [block]
        for block in behind:
            if block not in self.content:
                continue
            key, _, _ = self.content.pop(block)
            del self.owner[key]
            behind += [b for b, (_, before, _) in self.content.items() if before == block]
            if block in self.free:
                self.free.move_to_end(block, last=False)
