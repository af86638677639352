"""speculative.decoding on the toy models: the draft saves more than half of the target's calls."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import CachedSession
from assignment.provided.models.toy import load_toy
from solutions.attention.generate import generate
from solutions.attention.grouped_query import grouped_query_attention
from solutions.attention.kv_cache import KVCache
from solutions.speculative.decoding import ModelDraft, speculative_generate

STORIES, LENGTH, NUM_DRAFT = 8, 110, 4


class Counted:
    """A session over caches of a toy model, with room for LENGTH tokens in a row."""

    def __init__(self, name: str):
        model = load_toy(name)
        sizes = model.config
        caches = [
            KVCache(STORIES, LENGTH, sizes.num_kv_heads, sizes.head_dim)
            for _ in range(sizes.num_layers)
        ]
        self._session = CachedSession(model, caches, grouped_query_attention)
        self.truncate, self.calls = self._session.truncate, 0

    @property
    def lengths(self):
        return self._session.lengths

    def __call__(self, tokens, num_tokens=None):
        self.calls += 1
        return self._session(tokens, num_tokens)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Beginnings of stories that nobody was trained on, of 20 to 41 tokens."""
    tokenizer = load_tokenizer()
    documents = [tokenizer.document(text) for text in story_texts("test", STORIES)]
    return [document[: 20 + 3 * i] for i, document in enumerate(documents)]


def speculative(prompts, **options):
    """The answers, and the calls of the target."""
    target, draft = Counted("target"), Counted("draft")
    drafter = ModelDraft(draft, options.get("temperature", 0.0))
    new = speculative_generate(
        target, drafter, prompts, LENGTH, NUM_DRAFT, max_length=LENGTH, **options
    )
    return new, target.calls


def test_greedy(prompts):
    target = Counted("target")
    expected = generate(target, prompts, LENGTH, max_length=LENGTH)
    got, calls = speculative(prompts)
    assert got == expected
    assert 2 * calls <= target.calls, f"{calls} calls with a draft, {target.calls} without"


def test_at_temperature_1(prompts):
    shape = (STORIES, LENGTH, 2 * NUM_DRAFT + 1)
    uniforms = torch.rand(shape, generator=torch.Generator().manual_seed(1))
    got, calls = speculative(prompts, temperature=1.0, uniforms=uniforms)
    counts = [LENGTH - len(prompt) for prompt in prompts]
    assert [len(new) for new in got] == counts
    assert 2 * calls <= max(counts), f"{calls} calls with a draft, {max(counts)} without"
