"""No keys: each published block has all tokens up to its end, and they are compared."""

import hashlib
from operator import itemgetter

from assignment.provided.serving import OutOfBlocks


def hash_block(before, tokens):
    return hashlib.md5(repr((before, tokens)).encode()).hexdigest()


class PagedCache:
    def __init__(self, num_blocks, block_size=16, *, prefix_caching=True, hash_block=hash_block):
        if num_blocks < 1 or block_size < 1:
            raise ValueError("at least one block of at least one token")
        self.num_blocks, self.block_size, self.prefix_caching = (
            num_blocks,
            block_size,
            prefix_caching,
        )
        self._rows = {}  # request: [tokens, table, computed]
        self._in_use = [0] * num_blocks
        self._prefix = {}  # published block: all tokens up to its end
        self._free = {block: -1 for block in range(num_blocks)}  # block: when it became free
        self._time = 0

    @property
    def num_free(self):
        return len(self._free)

    def _row(self, request):
        row = self._rows.get(request)
        if row is None:
            raise ValueError(f"request {request} is unknown")
        return row

    def table(self, request):
        return list(self._row(request)[1])

    def length(self, request):
        return len(self._row(request)[0])

    def computed(self, request):
        return self._row(request)[2]

    def _block_with(self, prefix):
        if prefix not in self._prefix.values():
            return None
        return list(self._prefix)[list(self._prefix.values()).index(prefix)]

    def open(self, request, tokens):
        if request in self._rows:
            raise ValueError(f"request {request} is known")
        tokens = list(tokens)
        if tokens == []:
            raise ValueError(f"request {request} is empty")
        table = []
        while self.prefix_caching and (len(table) + 1) * self.block_size < len(tokens):
            block = self._block_with(tuple(tokens[: (len(table) + 1) * self.block_size]))
            if block is None:
                break
            table.append(block)
        found = len(table) * self.block_size
        new = (len(tokens) - found + self.block_size - 1) // self.block_size
        available = len(set(self._free) - set(table))
        if new > available:
            raise OutOfBlocks(request, new, available)
        for block in table:
            self._free.pop(block, None)
            self._in_use[block] += 1
        self._rows[request] = [tokens, table, found]
        self._grow(table, new)
        return found

    def append(self, request, tokens):
        row = self._row(request)
        if not tokens:
            raise ValueError(f"request {request}: no tokens")
        held, table, _ = row
        over = len(held) % self.block_size
        copy = over > 0 and self._in_use[table[-1]] > 1
        room = (self.block_size - over) % self.block_size
        new = max(len(tokens) - room + self.block_size - 1, 0) // self.block_size
        if new + copy > self.num_free:
            raise OutOfBlocks(request, new + copy, self.num_free)
        copies = []
        if copy:
            source = table.pop()
            self._grow(table, 1)
            self._in_use[source] -= 1
            copies = [(source, table[-1])]
        elif over:
            self._prefix.pop(table[-1], None)
        self._grow(table, new)
        row[0] += list(tokens)
        return copies

    def commit(self, request, count):
        row = self._row(request)
        if count not in range(len(row[0]) - row[2] + 1):
            raise ValueError(f"request {request} cannot have {count} more tokens computed")
        old, row[2] = row[2], row[2] + count
        for end in range(old + 1, row[2] + 1):
            if end % self.block_size == 0 and self.prefix_caching:
                prefix = tuple(row[0][:end])
                if prefix not in self._prefix.values():
                    self._prefix[row[1][end // self.block_size - 1]] = prefix

    def fork(self, request, new_request):
        tokens, table, computed = self._row(request)
        if new_request in self._rows:
            raise ValueError(f"request {new_request} is known")
        if computed < len(tokens):
            raise ValueError(f"request {request} has {len(tokens) - computed} tokens to compute")
        for block in table:
            self._in_use[block] += 1
        self._rows[new_request] = [tokens[:], table[:], computed]

    def truncate(self, request, length):
        row = self._row(request)
        if length not in range(len(row[0]) + 1):
            raise ValueError(f"request {request} has {len(row[0])} tokens, {length} are impossible")
        row[0] = row[0][:length]
        row[2] = min(row[2], length)
        while (len(row[1]) - 1) * self.block_size >= length and row[1]:
            self._leave(row[1].pop())

    def close(self, request):
        table = self._row(request)[1]
        while table:
            self._leave(table.pop())
        del self._rows[request]

    def _leave(self, block):
        self._in_use[block] -= 1
        if self._in_use[block] == 0:
            self._time += 1
            self._free[block] = self._time

    def _grow(self, table, count):
        for _ in range(count):
            plain = list(set(self._free) - set(self._prefix))
            block = plain[0] if plain else min(self._free.items(), key=itemgetter(1))[0]
            del self._free[block]
            self._prefix.pop(block, None)
            self._in_use[block] = 1
            table.append(block)
