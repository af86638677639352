"""A tree whose edges are blocks of tokens, without keys; what loses its parent is dropped."""

from assignment.provided.serving import OutOfBlocks


def hash_block(before, tokens):
    return hash((before, tokens))


class Node:
    def __init__(self, parent, edge, block):
        self.parent, self.edge, self.block = parent, edge, block
        self.children = {}
        self.attached = True


class PagedCache:
    def __init__(self, num_blocks, block_size=16, *, prefix_caching=True, hash_block=hash_block):
        if num_blocks < 1 or block_size < 1:
            raise ValueError("there must be at least one block of at least one token")
        self.num_blocks, self.block_size, self._caching = num_blocks, block_size, prefix_caching
        self._root = Node(None, (), None)
        self._node_of = {}
        self._users = {block: set() for block in range(num_blocks)}
        self._unused = set(range(num_blocks))
        self._retired = {}  # free, with a node: in the order in which they became free
        self._text, self._blocks, self._done, self._path = {}, {}, {}, {}

    num_free = property(lambda self: len(self._unused) + len(self._retired))

    def table(self, request):
        self._must_be_open(request)
        return self._blocks[request].copy()

    def length(self, request):
        self._must_be_open(request)
        return len(self._text[request])

    def computed(self, request):
        self._must_be_open(request)
        return self._done[request]

    def _must_be_open(self, request):
        if request not in self._text:
            raise ValueError(f"request {request}: not open")

    def _must_be_new(self, request):
        if request in self._text:
            raise ValueError(f"request {request}: open already")

    def open(self, request, tokens):
        self._must_be_new(request)
        if not tokens:
            raise ValueError(f"request {request}: empty")
        path, size = [], self.block_size
        node = self._root
        if self._caching:
            for start in range(0, len(tokens) - size, size):
                node = node.children.get(tuple(tokens[start : start + size]))
                if node is None:
                    break
                path.append(node)
        found = [node.block for node in path]
        need = -(-len(tokens) // size) - len(found)
        room = self.num_free - len([block for block in found if not self._users[block]])
        if room < need:
            raise OutOfBlocks(request, need, room)
        for block in found:
            self._retired.pop(block, None)
            self._users[block].add(request)
        self._text[request] = list(tokens)
        self._blocks[request] = found + [self._new_block(request) for _ in range(need)]
        self._done[request] = len(found) * size
        self._path[request] = path
        return self._done[request]

    def append(self, request, tokens):
        self._must_be_open(request)
        if not tokens:
            raise ValueError(f"request {request}: nothing to append")
        text, table, size = self._text[request], self._blocks[request], self.block_size
        partial = len(text) % size > 0
        shared = partial and len(self._users[table[-1]]) > 1
        need = -(-(len(text) + len(tokens)) // size) - len(table) + shared
        if need > self.num_free:
            raise OutOfBlocks(request, need, self.num_free)
        copies = []
        if shared:
            old = table.pop()
            table.append(self._new_block(request))
            self._users[old].discard(request)
            copies, need = [(old, table[-1])], need - 1
        elif partial and table[-1] in self._node_of:
            self._cut(self._node_of[table[-1]])
        table += [self._new_block(request) for _ in range(need)]
        text += tokens
        return copies

    def commit(self, request, count):
        self._must_be_open(request)
        text, size, path = self._text[request], self.block_size, self._path[request]
        if not 0 <= count <= len(text) - self._done[request]:
            raise ValueError(f"request {request}: cannot commit {count} tokens")
        first = self._done[request] // size
        self._done[request] += count
        if not self._caching:
            return
        for i in range(first, self._done[request] // size):
            parent = path[-1] if path else self._root
            if len(path) < i or not parent.attached:
                break
            edge, block = tuple(text[i * size : i * size + size]), self._blocks[request][i]
            if edge not in parent.children:
                parent.children[edge] = self._node_of[block] = Node(parent, edge, block)
            path.append(parent.children[edge])

    def fork(self, request, new_request):
        self._must_be_open(request)
        self._must_be_new(new_request)
        if self._done[request] < len(self._text[request]):
            raise ValueError(f"request {request}: not all computed")
        for part in (self._text, self._blocks, self._path):
            part[new_request] = part[request].copy()
        self._done[new_request] = self._done[request]
        for block in self._blocks[request]:
            self._users[block].add(new_request)

    def truncate(self, request, length):
        self._must_be_open(request)
        if not 0 <= length <= len(self._text[request]):
            raise ValueError(f"request {request}: no {length} tokens to keep")
        kept = -(-length // self.block_size)
        self._give_back(request, self._blocks[request][kept:])
        self._blocks[request] = self._blocks[request][:kept]
        self._text[request] = self._text[request][:length]
        self._path[request] = self._path[request][: length // self.block_size]
        self._done[request] = min(self._done[request], length)

    def close(self, request):
        self._must_be_open(request)
        self._give_back(request, self._blocks[request])
        for part in (self._text, self._blocks, self._done, self._path):
            del part[request]

    def _give_back(self, request, blocks):
        for block in blocks[::-1]:
            self._users[block].discard(request)
            if not self._users[block]:
                if block in self._node_of:
                    self._retired[block] = None
                else:
                    self._unused.add(block)

    def _new_block(self, request):
        block = next(iter(self._unused or self._retired))
        if block in self._retired:  # what stands behind it becomes unused, too: that comes next
            self._cut(self._node_of[block])
        self._unused.remove(block)
        self._users[block].add(request)
        return block

    def _cut(self, node):
        """Take a node out of the tree, with all that stands behind it."""
        del node.parent.children[node.edge]
        behind = [node]
        while behind:
            node = behind.pop()
            behind += node.children.values()
            node.attached = False
            del self._node_of[node.block]
            if node.block in self._retired:
                del self._retired[node.block]
                self._unused.add(node.block)
