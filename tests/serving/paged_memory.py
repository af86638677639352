"""The memory behind a paged cache, played by the grader: does every request read its own tokens?

Keys and values of a token depend on all tokens before it. So what lies in a slot is a prefix: the
tokens from the first to that one. The model knows the calls and what the cache answered. It makes
the copies that the cache tells, writes what `commit` says is computed, and after every call reads
each computed token of each open request through its table. Which block is taken is the cache's own
affair, and so is whether it finds again what stood behind a block that is gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import takewhile

from assignment.provided.serving import Outcome
from tests.grading.closeness import Mismatch
from tests.serving.prefixes import NOTHING, Prefixes

__tracebackhide__ = True  # pytest's word: a traceback ends in the test, not here

OK, VALUE, BLOCKS = "", "ValueError", "OutOfBlocks"
SHOWN = 8  # calls, and ends of a list of tokens


@dataclass
class Held:
    """What a request has: tokens, the prefixes that they end, and how many are computed."""

    tokens: list[int]
    prefixes: list[int]
    computed: int


class PagedMemory:
    """Follows a cache through a script, and checks what the docstring of PagedCache promises.

    Args:
        num_blocks, block_size, prefix_caching: of the cache.
        strong: whether its keys tell all prefixes apart. If not, it need not find anything.
    """

    def __init__(
        self, num_blocks: int, block_size: int, prefix_caching: bool = True, strong: bool = True
    ) -> None:
        self.num_blocks, self.block_size = num_blocks, block_size
        self._finds, self._must_find = prefix_caching, prefix_caching and strong
        self._slots = [[NOTHING] * block_size for _ in range(num_blocks)]
        self._prefixes = Prefixes()
        self._requests: dict[int, Held] = {}
        self._published: set[int] = set()  # prefixes that once filled a block and were computed
        self._lost: set[int] = set()  # of these, those of which a block was taken or written to
        self._before = Outcome(None, "", "", {}, {}, {}, num_blocks)
        self._told = [f"PagedCache({num_blocks}, {block_size})"]
        self._call = ""

    def follow(self, calls: list[tuple[str, list]], outcomes: list[Outcome]) -> None:
        """Take all calls and what came of them. Raises Mismatch at the first that is wrong."""
        for (name, arguments), outcome in zip(calls, outcomes, strict=True):
            self._call = as_text(name, arguments)
            if name == "commit" and len(arguments) == 1:
                arguments = [*arguments, self._left(*arguments)]
            allowed = self._allowed(name, *arguments)
            if outcome.error not in allowed:
                came = f"{outcome.error}: {outcome.message}" if outcome.error else "no error"
                self._fail("", " or ".join(error or "no error" for error in allowed), came)
            if outcome.error:
                self._equal("after the refusal: ", _state(self._before), _state(outcome))
            else:
                getattr(self, f"_{name}")(outcome, *arguments)
                self._check(outcome)
            self._before = outcome
            self._told.append(f"{self._call} → {outcome.error or outcome.value}")

    # What a call may come to.

    def _allowed(self, name: str, request: int, *rest) -> list[str]:
        held = self._requests.get(request)
        if name == "open":
            right = held is None and len(rest[0]) > 0
        elif name == "append":
            right = held is not None and len(rest[0]) > 0
        elif name == "commit":
            right = held is not None and 0 <= rest[0] <= self._left(request)
        elif name == "fork":
            right = held is not None and rest[0] not in self._requests and not self._left(request)
        elif name == "truncate":
            right = held is not None and 0 <= rest[0] <= len(held.tokens)
        else:
            right = held is not None
        if name not in ("open", "append"):
            return [OK if right else VALUE]
        if not right:  # who looks for room first, may see that there is none
            return [VALUE, BLOCKS]
        allowed = self._allowed_open if name == "open" else self._allowed_append
        return allowed(request, *rest)

    def _allowed_open(self, request: int, tokens: list[int]) -> list[str]:
        """What is found in a block that another request holds needs no room."""
        ends = self._ends(self._prefixes.along(tokens)) if self._finds else []
        found = [self._copies(end) for end in takewhile(self._copies, ends)]
        used, total, free = self._used(), self._blocks(len(tokens)), self._before.num_free
        most = sum(not used.isdisjoint(copies) for copies in found)
        surely = sum(used.issuperset(self._copies(end)) for end in self._must(ends))
        return [OK] * (total - most <= free) + [BLOCKS] * (total - surely > free)

    def _allowed_append(self, request: int, tokens: list[int]) -> list[str]:
        start = len(self._requests[request].tokens)
        needed = self._blocks(start + len(tokens)) - self._blocks(start)
        needed += self._writes_shared(request)
        return [OK if needed <= self._before.num_free else BLOCKS]

    # What a call does.

    def _open(self, outcome: Outcome, request: int, tokens: list[int]) -> None:
        prefixes = self._prefixes.along(tokens)
        ends = self._ends(prefixes)
        least = len(self._must(ends)) * self.block_size
        possible = range(least, (len(ends) if self._finds else 0) * self.block_size + 1)
        possible = list(possible[:: self.block_size])
        if type(outcome.value) is not int or outcome.value not in possible:
            self._fail("", f"{' or '.join(map(str, possible))} computed", repr(outcome.value))
        self._requests[request] = Held(list(tokens), prefixes, outcome.value)
        for block in self._table(outcome, request)[outcome.value // self.block_size :]:
            self._take(outcome, request, block)

    def _append(self, outcome: Outcome, request: int, tokens: list[int]) -> None:
        held, start = self._requests[request], len(self._requests[request].tokens)
        old, copies = self._before.tables[request], self._writes_shared(request)
        held.prefixes += self._prefixes.along(tokens, held.prefixes[-1] if start else NOTHING)
        held.tokens += tokens
        table, filled = self._table(outcome, request), start % self.block_size
        if copies and table[len(old) - 1] == old[-1]:
            what, got = f"block {len(old) - 1} of the table: ", f"{old[-1]}, which others hold too"
            self._fail(what, "a block of its own, and the pair of both to copy", got)
        expected = [(old[-1], table[len(old) - 1])] if copies else []
        told = outcome.value
        self._equal("copies: ", expected, list(map(tuple, told)) if _are_rows(told) else told)
        for source, target in expected:
            self._take(outcome, request, target)
            self._slots[target][:filled] = self._slots[source][:filled]
        for block in table[len(old) :]:
            self._take(outcome, request, block)
        for position in range(start, len(held.tokens)):
            self._write(table, position, NOTHING)  # at any time from now on

    def _commit(self, outcome: Outcome, request: int, count: int) -> None:
        held, table = self._requests[request], self._before.tables[request]
        start, held.computed = held.computed, held.computed + count
        for position in range(start, held.computed):
            self._write(table, position, held.prefixes[position])
        self._published.update(held.prefixes[self.block_size - 1 : held.computed : self.block_size])

    def _fork(self, outcome: Outcome, request: int, new_request: int) -> None:
        held = self._requests[request]
        self._requests[new_request] = Held(list(held.tokens), list(held.prefixes), held.computed)

    def _truncate(self, outcome: Outcome, request: int, length: int) -> None:
        held = self._requests[request]
        del held.tokens[length:], held.prefixes[length:]
        held.computed = min(held.computed, length)

    def _close(self, outcome: Outcome, request: int) -> None:
        del self._requests[request]

    def _take(self, outcome: Outcome, request: int, block: int) -> None:
        """A block that was free, for new content of this request alone."""
        for other, table in outcome.tables.items():
            if table.count(block) > (other == request):
                what, got = f"request {request} takes block {block}: ", f"one of request {other}"
                self._fail(what, "a free block", got)
        self._lost.add(self._slots[block][-1])
        self._slots[block] = [NOTHING] * self.block_size

    def _write(self, table: list[int], position: int, prefix: int) -> None:
        block, offset = table[position // self.block_size], position % self.block_size
        if prefix == NOTHING:
            self._lost.add(self._slots[block][-1])
        self._slots[block][offset] = prefix

    # What is there.

    def _check(self, outcome: Outcome) -> None:
        requests = self._requests
        self._equal("open requests: ", sorted(requests), sorted(outcome.tables))
        lengths = {request: len(requests[request].tokens) for request in sorted(requests)}
        computed = {request: requests[request].computed for request in sorted(requests)}
        self._equal("lengths: ", lengths, outcome.lengths)
        self._equal("computed: ", computed, outcome.computed)
        tables = {request: self._table(outcome, request) for request in requests}
        used = len(set().union(*tables.values()))
        if outcome.num_free != self.num_blocks - used:
            expected = f"num_free {self.num_blocks - used}, as {used} blocks are in tables"
            self._fail("", expected, f"num_free {outcome.num_free!r}")
        for request, held in requests.items():
            for position, prefix in enumerate(held.prefixes[: held.computed]):
                block, offset = divmod(position, self.block_size)
                self._read(request, position, tables[request][block], offset, prefix)

    def _read(self, request: int, position: int, block: int, offset: int, prefix: int) -> None:
        found = self._slots[block][offset]
        if found != prefix:
            text = self._prefixes.text
            where = f"token {position} of request {request}, in slot {offset} of block {block}: "
            got = "nothing" if found == NOTHING else f"those of {text(found)}"
            self._fail(where, f"keys and values of {text(prefix)}", got)

    def _table(self, outcome: Outcome, request: int) -> list[int]:
        table, length = outcome.tables.get(request), len(self._requests[request].tokens)
        size, blocks = self._blocks(length), range(self.num_blocks)
        are_blocks = all(type(block) is int and block in blocks for block in table or ())
        if type(table) is not list or len(table) != size or not are_blocks:
            expected = f"{size} of the blocks 0 to {self.num_blocks - 1} for {length} tokens"
            self._fail(f"table of request {request}: ", expected, repr(table))
        return table

    def _ends(self, prefixes: list[int]) -> list[int]:
        """Of a prompt's prefixes those that may be found: whole blocks, and never all of it."""
        return prefixes[self.block_size - 1 : len(prefixes) - 1 : self.block_size]

    def _must(self, ends: list[int]) -> list[int]:
        """Those that have to be found: they were published, and no block of theirs is lost."""
        there = self._published - self._lost if self._must_find else set()
        return list(takewhile(there.__contains__, ends))

    def _copies(self, end: int) -> list[int]:
        """The blocks that are full and end this prefix."""
        return [block for block, slots in enumerate(self._slots) if slots[-1] == end]

    def _used(self) -> set[int]:
        return set().union(*self._before.tables.values())

    def _writes_shared(self, request: int) -> bool:
        """Whether the request's next token is for a block that is in another table, too."""
        if len(self._requests[request].tokens) % self.block_size == 0:
            return False
        tables = self._before.tables
        return sum(tables[request][-1] in table for table in tables.values()) > 1

    def _left(self, request: int) -> int:
        held = self._requests.get(request)
        return len(held.tokens) - held.computed if held else 0

    def _blocks(self, length: int) -> int:
        return -(-length // self.block_size)

    # What to say.

    def _equal(self, what: str, expected: object, got: object) -> None:
        if got != expected:
            self._fail(what, repr(expected), repr(got))

    def _fail(self, what: str, expected: str, got: str) -> None:
        before = [*self._told[:1], *self._told[1:][-SHOWN:]]
        if len(self._told) > len(before):
            before.insert(1, "…")
        raise Mismatch(
            f"expected {expected}, got {got}\nbefore it: {'; '.join(before)}",
            expected=expected,
            got=got,
            what=f"{self._call}: {what}".removesuffix(": "),
            note=f"before it: {'; '.join(before)}",
        )


def _are_rows(value: object) -> bool:
    rows = list | tuple
    return isinstance(value, rows) and all(isinstance(row, rows) for row in value)


def _state(outcome: Outcome) -> dict:
    names = ("tables", "lengths", "computed", "num_free")
    return {name: getattr(outcome, name) for name in names}


@contextmanager
def telling(calls: list[tuple[str, list]]) -> Iterator[None]:
    """An exception out of a script says, in a note, in which one."""
    try:
        yield
    except Exception as error:
        error.add_note(f"In one of: {'; '.join(as_text(*call) for call in calls)}")
        raise


def as_text(name: str, arguments: list) -> str:
    """A call as one would write it; a long row of tokens is cut."""
    return f"{name}({', '.join(map(_short, arguments))})"


def _short(argument: object) -> str:
    if not isinstance(argument, list) or len(argument) <= 2 * SHOWN:
        return repr(argument)
    return f"[{', '.join(map(str, argument[:SHOWN]))}, … {len(argument)} tokens]"
