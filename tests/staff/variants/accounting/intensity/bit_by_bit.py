"""The search settles the answer's bits from the highest; bytes in bits, the mask as a mean."""

from collections.abc import Callable
from fractions import Fraction

from assignment.provided.lab import Chip, Cost


def _bytes(elements: int, bytes_per_number: int | float) -> int | float:
    if elements < 0 or bytes_per_number <= 0:
        raise ValueError("sizes and bytes must be positive")
    if isinstance(bytes_per_number, int):
        return elements * bytes_per_number
    return float(elements * Fraction(bytes_per_number))


def _not_negative(**sizes: int) -> None:
    wrong = {name: size for name, size in sizes.items() if size < 0}
    if wrong:
        raise ValueError(f"negative: {wrong}")


def matmul(rows: int, inner: int, columns: int, bytes_per_number: int | float = 2) -> Cost:
    _not_negative(rows=rows, inner=inner, columns=columns)
    return Cost(
        rows * inner * columns << 1,
        _bytes(inner * (rows + columns), bytes_per_number),
        _bytes(rows * columns, bytes_per_number),
    )


def mlp(tokens: int, d_model: int, d_ff: int, bytes_per_number: int | float = 2) -> Cost:
    _not_negative(tokens=tokens, d_model=d_model, d_ff=d_ff)
    activations = tokens * (d_model + d_ff)  # x and the product read, the product and y written
    return Cost(
        3 * matmul(tokens, d_model, d_ff).flops,
        _bytes(activations + 3 * d_model * d_ff, bytes_per_number),
        _bytes(activations, bytes_per_number),
    )


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
    _not_negative(b=batch, t=num_queries, s=num_keys, n=num_heads, k=num_kv_heads, h=head_dim)
    if num_kv_heads == 0 or num_heads % num_kv_heads:
        raise ValueError(f"{num_heads} heads, {num_kv_heads} KV heads")
    shared = num_heads // num_kv_heads
    # Per KV head: a single head of shared · T queries, on S keys.
    read = batch * num_kv_heads * head_dim * (shared * num_queries + 2 * num_keys)
    return Cost(
        batch * num_heads * 4 * head_dim * _seen_in_all(num_queries, num_keys, causal),
        _bytes(read, bytes_per_number),
        _bytes(batch * num_heads * head_dim * num_queries, bytes_per_number),
    )


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
    _not_negative(b=batch, t=num_queries, s=num_keys, n=num_heads, c=latent_dim, r=rope_dim)
    seen = _seen_in_all(num_queries, num_keys, causal)
    nope, rope = 4 * latent_dim, 2 * rope_dim
    read = (num_keys + num_heads * num_queries) * (latent_dim + rope_dim)
    return Cost(
        batch * num_heads * seen * (nope + rope),
        _bytes(batch * read, bytes_per_number),
        _bytes(batch * num_heads * num_queries * latent_dim, bytes_per_number),
    )


def _seen_in_all(num_queries: int, num_keys: int, causal: bool) -> int:
    """The first and the last query see so many; in between it rises by one a query."""
    last = num_keys
    if not causal:
        return num_queries * last
    queries = min(num_queries, num_keys)
    first = num_keys - queries + 1
    return int(queries * Fraction(first + last, 2))


def intensity(cost: Cost) -> float:
    if cost.bytes <= 0:
        raise ValueError("the cost has no bytes")
    return float(Fraction(cost.flops) / Fraction(cost.bytes))


def limited_by(cost: Cost, chip: Chip) -> str:
    enough = cost.flops * chip.bandwidth >= cost.bytes * chip.flops_per_second
    return "compute" if enough else "memory"


def smallest_compute_limited(
    cost_of: Callable[[int], Cost], chip: Chip, largest: int = 1_048_576
) -> int | None:
    if largest < 1:
        raise ValueError("largest is below 1")
    limited_by_memory = 0  # the largest n known to be
    for bit in reversed(range(largest.bit_length())):
        n = limited_by_memory + (1 << bit)
        if n <= largest and limited_by(cost_of(n), chip) == "memory":
            limited_by_memory = n
    return limited_by_memory + 1 if limited_by_memory < largest else None
