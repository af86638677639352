"""Generation by trees, with heads whose guesses are planned: so it is known which are accepted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from assignment.provided.models import ReplaySession, TableLM
from tests.attention import oracles
from tests.grading.closeness import Mismatch, assert_equal
from tests.speculative import medusa_trees as trees
from tests.speculative.texts import assert_text
from tests.speculative.tree_model import TreeModel

VOCAB = 11
HEADS = 3
RANKS = (0, 0, 0, 0, 1, 1, 2, 5)  # of the right token among a head's guesses: drawn from these


class PlannedHeads:
    """Heads that know how the text goes on, and put the right token at a drawn rank.

    text: prompt and right new tokens, HEADS more than are asked for. At the hidden state of another
    prefix than one of its beginnings all they say is noise.

    asked: the prefixes at whose hidden states they were asked, by how many calls of the target came
    before.
    """

    def __init__(self, draw, target: TreeModel, text: list[int], ranks: Sequence[int] = RANKS):
        self.target, self.text = target, text
        chosen = draw.integers(0, len(ranks), len(text), HEADS).tolist()
        self.ranks = [[ranks[i] % target.model.vocab_size for i in row] for row in chosen]
        self._noise = draw.normal(len(text) + 1, HEADS, target.model.vocab_size)
        self.asked: dict[int, list[list[int]]] = {}

    def __call__(self, hidden: Tensor) -> Tensor:
        states = hidden.reshape(-1, hidden.shape[-1])
        prefixes = [list(self.target.prefix_of(state)) for state in states]
        self.asked.setdefault(len(self.target.feeds), []).extend(prefixes)
        rows = [self.logits(prefix) for prefix in prefixes]
        return torch.stack(rows).reshape(*hidden.shape[:-1], HEADS, -1)

    def logits(self, prefix: list[int]) -> Tensor:
        """What they say [HEADS, V] at the hidden state of a prefix."""
        place = len(prefix) - 1
        if prefix != self.text[: len(prefix)] or place + 1 + HEADS >= len(self.text):
            return self._noise[-1]
        logits = self._noise[place].clone()
        for head in range(HEADS):
            right, rank = self.text[place + 2 + head], self.ranks[place][head]
            other = int(logits[head].argsort(descending=True)[rank])
            logits[head, [right, other]] = logits[head, [other, right]]
        return logits

    def rounds(self, choices: list[tuple[int, ...]], start: int, count: int) -> list[list[int]]:
        """How many [rows, new tokens] each call has that generates `count` tokens after `start`."""
        calls, new = [[start, 1]], 1
        while new < count:
            usable = {choice for choice in choices if len(choice) < count - new}
            ranks = tuple(self.ranks[start + new - 2])
            depths = (n for n in range(HEADS, -1, -1) if n == 0 or ranks[:n] in usable)
            accepted = next(depths)
            calls.append([1 + len(usable), accepted + 1])
            new += accepted + 1
        return calls


def no_guesses(hidden: Tensor) -> Tensor:
    return torch.zeros(*hidden.shape[:-1], HEADS, VOCAB)


class Generation:
    """Texts after one prompt, by trees by a submission and token after token by the rule."""

    def __init__(self, draw, medusa_generate, *, vocab: int = VOCAB, length: int = 4):
        self.draw, self.medusa_generate = draw, medusa_generate
        self.model = TableLM(vocab, draw.seed())
        self.prompt = draw.integers(0, vocab, length).tolist()

    def run(
        self, choices, count: int, *, generate=None, ranks=RANKS, uniforms=None, **options
    ) -> list[int]:
        """The new tokens, which are checked, and so is the past before each call.

        generate: the submission's, for the right tokens when they are sampled.
        """
        self.target = TreeModel(self.model)
        # First, so that what is not written yet shows before `generate` is needed.
        nothing = self.medusa_generate(self.target.parts, no_guesses, self.prompt, 0, choices)
        assert_equal(list(nothing), [], what="0 new tokens")
        plain = {k: v for k, v in options.items() if k != "stop_tokens"}
        right = self._right(count + HEADS + 1, generate, uniforms, plain)
        self.heads = PlannedHeads(self.draw, self.target, [*self.prompt, *right], ranks)
        if uniforms is not None:
            uniforms = uniforms[:count]
        got = self.medusa_generate(
            self.target.parts,
            self.heads,
            self.prompt,
            count,
            choices,
            uniforms=uniforms,
            **options,
        )
        ends = [i + 1 for i, t in enumerate(right[:count]) if t in options.get("stop_tokens", ())]
        self.expected = right[: min([count, *ends])]
        assert_text(got, self.expected, hint=self.target.first_fault)
        self._check_past()
        self._check_guesses(choices, count)
        return got

    def _right(self, count: int, generate, uniforms, options) -> list[int]:
        if generate is None:
            return oracles.greedy(self.model, self.prompt, count)
        session = ReplaySession(self.model, 1)
        rows = generate(session, [self.prompt], count, uniforms=uniforms[None], **options)
        return rows[0]

    def _check_past(self) -> None:
        """Before each call the past is the sequence but its newest token, and that one is fed."""
        text = [*self.prompt, *self.expected]
        if not self.expected:
            return assert_equal(len(self.target.feeds), 0, what="calls for no new token")
        first, *others = self.target.feeds
        assert_equal(first.held, [], what="the past before the first call")
        assert_equal(first.tokens, self.prompt, what="tokens of the first call")
        for number, feed in enumerate(others, start=2):
            expected = text[: len(feed.held)]
            assert_equal(feed.held, expected, what=f"the past before call {number}")
            newest = text[len(feed.held)]
            assert_equal(feed.tokens[0], newest, what=f"the root of the tree of call {number}")

    def _check_guesses(self, choices: Sequence[tuple[int, ...]], count: int) -> None:
        """The guesses of each tree are those that the heads make at the token before its root."""
        asked: list[list[int]] = []
        for number, feed in enumerate(self.target.feeds[1:], start=2):
            latest = self.heads.asked.get(number - 1, [])
            asked += latest
            missing = count - (len(feed.held) + 1 - len(self.prompt))
            first = [choice[0] for choice in choices if len(choice) == 1 < missing]
            if not first:  # then nobody needs the heads
                continue
            if feed.held not in asked:
                raise self._wrong_state(number, feed.held, latest)
            ranked = trees.ranked(self.heads.logits(feed.held)[0])
            below = [
                t for t, p in zip(feed.tokens, feed.positions, strict=True) if p > len(feed.held)
            ]
            guesses = [ranked[rank] for rank in first if rank < len(ranked)]
            lost = [token for token in guesses if token not in below]
            assert_equal(lost, [], what=f"guesses of head 0 that call {number} was not fed")

    def _wrong_state(self, number: int, held: list[int], asked: list[list[int]]) -> Mismatch:
        text = [*self.prompt, *self.expected]
        of = [
            f"position {len(prefix) - 1}" if prefix == text[: len(prefix)] else "another text"
            for prefix in asked
        ]
        expected, got = f"that of position {len(held) - 1}", ", ".join(of) or "none"
        where = f"before call {number}, whose root has position {len(held)}"
        line = f"{where}: expected {expected}, got {got}"
        what = "the hidden state that heads reads"
        return Mismatch(line, expected=expected, got=got, what=what, where=where)
