"""A model that reads trees, over a TableLM: what a token's row sees decides all that comes of it.

`TreeModel` is the grader's `TreePast`. Each slot remembers the token that was fed into it, its
position, and what its row saw then. A new row's prefix is what its mask shows, in the order of
positions; its logits are the table's after exactly that prefix. If what it sees is no sequence
(positions missing or double, a slot that once saw something else) they are those of a garbled one.
So a wrong mask, a wrong position, a wrong slot kept, or a wrong row taken gives other tokens.

A hidden state is the number of a prefix: whoever is given it can look up which prefix it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from assignment.provided.models import TableLM
from assignment.provided.speculative import TreePastParts

HIDDEN = 3  # (number of the prefix, its square root, 1): a state of another prefix is another one


@dataclass(frozen=True)
class Slot:
    token: int
    position: int
    seen: tuple[int, ...]  # the prefix that its row saw, itself included


@dataclass(frozen=True)
class Feed:
    """One call of `feed`: the tokens of the past, and what came.

    prefixes: what each row saw, itself included. fault: the first that saw no sequence, in words.
    """

    held: list[int]
    tokens: list[int]
    positions: list[int]
    prefixes: list[tuple[int, ...]]
    fault: str


class TreeModel:
    """One sequence. `parts` is the `TreePast` that a submission gets.

    feeds: the calls so far. kept: the slots of each call of `keep`.
    """

    def __init__(self, model: TableLM):
        self.model = model
        self.slots: list[Slot] = []
        self.feeds: list[Feed] = []
        self.kept: list[list[int]] = []
        self._prefixes: list[tuple[int, ...]] = []
        self._numbers: dict[tuple[int, ...], int] = {}

    @property
    def parts(self) -> TreePastParts:
        return TreePastParts(self.feed, self.logits, self.keep, lambda: len(self.slots))

    @property
    def held(self) -> list[int]:
        """The tokens in the slots."""
        return [slot.token for slot in self.slots]

    @property
    def first_fault(self) -> str:
        """The first row that saw no sequence, in words; empty where all saw one."""
        return next((feed.fault for feed in self.feeds if feed.fault), "")

    @property
    def rows(self) -> int:
        """Tokens fed in all."""
        return sum(len(feed.tokens) for feed in self.feeds)

    def feed(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        self._check(tokens, positions, mask)
        held, length = self.held, len(self.slots)
        pairs = list(zip(tokens.tolist(), positions.tolist(), strict=True))
        self.slots += [Slot(token, position, ()) for token, position in pairs]
        prefixes, faults = [], []  # row by row: what a row sees in its own call stands before it
        for own, sees in enumerate(mask.tolist(), start=length):
            prefix, fault = self._prefix(own, sees)
            prefixes.append(prefix)
            faults += [f"row {own - length}, fed behind {length} tokens, {fault}"] if fault else []
            self.slots[own] = replace(self.slots[own], seen=prefix)
        fed, places = ([pair[i] for pair in pairs] for i in range(2))
        self.feeds.append(Feed(held, fed, places, prefixes, next(iter(faults), "")))
        return torch.stack([self.state(prefix) for prefix in prefixes])

    def _check(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> None:
        count, size = len(tokens), self.model.vocab_size
        if tokens.dim() != 1 or positions.shape != tokens.shape:
            shapes = f"{list(tokens.shape)} and {list(positions.shape)}"
            raise ValueError(f"feed: expected tokens and positions [T], got {shapes}")
        expected = [count, len(self.slots) + count]
        if mask.dtype != torch.bool or list(mask.shape) != expected:
            got = f"{mask.dtype} {list(mask.shape)}"
            raise ValueError(f"feed: expected a mask torch.bool {expected}, got {got}")
        if outside := [token for token in tokens.tolist() if not 0 <= token < size]:
            raise ValueError(f"feed: tokens {outside} are not in 0 … {size - 1}")

    def _prefix(self, own: int, sees: list[bool]) -> tuple[tuple[int, ...], str]:
        """What a row sees, and what is wrong with it as a sequence."""
        visible = [index for index, seen in enumerate(sees) if seen]
        ordered = sorted(visible, key=lambda index: self.slots[index].position)
        tokens = tuple(self.slots[index].token for index in ordered)
        places = [self.slots[index].position for index in ordered]
        others = [
            index
            for end, index in enumerate(ordered, start=1)
            if index != own and self.slots[index].seen != tokens[:end]
        ]
        if places != list(range(len(places))) or ordered[-1:] != [own]:
            place = self.slots[own].position
            return self._garbled(tokens), f"at position {place}, saw positions {places}"
        if others:
            place = self.slots[others[0]].position
            return self._garbled(tokens), f"saw in position {place} a token of another branch"
        return tokens, ""

    def _garbled(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """A prefix that no sequence of a test begins with, and no long one."""
        shifted = tuple((token + 1) % self.model.vocab_size for token in tokens[:8])
        return (*shifted, 0, *shifted)

    def state(self, prefix: tuple[int, ...]) -> Tensor:
        """The hidden state [D] of a prefix."""
        number = self._numbers.setdefault(prefix, len(self._prefixes))
        if number == len(self._prefixes):
            self._prefixes.append(prefix)
        return torch.tensor([float(number), number**0.5, 1.0])

    def prefix_of(self, state: Tensor) -> tuple[int, ...]:
        """The prefix of a hidden state [D].

        Raises:
            ValueError: it is none that `feed` returned.
        """
        number = int(state[0].round())
        known = 0 <= number < len(self._prefixes)
        if not known or not torch.equal(state.float(), self.state(self._prefixes[number])):
            raise ValueError(f"{state.tolist()} is no hidden state that feed returned")
        return self._prefixes[number]

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., D] -> [..., V]"""
        rows = [self.model(torch.tensor([self.prefix_of(state)]))[0, -1] for state in _rows(hidden)]
        return torch.stack(rows).reshape(*hidden.shape[:-1], -1)

    def keep(self, slots: list[int]) -> None:
        slots = list(slots)
        if len(set(slots)) != len(slots) or not all(0 <= s < len(self.slots) for s in slots):
            raise ValueError(f"keep: expected different slots of {len(self.slots)}, got {slots}")
        self.kept.append(slots)
        self.slots = [self.slots[index] for index in slots]


def _rows(hidden: Tensor) -> Tensor:
    return hidden.reshape(-1, hidden.shape[-1])
