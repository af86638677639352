"""Each layer first as a row of four numbers; then sums and closed forms over the rows."""

import math
from typing import NamedTuple

from assignment.provided.lab import Chip, Cost
from assignment.provided.models import LlamaConfig

Number = int | float


class Row(NamedTuple):
    """Weights of a layer; its window, or inf; widths of what a token's pair costs and reads."""

    weights: int
    window: Number
    prefill_width: int
    decode_width: int
    read: int


def _rows(c: LlamaConfig) -> list[Row]:
    wide, narrow = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
    base = 3 * c.d_ff * c.d_model + 2 * wide * c.d_model
    rows: list[Row] = []
    for layer in c.attention_layers:
        if layer.kind == "shared":
            rows.append(rows[layer.reads]._replace(weights=base))
        elif layer.kind == "latent":
            latent, rope = layer.latent_dim, layer.rope_dim
            weights = base + c.d_model * (latent + rope * (c.num_heads + 1)) + 2 * latent * wide
            widths = 2 * c.head_dim + rope, 2 * latent + rope
            rows.append(Row(weights, math.inf, *widths, latent + rope))
        else:
            weights = base + 2 * narrow * c.d_model
            window = math.inf if layer.window is None else layer.window
            rows.append(Row(weights, window, 2 * c.head_dim, 2 * c.head_dim, 2 * narrow))
    return rows


def _pairs(before: int, length: int, window: Number) -> Number:
    """Tokens before … length − 1, each with those it sees: a trapezium and a rectangle."""
    bend = int(min(max(window, before), length))
    trapezium = (bend - before) * (before + 1 + bend) / 2
    return trapezium + ((length - bend) * window if bend < length else 0)


def _weight_bytes(c: LlamaConfig, size: Number) -> Number:
    if size <= 0:
        raise ValueError(f"{size} bytes a weight")
    tables = c.vocab_size * c.d_model * (1 + (not c.tie_embeddings))
    return size * (tables + sum(row.weights for row in _rows(c)))


def decode_cost(
    config: LlamaConfig,
    batch: int,
    length: int,
    num_new: int = 1,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> Cost:
    if batch < 1:
        raise ValueError(f"batch: {batch}")
    if num_new < 1 or length < num_new:
        raise ValueError(f"num_new: {num_new}, length: {length}")
    if kv_bytes_per_number <= 0:
        raise ValueError(f"{kv_bytes_per_number} bytes in the cache")
    rows, before = _rows(config), length - num_new
    products = sum(row.weights for row in rows) + config.vocab_size * config.d_model
    scores = sum(_pairs(before, length, row.window) * row.decode_width for row in rows)
    seen = sum((length - max(0, before + 1 - row.window)) * row.read for row in rows)
    return Cost(
        flops=2 * batch * (products * num_new + scores * config.num_heads),
        bytes_read=_weight_bytes(config, weight_bytes_per_number)
        + seen * batch * kv_bytes_per_number,
    )


def prefill_cost(
    config: LlamaConfig, batch: int, length: int, weight_bytes_per_number: Number = 2
) -> Cost:
    if batch < 1 or length < 1:
        raise ValueError(f"batch: {batch}, length: {length}")
    rows = _rows(config)
    flops = 2.0 * config.vocab_size * config.d_model
    for row in rows:
        flops += 2.0 * row.weights * length
        flops += 2.0 * row.prefill_width * config.num_heads * _pairs(0, length, row.window)
    return Cost(batch * flops, _weight_bytes(config, weight_bytes_per_number))


def seconds(cost: Cost, chip: Chip) -> float:
    return float(
        max(
            (cost.bytes_read + cost.bytes_written) / chip.bandwidth,
            cost.flops / chip.flops_per_second,
        )
    )


def decode_latency(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> float:
    sizes = {
        "weight_bytes_per_number": weight_bytes_per_number,
        "kv_bytes_per_number": kv_bytes_per_number,
    }
    return seconds(decode_cost(config, batch, length, **sizes), chip)


def decode_throughput(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> float:
    sizes = weight_bytes_per_number, kv_bytes_per_number
    return batch * decode_latency(config, chip, batch, length, *sizes) ** -1


def time_to_first_token(
    config: LlamaConfig,
    chip: Chip,
    length: int,
    batch: int = 1,
    weight_bytes_per_number: Number = 2,
) -> float:
    return seconds(prefill_cost(config, batch, length, weight_bytes_per_number), chip)


def replicated(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    replicas: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> tuple[float, float]:
    if replicas < 1:
        raise ValueError(f"replicas: {replicas}")
    sizes = weight_bytes_per_number, kv_bytes_per_number
    fullest = math.ceil(batch / replicas)
    chips = batch - replicas * (fullest - 1)  # that many are as full
    latency = decode_latency(config, chip, fullest, length, *sizes)
    total = chips * fullest / latency
    if fullest > 1:
        less = decode_throughput(config, chip, fullest - 1, length, *sizes)
        total += (replicas - chips) * less
    return latency, total
