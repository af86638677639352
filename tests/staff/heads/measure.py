"""What a model of the experiment can do, on stories of the test split."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache

import torch
from torch import nn

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.stories import entropy, log_probability
from assignment.provided.data.tokenizer import load_tokenizer
from tests.staff.weights import measure
from tests.staff.weights.measure import Figure

TEST_STORIES = 500
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}  # Student's t by degrees of freedom


@cache
def test_stories() -> tuple[list[str], list[list[int]], list[int]]:
    """The stories, their token ids, and how many of these are predicted."""
    texts = list(story_texts("test", TEST_STORIES))
    documents = [load_tokenizer().document(text) for text in texts]
    return texts, documents, [len(document) - 1 for document in documents]


def figures(model: nn.Module) -> dict:
    """Nats a token, the part of them that is over the grammar's own, and questions answered; the
    intervals are over the stories."""
    texts, documents, sizes = test_stories()
    with torch.no_grad():
        nats = measure.nats(model, documents)
    # Story by story: what the stories happen to be cancels out.
    excess = [ours + log_probability(text) for ours, text in zip(nats, texts, strict=True)]
    return {
        "nats": asdict(measure.ratio(nats, sizes)),
        "over_grammar": asdict(measure.ratio(excess, sizes)),
        "answered": asdict(measure.answered(model, load_tokenizer(), documents)),
    }


def grammar_nats() -> Figure:
    """The entropy of the test stories a token: no model can do better."""
    texts, _, sizes = test_stories()
    return measure.ratio([entropy(text) for text in texts], sizes)


def over_seeds(values: Sequence[float]) -> Figure:
    """The mean over seeds with Student's 95% interval: it holds for another seed's model, too."""
    n, mean = len(values), sum(values) / len(values)
    deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1))
    spread = T_975[n - 1] * deviation / math.sqrt(n)
    return Figure(mean, mean - spread, mean + spread)
