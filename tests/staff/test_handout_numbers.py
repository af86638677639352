"""Every number that the handout states, worked out here once more, by other words."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import count, pairwise

import pytest
import torch

from tests.staff.test_handout import query

# Llama-2-13B at 1,024 tokens on an H100.
V, L, D, F_, N, H, S = 32_000, 40, 5120, 13_824, 40, 128, 1024
PEAK, BANDWIDTH, MEMORY = 989 * 10**12, 335 * 10**10, 80 * 10**9
# Attention of DeepSeek-V2: heads, their widths, latent, rotary part, layers.
HEADS, NOPE, VALUE, LATENT, ROPE, LAYERS = 128, 128, 128, 512, 64, 60


@pytest.fixture(scope="module")
def facts():
    [facts] = query("facts")
    return facts


def parameters(kv_heads):
    q_and_o, k_and_v = 2 * D * N * H, 2 * D * kv_heads * H
    return 2 * V * D + L * (q_and_o + k_and_v + 3 * D * F_)


def step_bytes(kv_heads, batch, tokens=S, weight=2, kv=2):
    return weight * parameters(kv_heads) + batch * tokens * 2 * L * kv_heads * H * kv


def model_flops(new, held, kv_heads=N):
    pairs = sum(held + i + 1 for i in range(new))
    return 2 * new * (parameters(kv_heads) - V * D) + 4 * L * N * H * pairs


def first_compute_limited(flops, moved):
    """The least n whose FLOPs take at least as long as its bytes."""
    return next(n for n in count(1) if flops(n) * BANDWIDTH >= moved(n) * PEAK)


def attention_bytes(kv_heads):
    return lambda n: 2 * (2 * N * n * H + 2 * kv_heads * n * H)


def latent_cost(queries, keys):
    """FLOPs and bytes: scores over C + R, sums over C; latents, queries and results."""
    flops = HEADS * queries * keys * (2 * (LATENT + ROPE) + 2 * LATENT)
    numbers = keys * (LATENT + ROPE) + HEADS * queries * (LATENT + ROPE) + HEADS * queries * LATENT
    return flops, 2 * numbers


def latent_flops(queries, keys, absorbed):
    once_each = 2 * HEADS * LATENT * (NOPE + VALUE)
    widths = (LATENT + ROPE) + LATENT if absorbed else (NOPE + ROPE) + VALUE
    return once_each * (queries if absorbed else keys) + 2 * HEADS * queries * keys * widths


def prefill_seconds(tokens):
    in_layers = parameters(N) - 2 * V * D
    flops = 2 * tokens * in_layers + 2 * V * D + 2 * L * N * H * tokens * (tokens + 1)
    return {"computing": flops / PEAK, "reading": 2 * parameters(N) / BANDWIDTH}


def hybrid_bytes(tokens, share, every=6, layers=48, window=1024, width=8 * 128):
    total = 0
    for kind, seen in ((0, tokens), (1, min(tokens, window))):
        members = [i for i in range(layers) if (i % every > 0) == kind]
        total += len(members[::share]) * seen * 2 * width * 2
    return total


def owners(kinds, share):
    of_kind = {}
    result = []
    for index, kind in enumerate(kinds):
        members = of_kind.setdefault(kind, [])
        members.append(index)
        result.append(members[(len(members) - 1) // share * share])
    return result


LOG = {
    "A": (0, (0.4, 0.6, 0.8, 1.0, 1.2), True),
    "B": (0.3, (1.0, 1.0, 1.5), True),
    "C": (0.5, (0.9,), True),
    "D": (0.7, (1.4, 1.6), False),
}
FIRST_TOKENS = (0.21, 0.22, 0.22, 0.24, 0.25, 0.27, 0.30, 0.34, 0.41, 1.90)


def of_request(arrival, tokens, finished):
    gaps = [later - earlier for earlier, later in pairwise(tokens)]
    return [
        tokens[0] - arrival,
        sum(gaps) / len(gaps) if gaps else None,
        gaps,
        tokens[-1] - arrival if finished else None,
    ]


def test_sizes_and_bytes(facts):
    check(
        facts,
        {
            "h100-intensity": PEAK / BANDWIDTH,
            "parameters": 13_015_449_600,
            "parameters-gqa": 11_337_728_000,
            "norm-parameters": 414_720,
            "kv-bytes": 819_200,
            "kv-bytes-gqa": 163_840,
            "kv-bytes-sequence": 838_860_800,
            "kv-bytes-7b": 2**30,
            "largest-batch": [64, 341],
            "concatenation-bytes": sum(t + (t + 1) + 1 for t in range(S, 2 * S)) * 819_200,
            "int4-bits": (128 * 4 + 16 + 4) / 128,
            "latent-bytes": 2 * LAYERS * (LATENT + ROPE),
            "latent-smaller": (HEADS * NOPE + HEADS * VALUE) / (LATENT + ROPE),
            "latent-kv-heads": (LATENT + ROPE) / (NOPE + VALUE),
            "cla-bytes": [163_840, 40_960, 10_240, 5_120, 3_584],
            "owners": owners("gwwwww" * 2, 2),
            "hybrid": [[hybrid_bytes(n, share) for share in (1, 2, 3)] for n in (4096, 32_768)],
            "hybrid-global": [hybrid_bytes(n, 1, window=n) for n in (4096, 32_768)],
            "reach": sum(4096 - 1 for _ in range(32)),
        },
    )


def test_intensities_and_thresholds(facts):
    latent = latent_cost(1, S)
    causal = [first_compute_limited(lambda n: 2 * N * H * n * (n + 1), attention_bytes(K))
              for K in (40, 8, 1)]  # fmt: skip
    check(
        facts,
        {
            "intensity-mha": S / (S + 1),
            "intensity-gqa": 40 * S / (8 * S + 40),
            "intensity-mqa": 40 * S / (S + 40),
            "intensity-verify": 5 * S / (5 + S),
            "intensity-latent": latent[0] / latent[1],
            "mlp-intensity-64": 3 * 64 * D * F_ / (2 * 64 * D + 2 * 64 * F_ + 3 * D * F_),
            "mlp-compute-bound": first_compute_limited(
                lambda n: 6 * n * D * F_, lambda n: 2 * (2 * n * D + 2 * n * F_ + 3 * D * F_)
            ),
            "matmul-compute-bound": first_compute_limited(
                lambda n: 2 * n * D * F_, lambda n: 2 * (n * D + D * F_ + n * F_)
            ),
            "prefill-compute-bound": [
                first_compute_limited(lambda n: 4 * N * H * n * n, attention_bytes(K))
                for K in (40, 8, 1)
            ],
            "prefill-causal-compute-bound": causal,
            "latent-verify-compute-bound": first_compute_limited(
                lambda n: latent_cost(2, n)[0], lambda n: latent_cost(2, n)[1]
            ),
            "latent-step": [latent_flops(1, S, False), latent_flops(1, S, True)],
            "absorb-below": next(
                n for n in count(1)
                if latent_flops(n, 32_768, True) >= latent_flops(n, 32_768, False)
            ),
        },
    )  # fmt: skip
    assert (causal[0], facts["mlp-compute-bound"]) == (1180, 312)


def test_flops_of_a_model(facts):
    per_token = 2 * (parameters(N) - V * D)
    check(
        facts,
        {
            "attention-share": 1 - S * per_token / model_flops(S, 0),
            "attention-outweighs": math.ceil(per_token / (4 * L * N * H)),
            "cached-flops": model_flops(S, 0) + sum(model_flops(1, S + i) for i in range(255)),
            "uncached-flops": sum(model_flops(S + i, 0) for i in range(256)),
            "bfloat16": torch.arange(250, 262).bfloat16().tolist(),
        },
    )


def test_time(facts):
    cheaper = ((2, 2), (1, 2), (0.5, 2), (2, 1), (1, 1))
    check(
        facts,
        {
            "gain": [step_bytes(40, b) / step_bytes(8, b) for b in (1, 64, 256, 1024, 4096)],
            "gain-short": step_bytes(40, 1, 128) / step_bytes(8, 1, 128),
            "most-throughput": [BANDWIDTH / (4 * S * L * K * H) for K in (40, 8)],
            "quantised": [
                [step_bytes(40, B) / step_bytes(40, B, S, w, kv) for B in (1, 64)]
                for w, kv in cheaper
            ],
            "quantised-batch": [
                next(B for B in count() if step_bytes(40, B + 1, S, w, kv) > MEMORY)
                for w, kv in cheaper
            ],
            "replicas": [
                {"seconds": step_bytes(40, 64 // n) / BANDWIDTH,
                 "throughput": 64 * BANDWIDTH / step_bytes(40, 64 // n)}
                for n in (1, 2, 4)
            ],
            "prefill": [
                prefill_seconds(n) | {"seconds": max(prefill_seconds(n).values())}
                for n in (128, 512, S, 4096)
            ],
            "prefill-waits-below": next(
                n for n in count(1)
                if prefill_seconds(n)["computing"] >= prefill_seconds(n)["reading"]
            ),
        },
    )  # fmt: skip


def test_decode_steps(facts):
    steps = [(K, B, 1, step) for K, row in zip((40, 8, 1), facts["decode"], strict=True)
             for B, step in zip((1, 64, 256), row, strict=True)]  # fmt: skip
    steps += [(40, 1, T, step) for T, step in zip((1, 5), facts["verify"], strict=True)]
    for kv_heads, batch, new, step in steps:
        moved = step_bytes(kv_heads, batch)
        assert step["bytes"] == moved and step["fits"] == (moved <= MEMORY)
        assert step["flops"] == batch * model_flops(new, S - new, kv_heads)
        assert step["flops"] / PEAK < moved / BANDWIDTH  # all are limited by memory
        assert step["seconds"] == pytest.approx(moved / BANDWIDTH)
        assert step["throughput"] == pytest.approx(batch * new * BANDWIDTH / moved)


def test_what_users_see(facts):
    tokens = sum(len(tokens) for _, tokens, _ in LOG.values())
    rank = {p: math.ceil(Fraction(p * len(FIRST_TOKENS), 100)) for p in (50, 90, 91, 99)}
    check(
        facts,
        {
            "throughput": tokens / (1.6 - 0),
            "goodput": 2 / 1.6,
            "percentiles": [FIRST_TOKENS[k - 1] for k in rank.values()],
            "mean-first-token": sum(FIRST_TOKENS) / 10,
        },
    )
    for got, request in zip(facts["metrics"], LOG.values(), strict=True):
        for value, expected in zip(got, of_request(*request), strict=True):
            assert value == (expected if expected is None else pytest.approx(expected))
    assert sum(t < facts["mean-first-token"] for t in FIRST_TOKENS) == 9
    assert math.ceil(7 / 100 * 100) == 8  # the hint of accounting.metrics


def check(facts, expected):
    for name, value in expected.items():
        assert flat(facts[name]) == pytest.approx(flat(value), rel=1e-12), name
        CHECKED.add(name)


def flat(value):
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value)]
    return [x for item in value for x in flat(item)] if isinstance(value, list) else [value]


CHECKED = {"decode", "verify", "metrics"}  # by tests of their own
# By test_handout_serving:
CHECKED |= {
    "waste", "shared-blocks", "separate-blocks", "useful-share", "useful-share-exponential", "rows",
    "scores", "seats", "chunked", "decodes-alone", "swap", "prefix-hit", "server-blocks",
    "timelines",
}  # fmt: skip
# By test_handout_speculative:
CHECKED |= {
    "verify-ratio", "not-free-from", "checked-gain", "gains", "best-num-draft", "toy-smaller",
    "toy-rounds", "by-hand-distance-of", "eagle-cost", "typical-entropy",
}  # fmt: skip
# By test_handout_compression:
CHECKED |= {
    "compressed", "row-bits", "rounded", "packed", "fp8", "sums-pass", "salient-error",
    "half-toys",
}  # fmt: skip
# By test_handout_kernels:
CHECKED |= {"enough-multiprocessors", "splits-for", "store-bytes", "lab-moved"}


def test_no_fact_is_left_unchecked(facts):
    assert set(facts) == CHECKED
