"""The key: each question's answers for one student, as closed forms of its numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, prod

from assignment.provided.review import numbers
from assignment.provided.review.questions import drawn
from tests.accounting.review.expected import Count, Expected, Number, Numbers, Word
from tests.accounting.review.quantities import (
    COUNT,
    FACTOR,
    INTENSITY,
    NUMBER,
    PER_ROUND,
    RATE,
    SHARE,
    SIZE,
    TIME,
    TIME_PER_TOKEN,
)

BF16 = 2
K_AND_V = 2
WIDTH = 128  # of the KV heads that the texts speak of
OF_ERRORS = 0.03  # they are differences of near numbers: a rounded scale shows in them
OF_FLOATS = 1e-9  # an exact size may be written in GB
Answers = dict[str, Expected]


def key(student: str, question: str) -> Answers:
    """The right answers of one question, by the names of its sub-answers."""
    return KEYS[question](drawn(student, question))


def _streams(n: numbers.Streams) -> Answers:
    decoding, all_of_it = (n.last - n.first) / 1000, (n.last - n.arrival) / 1000
    return {
        "ttft": Number((n.first - n.arrival) / 1000, TIME),
        "tpot": Number(decoding / n.more, TIME_PER_TOKEN),
        "decode": Number(n.streams * n.more / decoding, RATE),
        "throughput": Number(n.streams * (n.more + 1) / all_of_it, RATE),
    }


def _bounds(n: numbers.Bounds) -> Answers:
    chip = Fraction(n.flops_per_second) / Fraction(n.bandwidth)
    ceiling = Fraction(3 * n.d_model * n.d_ff, 2 * (n.d_model + n.d_ff))  # of the MLP's intensity
    threshold = chip / (1 - chip / ceiling)
    limit = "compute" if n.tokens >= threshold else "memory"
    return {
        "chip": Number(float(chip), INTENSITY),
        "mlp": Number(float(n.tokens / (1 + n.tokens / ceiling)), INTENSITY),
        "mlp_limit": Word(limit, ("compute", "memory")),
        "mlp_from": Count(ceil(threshold), COUNT),
        "attention_from": Count(ceil(2 * chip), COUNT),
    }


def _heads(n: numbers.Heads) -> Answers:
    def of(kv_heads: int) -> float:
        return 1 / (kv_heads / n.num_heads + 1 / n.length)

    return {
        "all": Number(of(n.num_heads), INTENSITY),
        "some": Number(of(n.num_kv_heads), INTENSITY),
        "one": Number(of(1), INTENSITY),
        "batch": Number(1, FACTOR),
        "limit": Number(n.num_heads / n.num_kv_heads, INTENSITY),
    }


def _bytes(n: numbers.KVBytes) -> Answers:
    a_head = K_AND_V * BF16 * n.head_dim * n.num_layers
    stored = n.latent_dim + n.rope_dim
    return {
        "full": Number(a_head * n.num_heads, SIZE),
        "grouped": Number(a_head * n.num_kv_heads, SIZE),
        "latent": Number(BF16 * stored * n.latent_layers, SIZE),
        "ratio": Number(K_AND_V * n.latent_heads * WIDTH / stored, FACTOR),
        "heads": Number(stored / (K_AND_V * WIDTH), COUNT),
    }


def _windows(n: numbers.Windows) -> Answers:
    a_slot = K_AND_V * BF16 * WIDTH * n.num_kv_heads
    everything = a_slot * n.length * n.num_layers
    mixed = a_slot * (n.length * n.num_global + n.window * n.num_local)
    return {
        "global": Number(everything, SIZE),
        "mixed": Count(mixed, SIZE, OF_FLOATS),
        "ratio": Number(everything / mixed, FACTOR),
        "shared": Number(mixed / 2, SIZE),
        "reads": Word("no", ("yes", "no")),
    }


def _recall(n: numbers.Recall) -> Answers:
    stored = dict(n.pairs)
    a_layer = K_AND_V * BF16 * WIDTH * n.num_kv_heads * n.length
    return {
        "digits": Numbers([stored[letter] for letter in n.asked], NUMBER, 0, digits=True),
        "task": Word("associative recall"),
        "fills": Word("pairs", ("pairs", "distance")),
        "attention": Number(a_layer * n.num_layers, SIZE),
        "hybrid": Number(a_layer * n.num_layers // n.every, SIZE),
    }


def _rounding(n: numbers.Rounding) -> Answers:
    before, codes, error = _absmax(n.values, n.place)
    _, outlier_codes, outlier_error = _absmax(n.with_outlier, n.place)
    return {
        "scale": Number(before, NUMBER),
        "codes": Numbers(codes, NUMBER, 0),
        "error": Number(error, NUMBER, OF_ERRORS),
        "outlier_codes": Numbers(outlier_codes, NUMBER, 0),
        "outlier_error": Number(outlier_error, NUMBER, OF_ERRORS),
        "fp8": Count(448, NUMBER),
        "threshold": Number(6, NUMBER),
        "apart": Word("activations", ("weights", "activations")),
        "awq": Number(n.growth / n.scale, SHARE),
        "kept": Count(0, COUNT),
    }


def _absmax(values: list[float], place: int) -> tuple[float, list[int], float]:
    """127 / absmax, the codes, and the largest error of the values elsewhere than at `place`."""
    exact = [Fraction(round(value * 10), 10) for value in values]
    step = max(map(abs, exact)) / 127
    codes = [round(value / step) for value in exact]
    errors = [abs(v - c * step) for v, c in zip(exact, codes, strict=True)]
    return float(1 / step), codes, float(max(errors[:place] + errors[place + 1 :]))


def _drafts(n: numbers.Drafting) -> Answers:
    missing = [max(q - p, 0) for p, q in zip(n.draft, n.target, strict=True)]
    tokens = sum(n.acceptance**i for i in range(n.num_draft + 1))
    return {
        "accept": Number(n.target[0] / n.draft[0], SHARE),
        "residual": Numbers([m / sum(missing) for m in missing], SHARE),
        "acceptance": Number(1 - sum(missing) / 10, SHARE),
        "output": Numbers([q / 10 for q in n.target], SHARE),
        "tokens": Number(tokens, PER_ROUND),
        "speedup": Number(tokens / (1 + n.num_draft * n.cost), FACTOR),
        "most": Count(n.num_draft + 1, PER_ROUND),
    }


def _blocks(n: numbers.Blocks) -> Answers:
    whole = n.prompt // n.block
    each = ceil((n.prompt + n.new) / n.block)
    return {
        "shared": Count(whole + n.samples * (each - whole), COUNT),
        "apart": Count(n.samples * each, COUNT),
        "wasted": Count(n.block - 1, COUNT),
        "useful": Number(sum(n.lengths) / (len(n.lengths) * max(n.lengths)), SHARE),
    }


def _rows(n: numbers.Rows) -> Answers:
    count, longest = len(n.lengths), max(n.lengths)
    return {
        "rows": Count(sum(n.lengths), COUNT),
        "padded_rows": Count(prod((count, longest)), COUNT),
        "scores": Count(sum(length**2 for length in n.lengths), COUNT),
        "padded_scores": Count(prod((count, longest, longest)), COUNT),
        "split": Word("attention"),
    }


KEYS: dict[str, Callable[..., Answers]] = {
    "q1": _streams, "q2": _bounds, "q3": _heads, "q4": _bytes, "q5": _windows,
    "q6": _recall, "q7": _rounding, "q8": _drafts, "q9": _blocks, "q10": _rows,
}  # fmt: skip
