"""What a toy model can do, in figures with 95% intervals.

Everything is measured on stories of the test split, or on what the models tell themselves.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from assignment.provided.data import stories
from assignment.provided.data.tokenizer import StoryTokenizer
from assignment.provided.models import CachedSession, Llama
from assignment.provided.models.training import padded
from solutions.attention.generate import generate, next_token_probs
from solutions.attention.grouped_query import grouped_query_attention
from solutions.attention.kv_cache import KVCache

LONGEST = 320  # tokens of a story told by a model; the grammar's have 145 on average
TOGETHER = 100  # stories in a batch
Z = 1.96


@dataclass(frozen=True)
class Figure:
    """A mean with its 95% interval, low … high."""

    mean: float
    low: float
    high: float

    def map(self, function: Callable[[float], float]) -> "Figure":
        """The figure of an increasing function of it."""
        return Figure(function(self.mean), function(self.low), function(self.high))


def ratio(amounts: Sequence[float], sizes: Sequence[float]) -> Figure:
    """Σ amounts / Σ sizes over stories, which are independent of each other (delta method)."""
    a, n = torch.tensor(amounts).double(), torch.tensor(sizes).double()
    mean = float(a.sum() / n.sum())
    spread = Z * float((a - mean * n).square().sum().sqrt() / n.sum())
    return Figure(mean, mean - spread, mean + spread)


def share(count: int, of: int) -> Figure:
    """count / of, with Wilson's interval."""
    p, z = count / of, Z * Z / of
    middle = (p + z / 2) / (1 + z)
    spread = math.sqrt(z * p * (1 - p) + z * z / 4) / (1 + z)
    return Figure(p, middle - spread, middle + spread)


@torch.no_grad()
def logits_of(model: Llama, documents: Sequence[list[int]]) -> list[Tensor]:
    """The logits [T − 1, V] of every token but the first of each document."""
    found = []
    for start in range(0, len(documents), TOGETHER):
        batch = documents[start : start + TOGETHER]
        rows, _ = padded(batch)
        for row, document in zip(model(rows), batch, strict=True):
            found.append(row[: len(document) - 1])
    return found


def nats(model: Llama, documents: Sequence[list[int]]) -> list[float]:
    """−log p of each document, its first token given."""
    losses = []
    for logits, document in zip(logits_of(model, documents), documents, strict=True):
        answers = torch.tensor(document[1:])
        losses.append(float(torch.nn.functional.cross_entropy(logits, answers, reduction="sum")))
    return losses


def told(
    model: Llama, tokenizer: StoryTokenizer, count: int, seed: int, temperature: float = 1.0
) -> list[list[int]]:
    """Documents that the model makes up; one that has no end after LONGEST tokens is cut there."""
    generator = torch.Generator().manual_seed(seed)
    documents: list[list[int]] = []
    while len(documents) < count:
        rows = min(TOGETHER, count - len(documents))
        shape = (rows, LONGEST, model.config.num_kv_heads, model.config.head_dim)
        caches = [KVCache(*shape) for _ in range(model.config.num_layers)]
        answers = generate(
            CachedSession(model, caches, grouped_query_attention),
            [[tokenizer.begin]] * rows,
            LONGEST - 1,
            temperature=temperature,
            uniforms=torch.rand(rows, LONGEST - 1, generator=generator),
            stop_tokens=tokenizer.stop_tokens,
        )
        documents += [[tokenizer.begin, *answer] for answer in answers]
    return documents


def acceptance(
    target: Llama, draft: Llama, documents: Sequence[list[int]], temperature: float
) -> Figure:
    """Share of the draft's tokens that speculative decoding accepts, at every place of documents
    that the target told: Σ min(p, q), which is 1 − TV(p, q).

    Source: Leviathan et al. 2022, https://arxiv.org/abs/2211.17192, corollary 3.6.
    """
    shares, places = [], []
    pairs = zip(logits_of(target, documents), logits_of(draft, documents), strict=True)
    for ours, theirs in pairs:
        p, q = (next_token_probs(logits, temperature) for logits in (theirs, ours))
        shares.append(float(torch.minimum(p, q).sum()))
        places.append(len(ours))
    return ratio(shares, places)


def answered(model: Llama, tokenizer: StoryTokenizer, documents: Sequence[list[int]]) -> Figure:
    """Share of the questions of stories whose answer is, at every token, what the model holds most
    probable."""
    (asks,), (new_line,) = tokenizer.encode("?"), tokenizer.encode("\n")
    ends = {new_line, *tokenizer.stop_tokens}
    right, asked = [], []
    for logits, document in zip(logits_of(model, documents), documents, strict=True):
        hits = (logits.argmax(-1) == torch.tensor(document[1:])).tolist()
        starts = [t for t, token in enumerate(document) if token == asks]
        stops = [next(t for t in range(s, len(document)) if document[t] in ends) for s in starts]
        right.append(sum(all(hits[s : t - 1]) for s, t in zip(starts, stops, strict=True)))
        asked.append(len(starts))
    return ratio(right, asked)


@dataclass(frozen=True)
class Violations:
    """How many of the told stories break a rule, how many sentences in a hundred do, and how."""

    stories: Figure
    sentences: Figure
    kinds: dict[str, int]


def violations_of(texts: Sequence[str]) -> Violations:
    found = [stories.violations(text) for text in texts]
    sentences = [stories.count_sentences(text) for text in texts]
    return Violations(
        share(sum(map(bool, found)), len(texts)),
        ratio([100 * len(violations) for violations in found], sentences),
        dict(Counter(violation.kind for violations in found for violation in violations)),
    )
