"""What work costs, counted one by one: a FLOP for each step of a loop, a byte for each element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable

from assignment.provided.lab import Chip, Cost

Shape = tuple[int, ...]
EVEN = Chip("even", flops_per_second=2.0**48, bandwidth=2.0**40, memory=2.0**34)  # 256 a byte


def cost(flops: int, read: Iterable[Shape], written: Iterable[Shape], bytes_per_number) -> Cost:
    """The FLOPs, and the elements of whole tensors of the given shapes, each moved once."""
    elements_read, elements_written = (sum(map(math.prod, shapes)) for shapes in (read, written))
    return Cost(flops, elements_read * bytes_per_number, elements_written * bytes_per_number)


def product_flops(*sizes: int) -> int:
    """A multiplication and an addition for every index into all the axes, one after the other."""
    return sum(2 for _ in itertools.product(*map(range, sizes)))


def matmul(rows, inner, columns, bytes_per_number=2) -> Cost:
    flops = product_flops(rows, inner, columns)
    return cost(flops, [(rows, inner), (inner, columns)], [(rows, columns)], bytes_per_number)


def mlp(tokens, d_model, d_ff, bytes_per_number=2) -> Cost:
    gate, up = (product_flops(tokens, d_model, d_ff) for _ in ("gate", "up"))
    down = product_flops(tokens, d_ff, d_model)
    x, product, y = (tokens, d_model), (tokens, d_ff), (tokens, d_model)
    first = cost(gate + up, [x, (d_model, d_ff), (d_model, d_ff)], [product], bytes_per_number)
    return first + cost(down, [product, (d_ff, d_model)], [y], bytes_per_number)


def visible_pairs(num_queries: int, num_keys: int, causal: bool) -> int:
    """Entries of the mask: query t is token number S − T + t, and sees the keys up to its own."""
    first = num_keys - num_queries
    return sum(
        not causal or key <= first + query
        for query in range(num_queries)
        for key in range(num_keys)
    )


def attention(
    batch,
    num_queries,
    num_keys,
    num_heads,
    num_kv_heads,
    head_dim,
    causal=False,
    bytes_per_number=2,
) -> Cost:
    pairs = visible_pairs(num_queries, num_keys, causal)
    scores = product_flops(batch, num_heads, pairs, head_dim)
    sums = product_flops(batch, num_heads, pairs, head_dim)
    q = out = (batch, num_heads, num_queries, head_dim)
    k = v = (batch, num_kv_heads, num_keys, head_dim)
    return cost(scores + sums, [q, k, v], [out], bytes_per_number)


def latent_attention(
    batch, num_queries, num_keys, num_heads, latent_dim, rope_dim, causal=False, bytes_per_number=2
) -> Cost:
    pairs = visible_pairs(num_queries, num_keys, causal)
    scores = product_flops(batch, num_heads, pairs, latent_dim)
    rotary = product_flops(batch, num_heads, pairs, rope_dim)
    sums = product_flops(batch, num_heads, pairs, latent_dim)
    rows = (batch, num_heads, num_queries)
    read = [(*rows, latent_dim), (*rows, rope_dim)]
    read += [(batch, num_keys, latent_dim), (batch, num_keys, rope_dim)]
    return cost(scores + rotary + sums, read, [(*rows, latent_dim)], bytes_per_number)


def rising(threshold: int) -> Callable[[int], Cost]:
    """Work whose intensity reaches 256 FLOPs a byte at n = threshold: on EVEN, exactly the ridge.

    It stays there, as work does that is saturated, and is little less below.
    """
    return lambda n: Cost(256 * 2**40 - max(0, threshold - n), 3 * 2**38, 2**38)


class Counted:
    """A cost_of that ends the search when it is called too often, or with what it should not be."""

    def __init__(self, cost_of: Callable[[int], Cost], largest: int):
        self._cost_of, self._largest = cost_of, largest
        self._calls, self._allowed = 0, int(2 * math.log2(largest) + 4)

    def __call__(self, n: int) -> Cost:
        assert type(n) is int, f"cost_of was called with {n!r}, expected an int"
        assert 1 <= n <= self._largest, f"cost_of was called with {n}, largest is {self._largest}"
        self._calls += 1
        assert self._calls <= self._allowed, (
            f"expected at most {self._allowed} calls of cost_of, got one more"
        )
        return self._cost_of(n)
