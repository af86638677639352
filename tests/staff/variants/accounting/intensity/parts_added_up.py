"""Costs added and taken away: the MLP from three products, attention query by query."""

from collections.abc import Callable

from assignment.provided.lab import Chip, Cost


def matmul(rows: int, inner: int, columns: int, bytes_per_number: int | float = 2) -> Cost:
    _check(rows, inner, columns, bytes_per_number=bytes_per_number)
    size = bytes_per_number
    left, right = rows * inner * size, inner * columns * size
    return Cost(rows * columns * (inner + inner), left + right, rows * columns * size)


def mlp(tokens: int, d_model: int, d_ff: int, bytes_per_number: int | float = 2) -> Cost:
    _check(tokens, d_model, d_ff, bytes_per_number=bytes_per_number)
    x, hidden = tokens * d_model * bytes_per_number, tokens * d_ff * bytes_per_number
    gate_and_up = matmul(tokens, d_model, 2 * d_ff, bytes_per_number)  # side by side: x once
    fused = Cost(0, 0, -hidden)  # of the two results, their product is all that is written
    down = matmul(tokens, d_ff, d_model, bytes_per_number)
    total = gate_and_up + fused + down
    assert total.bytes_written == hidden + x
    return total


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
    sizes = (batch, num_queries, num_keys, num_heads, num_kv_heads, head_dim)
    _check(*sizes, bytes_per_number=bytes_per_number)
    if num_kv_heads < 1 or num_heads % num_kv_heads != 0:
        raise ValueError(f"{num_heads} query heads on {num_kv_heads} KV heads")
    total = Cost()
    for query in range(num_queries):
        seen = max(0, num_keys - num_queries + query + 1) if causal else num_keys
        scores = 2 * head_dim * seen
        read = written = num_heads * head_dim * bytes_per_number
        total += Cost(2 * num_heads * scores, read, written)
    total += Cost(bytes_read=num_kv_heads * num_keys * 2 * head_dim * bytes_per_number)
    return Cost(batch * total.flops, batch * total.bytes_read, batch * total.bytes_written)


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
    sizes = (batch, num_queries, num_keys, num_heads, latent_dim, rope_dim)
    _check(*sizes, bytes_per_number=bytes_per_number)
    total = Cost()
    for query in range(num_queries):
        seen = max(0, num_keys - num_queries + query + 1) if causal else num_keys
        total += Cost(
            flops=num_heads * seen * (4 * latent_dim + 2 * rope_dim),
            bytes_read=num_heads * (latent_dim + rope_dim) * bytes_per_number,
            bytes_written=num_heads * latent_dim * bytes_per_number,
        )
    total += Cost(bytes_read=num_keys * (latent_dim + rope_dim) * bytes_per_number)
    return Cost(batch * total.flops, batch * total.bytes_read, batch * total.bytes_written)


def intensity(cost: Cost) -> float:
    try:
        return cost.flops / (cost.bytes_read + cost.bytes_written)
    except ZeroDivisionError:
        raise ValueError("no bytes") from None


def limited_by(cost: Cost, chip: Chip) -> str:
    arithmetic, memory = cost.flops / chip.flops_per_second, cost.bytes / chip.bandwidth
    return "memory" if arithmetic < memory else "compute"


def smallest_compute_limited(
    cost_of: Callable[[int], Cost], chip: Chip, largest: int = 1_048_576
) -> int | None:
    """Doubles until compute limits, then halves the last interval."""
    if largest < 1:
        raise ValueError("largest must be at least 1")

    def enough(n: int) -> bool:
        return limited_by(cost_of(n), chip) == "compute"

    too_small, n = 0, 1
    while not enough(n):
        if n == largest:
            return None
        too_small, n = n, min(2 * n, largest)
    while n - too_small > 1:
        middle = (too_small + n) // 2
        too_small, n = (too_small, middle) if enough(middle) else (middle, n)
    return n


def _check(*sizes: int, bytes_per_number: int | float) -> None:
    if min(sizes) < 0 or bytes_per_number <= 0:
        raise ValueError(f"sizes {sizes}, {bytes_per_number} bytes a number")
