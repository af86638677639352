"""Second computations of the review's answers, step by step, and wrong ideas about them.

Each is a function of a question's numbers; what they return is an answer as a student may write it.
"""

from __future__ import annotations

import math
from collections import Counter

import torch

from assignment.provided.data.events import Event
from assignment.provided.lab.chips import Chip
from assignment.provided.models import AttentionLayer, LlamaConfig

BF16 = 2


def requests_of(n) -> list[Event]:
    """The log of question 1, in seconds."""
    step = (n.last - n.first) / n.more
    events = []
    for request in range(n.streams):
        events.append(Event(n.arrival / 1000, request, "arrival"))
        times = [n.first + step * i for i in range(n.more + 1)]
        events += [Event(time / 1000, request, "token") for time in times]
        events.append(Event(times[-1] / 1000, request, "end"))
    return events


def chip_of(n) -> Chip:
    return Chip("a chip", n.flops_per_second, n.bandwidth, 80e9)


def config(num_layers, num_heads, num_kv_heads, head_dim, layers=()) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=8, num_layers=num_layers, d_model=num_heads * head_dim, num_heads=num_heads,
        num_kv_heads=num_kv_heads, head_dim=head_dim, d_ff=8, attention=tuple(layers),
    )  # fmt: skip


def windows_config(n, share: int) -> LlamaConfig:
    """Question 5's layers, those of a kind one behind the other; each `share` have one cache."""
    kinds = [None] * n.num_global + [n.window] * n.num_local
    layers = []
    for at, window in enumerate(kinds):
        within = at if window is None else at - n.num_global
        owner = at - within % share
        layers.append(AttentionLayer(window=window) if owner == at else AttentionLayer(reads=owner))
    return config(n.num_layers, n.num_kv_heads, n.num_kv_heads, 128, layers)


def absmax_codes(values: list[float]) -> tuple[float, list[int], torch.Tensor]:
    """127 / absmax, codes and errors, in float64."""
    x = torch.tensor(values, dtype=torch.float64)
    scale = 127 / x.abs().max()
    codes = (x * scale).round()
    return scale.item(), [int(code) for code in codes], (x - codes / scale).abs()


def law_of_a_draft(n) -> tuple[list[float], float, list[float]]:
    """By enumeration in 1 / 10: the residual, the acceptance, and the law of what comes out."""
    p, q = ([tenth / 10 for tenth in n.draft], [tenth / 10 for tenth in n.target])
    missing = [max(b - a, 0) for a, b in zip(p, q, strict=True)]
    residual = [m / math.fsum(missing) for m in missing]
    out, accepted = [0.0] * 3, 0.0
    for drawn in range(3):
        accept = min(1, q[drawn] / p[drawn])
        accepted += p[drawn] * accept
        out[drawn] += p[drawn] * accept
        for token in range(3):
            out[token] += p[drawn] * (1 - accept) * residual[token]
    return residual, accepted, out


def tokens_of_a_round(n) -> float:
    """Over how many drafts are accepted: that many tokens and one more."""
    chances = [n.acceptance**k * (1 - n.acceptance) for k in range(n.num_draft)]
    chances.append(n.acceptance**n.num_draft)
    return math.fsum(chance * (k + 1) for k, chance in enumerate(chances))


def blocks_in_use(n, shares: bool) -> int:
    """A block table a sample; a write into a block that others hold copies it."""
    new_block = iter(range(10**6)).__next__
    prompt = [new_block() for _ in range(-(-n.prompt // n.block))]
    tables = [list(prompt) for _ in range(n.samples)]
    if not shares:
        tables = [[new_block() for _ in prompt] for _ in range(n.samples)]
    holders = Counter(block for table in tables for block in table)
    for position in range(n.prompt, n.prompt + n.new):
        for table in tables:
            at = position // n.block
            if at == len(table):
                table.append(new_block())
                holders[table[at]] = 1
            elif holders[table[at]] > 1:
                holders[table[at]] -= 1
                table[at] = new_block()
                holders[table[at]] = 1
    return len({block for table in tables for block in table})


def useful_share(n) -> float:
    steps = [[step < length for length in n.lengths] for step in range(max(n.lengths))]
    return sum(map(sum, steps)) / sum(map(len, steps))


def _mlp_crossing(n) -> float:
    """The n, no whole number, at which the MLP's FLOPs and bytes take equally long."""
    area, width = n.d_model * n.d_ff, n.d_model + n.d_ff
    chip = n.flops_per_second / n.bandwidth
    return 6 * area * chip / (6 * area - 4 * width * chip)


def _of_heads(kv_heads: float, n) -> float:
    return n.num_heads * n.length / (kv_heads * n.length + n.num_heads)


def _a_token(n, kv_heads: float) -> float:
    return 4 * n.head_dim * n.num_layers * kv_heads


def _a_slot(n) -> int:
    return 4 * 128 * n.num_kv_heads


def _mixed(n, window: int) -> int:
    return _a_slot(n) * (n.length * n.num_global + window * n.num_local)


def _cut_off(values: list[float]) -> list[int]:
    largest = max(map(abs, values))
    return [math.trunc(value * 127 / largest) for value in values]


WRONG = [  # question, sub-answer, the idea, what it comes to
    ("q1", "ttft", "from the clock's zero", lambda n: n.first / 1000),
    ("q1", "tpot", "over all tokens", lambda n: (n.last - n.first) / 1000 / (n.more + 1)),
    ("q1", "tpot", "from the arrival", lambda n: (n.last - n.arrival) / 1000 / n.more),
    ("q1", "decode", "with the first tokens",
     lambda n: n.streams * (n.more + 1) / (n.last - n.first) * 1000),
    ("q1", "decode", "of one stream", lambda n: n.more / (n.last - n.first) * 1000),
    ("q1", "throughput", "without the first tokens",
     lambda n: n.streams * n.more / (n.last - n.arrival) * 1000),
    ("q1", "throughput", "from the first token",
     lambda n: n.streams * (n.more + 1) / (n.last - n.first) * 1000),
    ("q2", "chip", "with sparsity", lambda n: 2 * n.flops_per_second / n.bandwidth),
    ("q2", "mlp", "weights only", lambda n: n.tokens),
    ("q2", "mlp_from", "weights only", lambda n: math.ceil(n.flops_per_second / n.bandwidth)),
    ("q2", "mlp_from", "the nearest", lambda n: round(_mlp_crossing(n))),
    ("q2", "attention_from", "S", lambda n: math.ceil(n.flops_per_second / n.bandwidth)),
    ("q2", "attention_from", "causal", lambda n: math.ceil(4 * n.flops_per_second / n.bandwidth)),
    ("q2", "attention_from", "the nearest",
     lambda n: round(2 * n.flops_per_second / n.bandwidth)),
    ("q3", "some", "by group size", lambda n: _of_heads(n.num_heads / n.num_kv_heads, n)),
    ("q3", "some", "its limit", lambda n: n.num_heads / n.num_kv_heads),
    ("q3", "one", "its limit", lambda n: n.num_heads),
    ("q3", "all", "prefill", lambda n: n.length / 2),
    ("q3", "batch", "it doubles", lambda n: 2),
    ("q3", "limit", "K", lambda n: n.num_kv_heads),
    ("q4", "full", "KV halved", lambda n: _a_token(n, n.num_heads) / 2),
    ("q4", "grouped", "by group size", lambda n: _a_token(n, n.num_heads / n.num_kv_heads)),
    ("q4", "grouped", "KV halved", lambda n: _a_token(n, n.num_kv_heads) / 2),
    ("q4", "latent", "twice", lambda n: 4 * (n.latent_dim + n.rope_dim) * n.latent_layers),
    ("q4", "latent", "a rotated key per head",
     lambda n: 2 * (n.latent_dim + n.latent_heads * n.rope_dim) * n.latent_layers),
    ("q4", "latent", "no rotated key", lambda n: 2 * n.latent_dim * n.latent_layers),
    ("q4", "ratio", "no rotated key", lambda n: 256 * n.latent_heads / n.latent_dim),
    ("q4", "ratio", "keys alone",
     lambda n: 128 * n.latent_heads / (n.latent_dim + n.rope_dim)),
    ("q4", "heads", "keys alone", lambda n: (n.latent_dim + n.rope_dim) / 128),
    ("q5", "global", "KV halved", lambda n: _a_slot(n) * n.length * n.num_layers / 2),
    ("q5", "mixed", "windows are free", lambda n: _a_slot(n) * n.length * n.num_global),
    ("q5", "mixed", "windows everywhere", lambda n: _a_slot(n) * n.window * n.num_layers),
    ("q5", "mixed", "a window without the token itself", lambda n: _mixed(n, n.window - 1)),
    ("q5", "mixed", "a window and the token itself", lambda n: _mixed(n, n.window + 1)),
    ("q5", "ratio", "windows are free", lambda n: n.num_layers / n.num_global),
    ("q5", "shared", "windows alone share",
     lambda n: _a_slot(n) * (n.length * n.num_global + n.window * n.num_local / 2)),
    ("q5", "reads", "it does", lambda n: True),
    ("q6", "digits", "as shown", lambda n: [digit for _, digit in n.pairs]),
    ("q6", "fills", "distance", lambda n: "distance"),
    ("q6", "attention", "KV halved", lambda n: _a_slot(n) * n.length * n.num_layers / 2),
    ("q6", "hybrid", "beside so many",
     lambda n: _a_slot(n) * n.length * n.num_layers / (n.every - 1)),
    ("q7", "scale", "128 codes", lambda n: 128 / max(map(abs, n.values))),
    ("q7", "scale", "the step", lambda n: max(map(abs, n.values)) / 127),
    ("q7", "codes", "cut off", lambda n: _cut_off(n.values)),
    ("q7", "outlier_codes", "cut off", lambda n: _cut_off(n.with_outlier)),
    ("q7", "outlier_codes", "as before", lambda n: absmax_codes(n.values)[1]),
    ("q7", "outlier_error", "as before", lambda n: absmax_codes(n.values)[2].max().item()),
    ("q7", "fp8", "the other E4M3", lambda n: 240),
    ("q7", "fp8", "E5M2", lambda n: 57344),
    ("q7", "threshold", "a code", lambda n: 127),
    ("q7", "apart", "weights", lambda n: "weights"),
    ("q7", "awq", "the step stays", lambda n: 1 / n.scale),
    ("q7", "awq", "the wrong way", lambda n: n.growth * n.scale),
    ("q7", "kept", "some", lambda n: 1),
    ("q8", "accept", "p for q", lambda n: min(1, n.draft[0] / n.target[0])),
    ("q8", "accept", "q alone", lambda n: n.target[0] / 10),
    ("q8", "residual", "not normalised",
     lambda n: [max(q - p, 0) / 10 for p, q in zip(n.draft, n.target, strict=True)]),
    ("q8", "residual", "the target", lambda n: [q / 10 for q in n.target]),
    ("q8", "acceptance", "of A", lambda n: n.target[0] / n.draft[0]),
    ("q8", "output", "the draft's", lambda n: [p / 10 for p in n.draft]),
    ("q8", "tokens", "no bonus",
     lambda n: (1 - n.acceptance**n.num_draft) / (1 - n.acceptance)),
    ("q8", "tokens", "linear", lambda n: 1 + n.num_draft * n.acceptance),
    ("q8", "speedup", "free drafts", tokens_of_a_round),
    ("q8", "speedup", "one draft", lambda n: tokens_of_a_round(n) / (1 + n.cost)),
    ("q8", "speedup", "a draft too many",
     lambda n: tokens_of_a_round(n) / (1 + (n.num_draft + 1) * n.cost)),
    ("q8", "most", "no bonus", lambda n: n.num_draft),
    ("q9", "shared", "the original stays", lambda n: blocks_in_use(n, shares=True) + 1),
    ("q9", "shared", "no copy", lambda n: blocks_in_use(n, shares=True) - n.samples + 1),
    ("q9", "shared", "a fresh block a sample",
     lambda n: -(-n.prompt // n.block) + n.samples * -(-n.new // n.block)),
    ("q9", "shared", "the partial block is not copied",
     lambda n: n.prompt // n.block + n.samples * -(-n.new // n.block)),
    ("q9", "apart", "rounded down", lambda n: n.samples * ((n.prompt + n.new - 1) // n.block)),
    ("q9", "wasted", "a whole block", lambda n: n.block),
    ("q9", "useful", "the rest", lambda n: 1 - useful_share(n)),
    ("q10", "rows", "padded", lambda n: 3 * max(n.lengths)),
    ("q10", "padded_rows", "flattened", lambda n: sum(n.lengths)),
    ("q10", "scores", "one square", lambda n: sum(n.lengths) ** 2),
    ("q10", "scores", "causal", lambda n: sum(s * (s + 1) // 2 for s in n.lengths)),
    ("q10", "padded_scores", "one request", lambda n: max(n.lengths) ** 2),
    ("q10", "split", "the MLP", lambda n: "mlp"),
]  # fmt: skip
