"""Writes every shape down and multiplies; the cache, too, is a list of shapes."""

import math
from collections.abc import Iterator, Sequence

from assignment.provided.lab import Chip
from assignment.provided.models import LlamaConfig

Number = int | float
Shape = tuple[int, ...]


def shapes(config: LlamaConfig) -> Iterator[Shape]:
    v, d, f = config.vocab_size, config.d_model, config.d_ff
    n, k, h = config.num_heads, config.num_kv_heads, config.head_dim
    yield v, d
    if not config.tie_embeddings:
        yield d, v
    for layer in config.attention_layers:
        yield 3, d, f
        yield 2, d, n, h
        match layer.kind:
            case "full" | "local":
                yield 2, d, k, h
            case "latent":
                yield n + 1, d, layer.rope_dim
                yield d, layer.latent_dim
                yield 2, n, layer.latent_dim, h


def cached(config: LlamaConfig, length: int) -> Iterator[Shape]:
    for layer in config.attention_layers:
        match layer.kind:
            case "full":
                yield 2, config.num_kv_heads, length, config.head_dim
            case "local":
                yield 2, config.num_kv_heads, min(length, layer.window), config.head_dim
            case "latent":
                yield length, layer.latent_dim
                yield length, layer.rope_dim


def parameters(config: LlamaConfig) -> int:
    return sum(map(math.prod, shapes(config)))


def weight_bytes(config: LlamaConfig, bytes_per_number: Number = 2) -> Number:
    _positive(bytes_per_number)
    return bytes_per_number * parameters(config)


def kv_bytes_per_token(config: LlamaConfig, bytes_per_number: Number = 2) -> Number:
    return kv_bytes(config, (1,), bytes_per_number)


def kv_bytes(config: LlamaConfig, lengths: Sequence[int], bytes_per_number: Number = 2) -> Number:
    _positive(bytes_per_number)
    total = 0.0
    for length in lengths:
        if length < 0:
            raise ValueError(f"a length of {length}")
        total += bytes_per_number * sum(map(math.prod, cached(config, length)))
    return total


def memory_bytes(
    config: LlamaConfig,
    lengths: Sequence[int],
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> Number:
    weights = weight_bytes(config, weight_bytes_per_number)
    return weights + kv_bytes(config, lengths, kv_bytes_per_number)


def largest_batch(
    config: LlamaConfig,
    chip: Chip,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> int:
    if length <= 0:
        raise ValueError(f"a length of {length}")
    room = chip.memory - weight_bytes(config, weight_bytes_per_number)
    if room <= 0:
        return 0
    return math.floor(room / kv_bytes(config, [length], kv_bytes_per_number))


def _positive(bytes_per_number: Number) -> None:
    if bytes_per_number <= 0:
        raise ValueError(f"{bytes_per_number} bytes a number")
