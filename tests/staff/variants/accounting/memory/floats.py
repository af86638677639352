"""Everything in float64 from the start, as with a pocket calculator; only counts are integers."""

from collections.abc import Sequence

from assignment.provided.lab import Chip
from assignment.provided.models import LlamaConfig


def parameters(config: LlamaConfig) -> int:
    d, q = float(config.d_model), float(config.num_heads * config.head_dim)
    kv = float(config.num_kv_heads * config.head_dim)
    kinds = [layer.kind for layer in config.attention_layers]
    total = (1.0 if config.tie_embeddings else 2.0) * config.vocab_size * d
    total += len(kinds) * (3.0 * d * config.d_ff + 2.0 * d * q)
    total += (kinds.count("full") + kinds.count("local")) * 2.0 * d * kv
    for layer in config.attention_layers:
        if layer.latent_dim is not None:
            total += d * config.num_heads * layer.rope_dim
            total += d * (layer.latent_dim + layer.rope_dim)
            total += 2.0 * layer.latent_dim * q
    return int(total)


def weight_bytes(config: LlamaConfig, bytes_per_number: int | float = 2) -> float:
    if not bytes_per_number > 0:
        raise ValueError("bytes_per_number")
    return float(parameters(config) * bytes_per_number)


def kv_bytes_per_token(config: LlamaConfig, bytes_per_number: int | float = 2) -> float:
    if not bytes_per_number > 0:
        raise ValueError("bytes_per_number")
    total = 0.0
    for layer in config.attention_layers:
        if layer.reads is not None:
            continue
        if layer.latent_dim is not None:
            total += bytes_per_number * layer.latent_dim + bytes_per_number * layer.rope_dim
        else:
            total += bytes_per_number * config.num_kv_heads * config.head_dim * 2
    return total


def kv_bytes(
    config: LlamaConfig, lengths: Sequence[int], bytes_per_number: int | float = 2
) -> float:
    if len(lengths) and min(lengths) < 0:
        raise ValueError("lengths")
    per_token = kv_bytes_per_token(config, bytes_per_number)
    key_and_value = 2 * config.num_kv_heads * config.head_dim * bytes_per_number
    total = per_token * float(sum(lengths))
    for layer in config.attention_layers:  # take back what slid out of a window
        if layer.window is not None:
            total -= sum(max(0, n - layer.window) for n in lengths) * key_and_value
    return total


def memory_bytes(
    config: LlamaConfig,
    lengths: Sequence[int],
    weight_bytes_per_number: int | float = 2,
    kv_bytes_per_number: int | float = 2,
) -> float:
    total = float(weight_bytes(config, weight_bytes_per_number))
    for length in lengths:
        total += kv_bytes(config, [length], kv_bytes_per_number)
    return total


def largest_batch(
    config: LlamaConfig,
    chip: Chip,
    length: int,
    weight_bytes_per_number: int | float = 2,
    kv_bytes_per_number: int | float = 2,
) -> int:
    if length < 1:
        raise ValueError("length")
    room = chip.memory - memory_bytes(config, [], weight_bytes_per_number)
    one = kv_bytes(config, [length], kv_bytes_per_number)
    return int(divmod(room, one)[0]) if room >= one else 0
