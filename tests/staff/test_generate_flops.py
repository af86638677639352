"""attention.generate is graded by a formula for the FLOPs of its calls: a Llama agrees with it."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.lab import CostCounter
from assignment.provided.models import CachedSession, Llama
from solutions.attention.generate import generate, generate_uncached
from solutions.attention.grouped_query import grouped_query_attention
from solutions.attention.kv_cache import KVCache
from tests.attention import oracles

PROMPTS = [list(range(5)), list(range(30, 47)), list(range(100, 111))]
NEW_TOKENS = 12


class Meter:
    """Counts the FLOPs of calls, and notes their (rows, columns, tokens attended to)."""

    def __init__(self):
        self.flops, self.calls = 0, []

    def measure(self, function, tokens, *rest):
        with CostCounter() as counter, torch.no_grad():
            logits = function(tokens, *rest)
        self.flops += counter.cost.flops
        return logits

    def agrees(self) -> bool:
        formula = oracles.flops(oracles.LLAMA, self.calls)
        return self.flops == pytest.approx(formula, rel=0.02)


def test_cached_calls():
    config, meter = oracles.LLAMA, Meter()
    shape = (len(PROMPTS), 64, config.num_kv_heads, config.head_dim)
    caches = [KVCache(*shape) for _ in range(config.num_layers)]
    model = Llama(config)
    session = CachedSession(model, caches, grouped_query_attention)

    def forward(tokens, num_tokens):
        logits = meter.measure(session, tokens, num_tokens)
        meter.calls.append((*tokens.shape, int(session.lengths.max())))
        return logits

    got = generate(forward, PROMPTS, NEW_TOKENS, max_length=24)
    assert got == generate_uncached(model, PROMPTS, NEW_TOKENS, max_length=24)
    assert len(meter.calls) == NEW_TOKENS
    assert meter.agrees()


def test_uncached_calls():
    model, meter = Llama(oracles.LLAMA), Meter()

    def forward(tokens):
        meter.calls.append((*tokens.shape, tokens.shape[1]))
        return meter.measure(model, tokens)

    generate_uncached(forward, PROMPTS, NEW_TOKENS, max_length=24)
    assert len(meter.calls) == NEW_TOKENS + (24 - 17) + NEW_TOKENS
    assert meter.agrees()
