"""One new token at a time, one layer at a time, with the products written out as they happen."""

import functools
from collections import Counter

from assignment.provided.lab import Chip, Cost
from assignment.provided.models import LlamaConfig


def _product(inputs, outputs):
    return Cost(2 * inputs * outputs)


def _seen(config, index, position):
    """First and last + 1 of the positions that a token sees in a layer."""
    layer = config.attention_layers[index]
    while layer.reads is not None:
        layer = config.attention_layers[layer.reads]
    first = 0 if layer.window is None else max(0, position + 1 - layer.window)
    return first, position + 1


def _layer_products(config, index):
    d, n, k, h = config.d_model, config.num_heads, config.num_kv_heads, config.head_dim
    layer = config.attention_layers[index]
    yield from [_product(d, config.d_ff), _product(d, config.d_ff), _product(config.d_ff, d)]
    yield from [_product(d, n * h), _product(n * h, d)]
    if layer.kind in ("full", "local"):
        yield from [_product(d, k * h)] * 2
    if layer.kind == "latent":
        c, r = layer.latent_dim, layer.rope_dim
        yield from [_product(d, n * r), _product(d, c + r)]
        yield from [_product(h, c)] * (2 * n)  # into the latent's space before, out of it after


@functools.cache
def _layer_flops(config, index):
    return sum(product.flops for product in _layer_products(config, index))


def _attend(config, index, position, absorbed):
    layer = config.attention_layers[index]
    first, end = _seen(config, index, position)
    score = value = config.head_dim
    if layer.kind == "latent":
        if absorbed:
            score, value = layer.latent_dim, layer.latent_dim
        score += layer.rope_dim
    pair = 2 * score + 2 * value
    return pair * (end - first) * config.num_heads


def _token(config, position, absorbed, head):
    flops = _product(config.d_model, config.vocab_size).flops if head else 0
    for index in range(config.num_layers):
        flops += _attend(config, index, position, absorbed) + _layer_flops(config, index)
    return Cost(flops)


def _weights(config):
    count = sum(_layer_flops(config, index) for index in range(config.num_layers)) // 2
    tables = {"embedding", "embedding" if config.tie_embeddings else "head"}
    return count + len(tables) * config.vocab_size * config.d_model


def _sizes(*bytes_per_number):
    if min(bytes_per_number) <= 0:
        raise ValueError("bytes per number")


def decode_cost(
    config: LlamaConfig,
    batch: int,
    length: int,
    num_new: int = 1,
    weight_bytes_per_number: int | float = 2,
    kv_bytes_per_number: int | float = 2,
) -> Cost:
    if batch < 1 or not 1 <= num_new <= length:
        raise ValueError("batch, length or num_new")
    _sizes(weight_bytes_per_number, kv_bytes_per_number)
    new = range(length - num_new, length)
    one = functools.reduce(Cost.__add__, (_token(config, at, True, True) for at in new))
    for index, layer in enumerate(config.attention_layers):
        first, end = _seen(config, index, new[0])[0], length
        width = 2 * config.num_kv_heads * config.head_dim
        if layer.kind == "latent":
            width = layer.latent_dim + layer.rope_dim
        one += Cost(bytes_read=(end - first) * width * kv_bytes_per_number)
    weights = Cost(bytes_read=_weights(config) * weight_bytes_per_number)
    return weights + Cost(one.flops * batch, one.bytes_read * batch)


def prefill_cost(
    config: LlamaConfig, batch: int, length: int, weight_bytes_per_number: int | float = 2
) -> Cost:
    if batch < 1 or length < 1:
        raise ValueError("batch or length")
    _sizes(weight_bytes_per_number)
    kept = [_token(config, at, False, False) for at in range(length - 1)]
    kept.append(_token(config, length - 1, False, True))
    flops = sum(cost.flops for cost in kept)
    return Cost(batch * flops, _weights(config) * weight_bytes_per_number)


def seconds(cost: Cost, chip: Chip) -> float:
    ridge = chip.flops_per_second / chip.bandwidth
    if cost.flops >= ridge * cost.bytes:
        return cost.flops / chip.flops_per_second
    return cost.bytes / chip.bandwidth


def decode_latency(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    weight_bytes_per_number: int | float = 2,
    kv_bytes_per_number: int | float = 2,
) -> float:
    return batch / decode_throughput(
        config, chip, batch, length, weight_bytes_per_number, kv_bytes_per_number
    )


def decode_throughput(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    weight_bytes_per_number: int | float = 2,
    kv_bytes_per_number: int | float = 2,
) -> float:
    sizes = (weight_bytes_per_number, kv_bytes_per_number)
    cost = decode_cost(config, batch, length, 1, *sizes)
    return batch / seconds(cost, chip)


def time_to_first_token(
    config: LlamaConfig,
    chip: Chip,
    length: int,
    batch: int = 1,
    weight_bytes_per_number: int | float = 2,
) -> float:
    return seconds(prefill_cost(config, batch, length, weight_bytes_per_number), chip)


def replicated(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    replicas: int,
    weight_bytes_per_number: int | float = 2,
    kv_bytes_per_number: int | float = 2,
) -> tuple[float, float]:
    if replicas < 1 or batch < 1:
        raise ValueError("replicas or batch")
    sizes = (weight_bytes_per_number, kv_bytes_per_number)
    loads = Counter((batch + i) // replicas for i in range(replicas))
    throughput = sum(
        chips * decode_throughput(config, chip, load, length, *sizes)
        for load, chips in loads.items()
        if load
    )
    return decode_latency(config, chip, max(loads), length, *sizes), throughput
