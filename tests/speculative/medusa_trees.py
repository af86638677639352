"""Trees for the tests of Medusa, and what is right of them, by walking from node to node."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from assignment.provided.speculative import NO_TOKEN

# Parents, in any order that has them before their children: a lone root, a chain, a star, and
# trees whose depths neither rise from node to node nor stand side by side.
PARENTS = [
    [-1],
    [-1, 0, 1, 2, 3],
    [-1, 0, 0, 0, 0],
    [-1, 0, 0, 1, 1, 2, 3],
    [-1, 0, 1, 0, 1, 3, 2, 0, 6, 5],
    [-1, 0, 1, 2, 0, 4, 4, 6, 0, 1],
]

CHOICES = [
    [],
    [(0,)],
    [(0,), (0, 0), (0, 0, 0)],
    [(2,), (0,), (1,)],
    [(0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0), (2,)],
    [(1,), (1, 2), (0,), (1, 2, 0), (0, 1), (0, 1, 3), (1, 0), (1, 2, 1), (4,)],
]
"""From the root down, in any such order; the last goes deep first."""


MOST_CHILDREN = 4


def draw_parents(draw, size: int) -> list[int]:
    parents = [-1]
    while len(parents) < size:
        parent = int(draw.integers(0, len(parents), 1))
        if parents.count(parent) < MOST_CHILDREN:
            parents.append(parent)
    return parents


def ancestors(parents: list[int], node: int) -> list[int]:
    """The node, its parent, its parent's parent, …, the root."""
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path


def mask(parents: list[int], length: int) -> Tensor:
    rows = []
    for node in range(len(parents)):
        seen = ancestors(parents, node)
        rows.append([True] * length + [other in seen for other in range(len(parents))])
    return torch.tensor(rows)


def parents_of(choices: list[tuple[int, ...]]) -> list[int]:
    return [-1, *(choices.index(c[:-1]) + 1 if len(c) > 1 else 0 for c in choices)]


def ranked(logits: Tensor) -> list[int]:
    """Token ids, the most probable first; of equal ones the lower first."""
    values = logits.tolist()
    return sorted(range(len(values)), key=lambda token: (-values[token], token))


@dataclass(frozen=True)
class Tree:
    """A tree of guesses. Siblings hold different tokens; some nodes are padding."""

    tokens: Tensor
    parents: list[int]
    probs: Tensor  # float32, [T, V]
    uniforms: Tensor  # one for each depth

    @property
    def depths(self) -> list[int]:
        return [len(ancestors(self.parents, node)) - 1 for node in range(len(self.parents))]

    def children(self, node: int) -> list[int]:
        return [i for i, parent in enumerate(self.parents) if parent == node]

    def lossless(self, drawn: list[int]) -> tuple[list[int], int]:
        """The path and the next token when the target draws `drawn[node]` after each node."""
        path = [0]
        while True:
            token = drawn[path[-1]]
            found = [c for c in self.children(path[-1]) if int(self.tokens[c]) == token]
            if not found:
                return path, token
            path.append(found[0])

    def entropy(self, node: int) -> float:
        return -sum(p * math.log(p) for p in self.probs[node].double().tolist() if p > 0)

    def margin(self, node: int, epsilon: float, delta: float) -> float:
        """By how much a node is more probable than it must be."""
        parent, token = self.parents[node], int(self.tokens[node])
        if NO_TOKEN in (token, int(self.tokens[parent])):
            return -math.inf
        threshold = min(epsilon, delta * math.exp(-self.entropy(parent)))
        return float(self.probs[parent, token]) - threshold

    def typical(self, epsilon: float, delta: float) -> list[list[int]]:
        """All accepted paths, the best first."""
        good = {0} | {
            node for node in range(1, len(self.parents)) if self.margin(node, epsilon, delta) > 0
        }
        paths = [ancestors(self.parents, node)[::-1] for node in range(len(self.parents))]
        accepted = [path for path in paths if good.issuperset(path)]
        return sorted(accepted, key=lambda path: (-len(path), -self.product(path)))

    def product(self, path: list[int]) -> float:
        pairs = itertools.pairwise(path)
        return math.prod(float(self.probs[a, int(self.tokens[b])]) for a, b in pairs)


def draw_tree(draw, parents: list[int], vocab: int, *, padding: float = 0.0) -> Tree:
    """Tokens and distributions for a tree: some flat, some with nearly all on one token, some with
    zeros. A child holds one of its parent's likelier tokens, so that paths go deep; a share
    `padding` of all nodes holds none, and what stands in their rows of probs is no number."""
    size = len(parents)
    scales = torch.tensor([0.3, 1.0, 2.0, 4.0])[draw.integers(0, 4, size)]
    logits = draw.normal(size, vocab) * scales[:, None]
    logits[draw.uniform(size, vocab) < 0.2] = -math.inf
    logits[:, 0] = draw.normal(size)  # never all of a row
    probs = logits.softmax(dim=-1)
    tokens = draw.integers(0, vocab, size)
    for node in range(size):
        below = [i for i, parent in enumerate(parents) if parent == node]
        likely = probs[node].argsort(descending=True)
        skipped = int(draw.integers(0, 2, 1))
        tokens[below] = likely[skipped : skipped + len(below)]
    blank = draw.uniform(size) < padding
    blank[0] = False
    tokens[blank], probs[blank] = NO_TOKEN, math.nan
    depth = max(len(ancestors(parents, node)) for node in range(size))
    return Tree(tokens, parents, probs, draw.uniform(depth))
