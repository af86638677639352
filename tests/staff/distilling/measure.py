"""How far a student is from the grammar, on the way and at the end."""

from collections.abc import Sequence
from functools import cache

import torch
from torch import nn

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.stories import entropy, log_probability
from assignment.provided.data.tokenizer import load_tokenizer
from tests.staff.heads.measure import over_seeds
from tests.staff.weights import measure
from tests.staff.weights.measure import Figure

STORIES = {"validation": 24, "test": 100}
CURVE_EVERY = 20  # steps between two points of the curve


@cache
def stories(split: str) -> tuple[list[str], list[list[int]], list[int]]:
    """Texts, their token ids, and how many of these are predicted."""
    texts = list(story_texts(split, STORIES[split]))
    documents = [load_tokenizer().document(text) for text in texts]
    return texts, documents, [len(document) - 1 for document in documents]


@torch.no_grad()
def over_grammar(model: nn.Module, split: str) -> Figure:
    """Nats a token over the grammar's own; the interval is over the stories."""
    texts, documents, sizes = stories(split)
    nats = measure.nats(model, documents)
    # Story by story: what the stories happen to be cancels out.
    excess = [ours + log_probability(text) for ours, text in zip(nats, texts, strict=True)]
    return measure.ratio(excess, sizes)


def grammar_nats() -> Figure:
    """The entropy of the test stories a token: no model can do better."""
    texts, _, sizes = stories("test")
    return measure.ratio([entropy(text) for text in texts], sizes)


class Curve:
    """An `on_step` that measures the model as it learns: `points` of (steps done, nats over the
    grammar on stories to choose by)."""

    def __init__(self, model: nn.Module):
        self._model = model
        self.points: list[tuple[int, float]] = []
        self(-1, 0.0)

    def __call__(self, step: int, loss: float) -> None:
        if (step + 1) % CURVE_EVERY == 0:
            self.points.append((step + 1, over_grammar(self._model, "validation").mean))


def gain(ours: Sequence[float], theirs: Sequence[float]) -> Figure:
    """Ours − theirs, seed by seed: both have seen the same stories."""
    return over_seeds([a - b for a, b in zip(ours, theirs, strict=True)])
