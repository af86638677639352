"""Models to count, and what they weigh and keep: matrix by matrix, token by token."""

from __future__ import annotations

import math
from numbers import Real

from assignment.provided.models import AttentionLayer, LlamaConfig
from tests.grading.closeness import Mismatch
from tests.grading.shapes import HEAD_RATIOS

__tracebackhide__ = True  # pytest's word: a traceback ends in the test, not here
GROUPED = [ratio for ratio in HEAD_RATIOS if ratio[0] != ratio[1]]
FORMATS = (0.5, 1, 2, 4, 133 / 256)
"""Bytes of a number. The last: 4 bits, and in each group of 128 a scale of 16 and a zero of 4."""


def llama_2_13b(num_kv_heads: int = 40, tied: bool = False) -> LlamaConfig:
    """Llama 2 13B, arXiv:2307.09288, and what it would be with fewer KV heads."""
    sizes = {"vocab_size": 32_000, "num_layers": 40, "d_model": 5120, "d_ff": 13_824}
    heads = {"num_heads": 40, "num_kv_heads": num_kv_heads, "head_dim": 128}
    return LlamaConfig(**sizes, **heads, tie_embeddings=tied)


def draw_config(draw, layers: list[AttentionLayer] | None = None, **fixed) -> LlamaConfig:
    """Small sizes, no two alike by rule, N·H seldom D; by default layers of all kinds, mixed."""
    if layers is None:
        layers = draw_layers(draw)
    heads, kv_heads = GROUPED[one(draw, 0, len(GROUPED) - 1)]
    sizes = {
        "num_layers": len(layers),
        "vocab_size": one(draw, 50, 200),
        "d_model": one(draw, 20, 60),
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": 2 * one(draw, 2, 9),
        "d_ff": one(draw, 61, 150),
        "tie_embeddings": bool(one(draw, 0, 1)),
    }
    return LlamaConfig(attention=tuple(layers), **(sizes | fixed))


def draw_layers(draw) -> list[AttentionLayer]:
    """Two of each kind that keeps something, in any order; then shared ones that read a full and a
    local one, and one more that keeps something. No two windows or latents are equal."""
    windows = [one(draw, 2, 8), one(draw, 9, 15), one(draw, 16, 20)]
    latents = [(one(draw, 3, 7), 2 * one(draw, 4, 6)), (one(draw, 13, 20), 2)]
    owners = [AttentionLayer()] * 2
    owners += [AttentionLayer(window=window) for window in windows[:2]]
    owners += [AttentionLayer(latent_dim=latent, rope_dim=rope) for latent, rope in latents]
    owners = [owners[i] for i in draw.permutation(len(owners)).tolist()]
    places = {kind: [i for i, x in enumerate(owners) if x.kind == kind] for kind in KEEP_KV}
    shared = [AttentionLayer(reads=places[kind][one(draw, 0, 1)]) for kind in KEEP_KV]
    return [*owners, *shared, AttentionLayer(window=windows[2])]


KEEP_KV = ("full", "local")
KINDS = {
    "full": [AttentionLayer()] * 3,
    "local": [AttentionLayer(window=window) for window in (5, 9, 1)],
    "latent": [AttentionLayer(latent_dim=11, rope_dim=6), AttentionLayer(latent_dim=3, rope_dim=8)],
    "shared": [AttentionLayer(), *[AttentionLayer(reads=0)] * 3],
    "shared window": [AttentionLayer(window=4), AttentionLayer(), AttentionLayer(reads=0)],
}
"""Layers of one kind each, so that a failure says which kind it is."""


def one(draw, low: int, high: int) -> int:
    """An integer from low to high, both included."""
    return int(draw.integers(low, high + 1, 1))


def describe(config: LlamaConfig) -> str:
    """A config in one line, in the letters of the course."""
    sizes = {
        "V": config.vocab_size,
        "L": config.num_layers,
        "D": config.d_model,
        "N": config.num_heads,
        "K": config.num_kv_heads,
        "H": config.head_dim,
        "F": config.d_ff,
    }
    letters = ", ".join(f"{letter} {size}" for letter, size in sizes.items())
    layers = [_name(layer) for layer in config.attention_layers]
    said = ", ".join(layers) if len(set(layers)) > 1 else f"all {layers[0]}"
    return f"{letters}, {'tied' if config.tie_embeddings else 'untied'}; layers: {said}"


def _name(layer: AttentionLayer) -> str:
    return {
        "full": "full",
        "local": f"window {layer.window}",
        "latent": f"latent {layer.latent_dim} + {layer.rope_dim}",
        "shared": f"reads {layer.reads}",
    }[layer.kind]


def assert_number(
    got: object, expected: float, what: str, config: LlamaConfig | None = None
) -> None:
    """`got` is the number `expected`, up to the rounding of a few float64 operations.

    config: the model that it is about, for the message.
    """
    note = "" if config is None else describe(config)
    right = f"{expected:,}"
    if not isinstance(got, Real) or isinstance(got, bool):
        came = type(got).__name__
    elif not math.isclose(got, expected, rel_tol=1e-12):
        came = f"{got:,}"
    else:
        return
    line = f"expected {right}, got {came}" + (f"; {note}" if note else "")
    raise Mismatch(line, expected=right, got=came, what=what, note=note)


def matrices(config: LlamaConfig) -> list[tuple[str, int, int]]:
    """(name, outputs, inputs) of every matrix, those of single heads one by one."""
    width, heads = config.d_model, range(config.num_heads)
    found = [("embedding", config.vocab_size, width)]
    if not config.tie_embeddings:
        found.append(("head", config.vocab_size, width))
    for layer in config.attention_layers:
        found += [("gate", config.d_ff, width), ("up", config.d_ff, width)]
        found.append(("down", width, config.d_ff))
        found += [("query", config.head_dim, width) for _ in heads]
        found += [("out", width, config.head_dim) for _ in heads]
        if layer.kind == "latent":
            found += [("rope query", layer.rope_dim, width) for _ in heads]
            found += [("latent", layer.latent_dim, width), ("rope key", layer.rope_dim, width)]
            found += [("key up", config.head_dim, layer.latent_dim) for _ in heads]
            found += [("value up", config.head_dim, layer.latent_dim) for _ in heads]
        elif layer.kind != "shared":
            for _ in range(config.num_kv_heads):
                found += [("key", config.head_dim, width), ("value", config.head_dim, width)]
    return found


def parameters(config: LlamaConfig) -> int:
    return sum(outputs * inputs for _, outputs, inputs in matrices(config))


def vectors(config: LlamaConfig, layer: AttentionLayer) -> list[int]:
    """The widths of the vectors that a layer makes of one token to keep them."""
    if layer.kind == "shared":
        return []
    if layer.kind == "latent":
        return [layer.latent_dim, layer.rope_dim]
    return [config.head_dim for _ in range(config.num_kv_heads) for _ in ("key", "value")]


def kept_numbers(config: LlamaConfig, lengths: list[int]) -> int:
    """A batch of sequences grows token by token; a window drops its oldest when it is over-full."""
    total = 0
    for length in lengths:
        for layer in config.attention_layers:
            kept: list[list[int]] = []
            for _ in range(length):
                kept.append(vectors(config, layer))
                if layer.window is not None and len(kept) > layer.window:
                    kept.pop(0)
            total += sum(map(sum, kept))
    return total
