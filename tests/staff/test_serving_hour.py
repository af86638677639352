"""The serving unit under pressure: a compressed hour of requests, and drafts that are taken back.

`python -m tests.staff.serving_hour --minutes 60` runs the hour in full.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict

import pytest
import torch

from assignment.provided.serving import OutOfBlocks
from solutions.serving.engine import gather_attention, store_kv
from solutions.serving.paged_cache import PagedCache
from tests.staff.serving_hour import BLOCK_SIZES, HAPPENINGS, Hour

# ---- the hour


def test_every_answer_is_that_of_a_solo_run_and_no_block_is_lost():
    happened = Counter()
    for block_size in BLOCK_SIZES:
        hour = Hour(seed=1, block_size=block_size, requests=70)
        hour.run()
        happened += hour.happened
    assert {name for name, count in happened.items() if count >= 5} == HAPPENINGS


# ---- drafts: several tokens appended, some taken back (speculative decoding)

NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 4, 2, 3
VOCAB = 3


class Drafting:
    """Requests of a paged cache whose keys and values are real tensors, beside plain lists.

    A token's key and value are drawn once for all tokens up to it: who reads those of another
    sequence, or of a token that was taken back, reads something else.
    """

    def __init__(self, seed: int, block_size: int, num_blocks: int):
        self.random = random.Random(f"{seed} {block_size}")
        generator = torch.Generator().manual_seed(seed)
        self.cache = PagedCache(num_blocks, block_size)
        self.keys, self.values = torch.full(
            (2, num_blocks, block_size, NUM_KV_HEADS, HEAD_DIM), torch.nan
        )
        self.rows = defaultdict(  # by all tokens up to one: its key and value
            lambda: torch.randn(2, NUM_KV_HEADS, HEAD_DIM, generator=generator)
        )
        self.text = self.tokens(32)  # many requests begin as it does, and drafts go on as it does
        self.plain: dict[int, list[int]] = {}
        self.number = 0
        self.happened: Counter[str] = Counter()

    def tokens(self, count: int) -> list[int]:
        return [self.random.randrange(VOCAB) for _ in range(count)]

    def act(self) -> None:
        acts = (self.open, self.draft, self.draft, self.draft, self.fork, self.close)
        act = self.random.choice(acts) if self.plain else self.open
        try:
            act()
        except OutOfBlocks:
            self.happened["refused"] += 1
            self.check()
            self.close()

    def open(self) -> None:
        tokens = self.text[: self.random.randint(0, 20)] + self.tokens(self.random.randint(1, 4))
        self.begin(tokens)

    def draft(self) -> None:
        """A round: drafts are appended and computed, some of the last ones are refused."""
        request = self.random.choice(list(self.plain))
        count, held = self.random.randint(1, 9), len(self.plain[request])
        drafts = self.text[held : held + count] if self.random.random() < 0.5 else []
        self.extend(request, drafts or self.tokens(count))
        self.check()  # with the drafts in it, too
        self.take_back(request, self.random.randint(held, len(self.plain[request])))

    def begin(self, tokens: list[int]) -> None:
        computed = self.cache.open(self.number, tokens)
        self.plain[self.number] = list(tokens)
        self.happened["shared"] += computed > 0
        self.write(self.number)
        self.number += 1

    def extend(self, request: int, tokens: list[int]) -> None:
        for source, target in self.cache.append(request, tokens):
            self.keys[target], self.values[target] = self.keys[source], self.values[source]
            self.happened["copied"] += 1
        self.plain[request] += tokens
        self.write(request)

    def take_back(self, request: int, length: int) -> None:
        blocks, held = len(self.cache.table(request)), len(self.plain[request])
        self.cache.truncate(request, length)
        del self.plain[request][length:]
        self.happened["refused drafts"] += held - length
        self.happened["blocks given back"] += blocks - len(self.cache.table(request))

    def fork(self) -> None:
        request = self.random.choice(list(self.plain))
        self.cache.fork(request, self.number)
        self.plain[self.number] = list(self.plain[request])
        self.number += 1

    def close(self) -> None:
        request = self.random.choice(list(self.plain))
        self.cache.close(request)
        del self.plain[request]

    def write(self, request: int) -> None:
        """Compute the tokens that are not: their keys and values go where the table says."""
        size, tokens = self.cache.block_size, self.plain[request]
        places = range(self.cache.computed(request), len(tokens))
        table = self.cache.table(request)
        rows = torch.stack([self.rows[tuple(tokens[: i + 1])] for i in places])
        slots = torch.tensor([table[i // size] * size + i % size for i in places])
        store_kv(rows[:, 0], rows[:, 1], self.keys, self.values, slots)
        self.cache.commit(request, len(places))

    def check(self) -> None:
        held = set()
        for request, tokens in self.plain.items():
            table = self.cache.table(request)
            held |= set(table)
            assert self.cache.length(request) == self.cache.computed(request) == len(tokens)
            assert len(table) == -(-len(tokens) // self.cache.block_size)
            expected = torch.stack([self.rows[tuple(tokens[: i + 1])] for i in range(len(tokens))])
            for memory, rows in ((self.keys, expected[:, 0]), (self.values, expected[:, 1])):
                assert torch.equal(memory[table].flatten(0, 1)[: len(tokens)], rows)
            self.happened["not contiguous"] += table != list(range(table[0], table[0] + len(table)))
        if self.plain:
            self.check_attention(table, expected)
        assert self.cache.num_free + len(held) == self.cache.num_blocks, f"held: {held}"

    def check_attention(self, table: list[int], expected: torch.Tensor) -> None:
        """The newest token's, against sums written out head by head."""
        q = torch.randn(1, NUM_HEADS, HEAD_DIM)
        length = torch.tensor([len(expected)])
        got = gather_attention(
            q, self.keys, self.values, torch.tensor([table]), torch.tensor([1]), length
        )
        for head in range(NUM_HEADS):
            keys, values = expected[:, :, head * NUM_KV_HEADS // NUM_HEADS].unbind(1)
            weights = torch.softmax(keys @ q[0, head] / HEAD_DIM**0.5, dim=0)
            torch.testing.assert_close(got[0, head], weights @ values, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("block_size", [1, 2, 4, 7])
def test_refused_drafts_take_nothing_with_them(block_size):
    """S6: what stays is there, in blocks that need not be neighbours; what goes is free again."""
    drafting = Drafting(seed=1, block_size=block_size, num_blocks=60 // block_size)
    for _ in range(200):
        drafting.act()
        drafting.check()
    while drafting.plain:
        drafting.close()
    assert drafting.cache.num_free == drafting.cache.num_blocks
    expected = {"refused", "refused drafts", "blocks given back", "not contiguous", "shared"}
    expected |= {"copied"} if block_size > 1 else set()
    assert {name for name, count in drafting.happened.items() if count >= 3} == expected


def test_a_block_that_is_written_anew_is_not_found_by_its_old_tokens():
    drafting = Drafting(seed=1, block_size=2, num_blocks=10)
    drafting.begin([0, 1, 2, 0, 1, 1])
    drafting.take_back(0, 3)
    drafting.extend(0, [1])
    for tokens in ([0, 1, 2, 0, 1], [0, 1, 2, 1, 1]):
        drafting.begin(tokens)
        drafting.check()
