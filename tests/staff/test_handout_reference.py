"""The handout and the reference of the unit `accounting` state the same numbers."""

from __future__ import annotations

import pytest

from assignment.provided.data.events import Timeline
from assignment.provided.lab import CHIPS
from assignment.provided.models import AttentionLayer, LlamaConfig
from solutions.accounting import intensity, latency, memory, metrics
from tests.staff.test_handout import query
from tests.staff.test_handout_numbers import (
    F_,
    FIRST_TOKENS,
    HEADS,
    LATENT,
    LOG,
    ROPE,
    D,
    H,
    L,
    N,
    S,
    V,
    owners,
)

H100 = CHIPS["H100"]


@pytest.fixture(scope="module")
def facts():
    [facts] = query("facts")
    return facts


def llama(kv_heads=40, attention=()):
    return LlamaConfig(V, L, D, N, kv_heads, H, F_, tie_embeddings=False, attention=attention)


def test_reference_of_intensity_agrees(facts):

    def least(cost_of):
        return intensity.smallest_compute_limited(cost_of, H100)

    for K, plain, causal in zip(
        (40, 8, 1), facts["prefill-compute-bound"], facts["prefill-causal-compute-bound"],
        strict=True,
    ):  # fmt: skip
        assert least(lambda n, K=K: intensity.attention(1, n, n, N, K, H)) == plain
        assert least(lambda n, K=K: intensity.attention(1, n, n, N, K, H, causal=True)) == causal
    assert least(lambda n: intensity.mlp(n, D, F_)) == facts["mlp-compute-bound"]
    assert least(lambda n: intensity.matmul(n, D, F_)) == facts["matmul-compute-bound"]
    cost = intensity.latent_attention(1, 1, S, HEADS, LATENT, ROPE)
    assert intensity.intensity(cost) == pytest.approx(facts["intensity-latent"])
    assert least(lambda n: intensity.latent_attention(1, 1, n, HEADS, LATENT, ROPE)) is None
    assert facts["latent-verify-compute-bound"] == least(
        lambda n: intensity.latent_attention(1, 2, n, HEADS, LATENT, ROPE)
    )


def test_reference_of_memory_agrees(facts):
    assert memory.parameters(llama()) == facts["parameters"]
    assert memory.kv_bytes_per_token(llama(8)) == facts["kv-bytes-gqa"]
    assert [memory.largest_batch(llama(K), H100, S) for K in (40, 8)] == facts["largest-batch"]
    kinds = [None if i % 6 == 0 else 1024 for i in range(48)]
    for tokens, row in zip((4096, 32_768), facts["hybrid"], strict=True):
        for share, expected in zip((1, 2, 3), row, strict=True):
            layers = tuple(
                AttentionLayer(window=kind) if owner == i else AttentionLayer(reads=owner)
                for i, (kind, owner) in enumerate(zip(kinds, owners(kinds, share), strict=True))
            )
            config = LlamaConfig(V, 48, D, N, 8, H, F_, attention=layers)
            assert memory.kv_bytes(config, [tokens]) == expected


def test_reference_of_latency_agrees(facts):
    for K, row in zip((40, 8, 1), facts["decode"], strict=True):
        for B, step in zip((1, 64, 256), row, strict=True):
            cost = latency.decode_cost(llama(K), B, S)
            assert (cost.flops, cost.bytes_read) == (step["flops"], step["bytes"])
    five = latency.decode_cost(llama(), 1, S, num_new=5)
    assert (five.flops, five.bytes) == (facts["verify"][1]["flops"], facts["verify"][1]["bytes"])
    for tokens, prompt in zip((128, 512, S, 4096), facts["prefill"], strict=True):
        seconds = latency.time_to_first_token(llama(), H100, tokens)
        assert seconds == pytest.approx(prompt["seconds"])
    for n, spread in zip((1, 2, 4), facts["replicas"], strict=True):
        expected = (spread["seconds"], spread["throughput"])
        assert latency.replicated(llama(), H100, 64, S, n) == pytest.approx(expected)


def test_reference_of_metrics_agrees(facts):
    lines = [Timeline(*request) for request in LOG.values()]
    assert metrics.throughput(lines) == pytest.approx(facts["throughput"])
    assert metrics.goodput(lines, 0.5, 0.22) == pytest.approx(facts["goodput"])
    ranks = [metrics.percentile(FIRST_TOKENS, p) for p in (50, 90, 91, 99)]
    assert ranks == facts["percentiles"]
