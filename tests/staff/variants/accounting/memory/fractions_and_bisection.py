"""Exact fractions throughout; the largest batch is searched for with memory_bytes itself."""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from assignment.provided.lab import Chip
from assignment.provided.models import AttentionLayer, LlamaConfig

Number = int | float


def parameters(config: LlamaConfig) -> int:
    total = config.vocab_size * config.d_model * (2 - config.tie_embeddings)
    for layer, count in Counter(config.attention_layers).items():  # equal layers weigh the same
        total += count * (_attention(config, layer) + 3 * config.d_ff * config.d_model)
    return total


def _attention(c: LlamaConfig, layer: AttentionLayer) -> int:
    by_kind = {
        "full": lambda: 2 * c.d_model * c.head_dim * (c.num_heads + c.num_kv_heads),
        "shared": lambda: 2 * c.d_model * c.head_dim * c.num_heads,
        "latent": lambda: (
            c.d_model * c.num_heads * (c.head_dim + layer.rope_dim)
            + c.d_model * (layer.latent_dim + layer.rope_dim)
            + layer.latent_dim * c.num_heads * (c.head_dim + c.head_dim)
            + c.num_heads * c.head_dim * c.d_model
        ),
    }
    by_kind["local"] = by_kind["full"]
    return by_kind[layer.kind]()


def weight_bytes(config: LlamaConfig, bytes_per_number: Number = 2) -> Number:
    return _plain(parameters(config) * _checked(bytes_per_number))


def kv_bytes_per_token(config: LlamaConfig, bytes_per_number: Number = 2) -> Number:
    return _plain(_numbers(config, 1) * _checked(bytes_per_number))


def kv_bytes(config: LlamaConfig, lengths: Sequence[int], bytes_per_number: Number = 2) -> Number:
    return _plain(_kv(config, lengths, bytes_per_number))


def memory_bytes(
    config: LlamaConfig,
    lengths: Sequence[int],
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> Number:
    weights = parameters(config) * _checked(weight_bytes_per_number)
    return _plain(weights + _kv(config, lengths, kv_bytes_per_number))


def largest_batch(
    config: LlamaConfig,
    chip: Chip,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> int:
    if not length >= 1:
        raise ValueError("length: expected a token at least")
    weights = parameters(config) * _checked(weight_bytes_per_number)
    one = _numbers(config, length) * _checked(kv_bytes_per_number)

    def fits(batch: int) -> bool:
        return weights + batch * one <= Fraction(chip.memory)

    if not fits(1):
        return 0
    low, high = 1, 2
    while fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _kv(config: LlamaConfig, lengths: Sequence[int], bytes_per_number: Number) -> Fraction:
    size = _checked(bytes_per_number)
    if any(length < 0 for length in lengths):
        raise ValueError(f"lengths: {lengths}")
    counted = Counter(lengths)
    return size * sum(times * _numbers(config, length) for length, times in counted.items())


def _numbers(config: LlamaConfig, length: int) -> int:
    total = 0
    for layer in config.attention_layers:
        if layer.kind == "latent":
            total += length * (layer.latent_dim + layer.rope_dim)
        elif layer.kind == "local" and length > layer.window:
            total += layer.window * config.num_kv_heads * 2 * config.head_dim
        elif layer.kind in ("full", "local"):
            total += length * config.num_kv_heads * 2 * config.head_dim
    return total


def _checked(bytes_per_number: Number) -> Fraction:
    if bytes_per_number <= 0:
        raise ValueError(f"bytes_per_number: {bytes_per_number}")
    return Fraction(bytes_per_number)


def _plain(value: Fraction) -> Number:
    return int(value) if value.denominator == 1 else float(value)
