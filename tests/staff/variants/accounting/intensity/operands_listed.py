"""Operands listed by shape, the mask as a difference of triangles, the search by `bisect`."""

from bisect import bisect_left
from collections.abc import Callable
from math import prod

from assignment.provided.lab import Chip, Cost


def _cost(flops: int, read: list, written: list, bytes_per_number: int | float) -> Cost:
    if bytes_per_number <= 0 or any(size < 0 for shape in read + written for size in shape):
        raise ValueError(f"shapes {read} and {written} of {bytes_per_number} bytes a number")
    elements = [sum(prod(shape) for shape in shapes) for shapes in (read, written)]
    return Cost(flops, *(bytes_per_number * count for count in elements))


def matmul(rows: int, inner: int, columns: int, bytes_per_number: int | float = 2) -> Cost:
    operands = [(rows, inner), (inner, columns)]
    return _cost(2 * rows * columns * inner, operands, [(rows, columns)], bytes_per_number)


def mlp(tokens: int, d_model: int, d_ff: int, bytes_per_number: int | float = 2) -> Cost:
    weights = [(d_model, d_ff), (d_model, d_ff), (d_ff, d_model)]
    read = [(tokens, d_model), *weights, (tokens, d_ff)]
    written = [(tokens, d_ff), (tokens, d_model)]
    return _cost(6 * tokens * d_model * d_ff, read, written, bytes_per_number)


def attention(
    batch: int,
    num_queries: int,
    num_keys: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    causal: bool = False,
    bytes_per_number: int | float = 2,
) -> Cost:
    if num_kv_heads <= 0 or num_heads // num_kv_heads * num_kv_heads != num_heads:
        raise ValueError(f"num_heads {num_heads} is no multiple of {num_kv_heads}")
    query = (batch, num_heads, num_queries, head_dim)
    kv = (batch, num_kv_heads, num_keys, head_dim)
    flops = 4 * batch * num_heads * head_dim * _pairs(num_queries, num_keys, causal)
    return _cost(flops, [query, kv, kv], [query], bytes_per_number)


def latent_attention(
    batch: int,
    num_queries: int,
    num_keys: int,
    num_heads: int,
    latent_dim: int,
    rope_dim: int,
    causal: bool = False,
    bytes_per_number: int | float = 2,
) -> Cost:
    width = latent_dim + rope_dim
    pairs = _pairs(num_queries, num_keys, causal) * batch * num_heads
    read = [(batch, num_keys, width), (batch, num_queries, num_heads, width)]
    written = [(batch, num_queries, num_heads, latent_dim)]
    return _cost(2 * pairs * (width + latent_dim), read, written, bytes_per_number)


def _pairs(num_queries: int, num_keys: int, causal: bool) -> int:
    if not causal:
        return num_queries * num_keys
    return _triangle(num_keys) - _triangle(max(0, num_keys - num_queries))


def _triangle(n: int) -> int:
    return n * (n + 1) // 2


def intensity(cost: Cost) -> float:
    if cost.bytes == 0:
        raise ValueError(f"no bytes in {cost}")
    return cost.flops / cost.bytes


def limited_by(cost: Cost, chip: Chip) -> str:
    return ["memory", "compute"][intensity(cost) * chip.bandwidth >= chip.flops_per_second]


def smallest_compute_limited(
    cost_of: Callable[[int], Cost], chip: Chip, largest: int = 1_048_576
) -> int | None:
    if largest <= 0:
        raise ValueError(f"largest is {largest}")
    sizes = range(1, largest + 1)
    index = bisect_left(sizes, True, key=lambda n: limited_by(cost_of(n), chip) == "compute")
    return sizes[index] if index < largest else None
