"""Tries of the tokens read backwards: the deepest node that the end leads to has the place."""

from jaxtyping import Float
from torch import Tensor

from assignment.provided.speculative import Draft


def lookup(
    sequence: list[int], num_draft: int, max_ngram: int = 3, min_ngram: int = 1
) -> list[int]:
    if num_draft < 0:
        raise ValueError("num_draft < 0")
    trie = Trie(max_ngram, min_ngram)
    trie.grow(sequence)
    return trie.draft(num_draft)


class Node:
    def __init__(self):
        self.children: dict[int, Node] = {}
        self.place = None


class Trie:
    def __init__(self, deepest: int, shallowest: int):
        if shallowest < 1 or deepest < shallowest:
            raise ValueError((deepest, shallowest))
        self.deepest, self.shallowest = deepest, shallowest
        self.root, self.text = Node(), []

    def grow(self, tokens: list[int]) -> None:
        for token in tokens:
            if self.text:
                self._enter()
            self.text.append(token)

    def _enter(self) -> None:
        node = self.root
        for depth in range(1, min(self.deepest, len(self.text)) + 1):
            node = node.children.setdefault(self.text[-depth], Node())
            node.place = len(self.text)

    def draft(self, count: int) -> list[int]:
        node, place = self.root, None
        for depth in range(1, min(self.deepest, len(self.text)) + 1):
            node = node.children.get(self.text[-depth])
            if node is None:
                break
            if depth >= self.shallowest:
                place = node.place
        if place is None:
            return []
        copied: list[int] = []
        while len(copied) < count:
            past = place + len(copied) - len(self.text)
            copied.append(self.text[past] if past < 0 else copied[past])
        return copied


class PromptLookup:
    def __init__(self, max_ngram: int = 3, min_ngram: int = 1):
        self.sizes = max_ngram, min_ngram
        self.tries = []
        Trie(*self.sizes)

    def __call__(
        self, sequences: list[list[int]], most: list[int], uniforms: Float[Tensor, "B G"]
    ) -> Draft:
        while len(self.tries) < len(sequences):
            self.tries.append(Trie(*self.sizes))
        for trie, sequence in zip(self.tries, sequences, strict=True):
            trie.grow(sequence[len(trie.text) :])
        drafts = [trie.draft(count) for trie, count in zip(self.tries, most, strict=True)]
        return Draft.of(drafts, uniforms.size(1))
