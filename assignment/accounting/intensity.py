"""Arithmetic intensity: how many FLOPs a piece of work does for each byte that it moves.

A chip can do so many FLOPs in the time in which its memory delivers one byte: 989e12 / 3.35e12 =
295.2 on an H100. Work of a lower intensity waits for memory, work of a higher one for arithmetic
(the roofline: Williams et al., CACM 52(4), 2009). A prompt brings many tokens to the same weights,
and a long one is limited by compute; a decode step brings one token a sequence, and waits for
memory. Whether more sequences help, and by how much, is what you count here.

The rules of counting, for every function of this file:

- Ideal traffic. Each operand is read from main memory once, however often it is used; each result
  is written once. What an algorithm can keep on the chip is no traffic: attention's scores never
  leave it (FlashAttention: Dao et al., 2022, arXiv:2205.14135).
- A product of matrices takes a multiplication and an addition, 2 FLOPs, for each pair of numbers
  that meet. Activation functions, softmax and scaling are left out: next to products, they are
  small.
- All operands and results have bytes_per_number bytes a number: 2 for bfloat16. FLOPs are ints and
  exact, whatever their size (so use `//`, not `/`). Bytes are too if bytes_per_number is an int;
  with 0.5, as of int4, they are the plain product, a float.

Sizes: B batch (sequences), T queries (new tokens of a sequence), S keys (tokens to attend to), D
model width, F MLP width, N query heads, K KV heads, H head dim, C latent width, R width of the
rotary part.
"""

from collections.abc import Callable

from assignment.provided.lab import Chip, Cost


def matmul(rows: int, inner: int, columns: int, bytes_per_number: int | float = 2) -> Cost:
    """A matrix [rows, inner] times a matrix [inner, columns].

    For T tokens through a weight that is D wide and F high, that is matmul(T, D, F). While T is
    small beside D and F, almost all traffic is the weight, and the intensity at 2 bytes is about T.

    matmul(2, 3, 5): 60 FLOPs, 42 bytes read, 20 written.

    Raises:
        ValueError: a size is negative, or bytes_per_number is not above 0. So in all functions
            below.
    """
    _check_sizes(bytes_per_number, rows=rows, inner=inner, columns=columns)
    raise NotImplementedError


def mlp(tokens: int, d_model: int, d_ff: int, bytes_per_number: int | float = 2) -> Cost:
    """The MLP of a Llama (SwiGLU: Shazeer, 2020, arXiv:2002.05202) on `tokens` tokens, B·T of them.

        y = (silu(x W_gate) · (x W_up)) W_down     x [tokens, D], W_gate, W_up [D, F], W_down [F, D]

    Two passes over memory. The first reads x, once for both of its products, and writes silu(gate)
    · up, a single matrix; the second reads that and writes y. Each reads its weights. Gate and up
    themselves never leave the chip; the product of silu(gate) and up is element by element, and
    counts no FLOPs.

    mlp(2, 3, 5): 180 FLOPs, 122 bytes read, 32 written. That is less traffic than three `matmul`s
    have: name what each pass reads and writes, and count that. About 8 lines.
    """
    _check_sizes(bytes_per_number, tokens=tokens, d_model=d_model, d_ff=d_ff)
    raise NotImplementedError


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
    """softmax(q kᵀ) v, from q [B, N, T, H] and k, v [B, K, S, H] to [B, N, T, H]; no projections.

    Every query head multiplies, whichever KV head it reads: for each query of each of the N heads,
    a dot product with each key that it sees, and a weighted sum of as many values. Memory holds K
    heads of keys and values, and a step reads each once: that is all that GQA changes (Ainslie et
    al., 2023, arXiv:2305.13245).

    With `causal`, query t sees keys 0 … S − T + t: the queries are the last T of S tokens, and the
    last one sees every key. If T > S, the first T − S see nothing. Queries down, keys across:

        T = 2, S = 5:  1 1 1 1 0      T = 3, S = 3:  1 0 0      T = 4, S = 2:  0 0
                       1 1 1 1 1                     1 1 0                     0 0
                                                     1 1 1                     1 0
                                                                               1 1

    Only the pairs that see each other (9, 6 and 3 here) cost FLOPs. Bytes are the same, causal or
    not: all of q, k and v is read, and all of the result is written.

    attention(2, 3, 5, 4, 2, 6): 2880 FLOPs, 768 bytes read, 288 written; if causal, 2304 FLOPs.

    Raises:
        ValueError: num_kv_heads is not above 0, or num_heads is not a multiple of it.

    Hint: how many keys do the T queries see in all? A formula, not a loop; and what does T become
    in it, where T > S? About 10 lines.
    """
    _check_sizes(
        bytes_per_number,
        batch=batch,
        num_queries=num_queries,
        num_keys=num_keys,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
    )
    if num_kv_heads == 0 or num_heads % num_kv_heads:
        raise ValueError(
            f"num_heads is {num_heads}, expected a multiple of num_kv_heads, which is "
            f"{num_kv_heads}"
        )
    raise NotImplementedError


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
    """The core of absorbed latent attention (MLA: DeepSeek-V2, 2024, arXiv:2405.04434, §2.1).

    A token's cache is one latent vector of C numbers and one rotated key of R numbers, for all N
    heads together. The matrices that would make keys and values of it are absorbed into the query
    and output projections (not counted here). What is left is attention with a single KV head, in
    which

        a key is the latent and the rotated key,      C + R numbers, as is a query of each head;
        a value is the latent itself,                 C numbers, as is the result of each head.

    So the latent is key and value in one: it is read once. FLOPs, as in `attention`, are those of
    the two products, for each head and each pair that sees each other; `causal` is the same, too.

    latent_attention(2, 3, 5, 4, 6, 2): 3360 FLOPs, 544 bytes read, 288 written.

    At 128 heads, C = 512 and R = 64, a decode step on 1024 tokens does 196 FLOPs for a byte, two
    thirds of what an H100 can; one of multi-head attention does 1. About 9 lines.
    """
    _check_sizes(
        bytes_per_number,
        batch=batch,
        num_queries=num_queries,
        num_keys=num_keys,
        num_heads=num_heads,
        latent_dim=latent_dim,
        rope_dim=rope_dim,
    )
    raise NotImplementedError


def intensity(cost: Cost) -> float:
    """FLOPs for each byte moved, read or written.

    Raises:
        ValueError: no byte is moved, so that the quotient means nothing.
    """
    raise NotImplementedError


def limited_by(cost: Cost, chip: Chip) -> str:
    """What the work waits for on this chip: "compute" or "memory".

    It is compute if the work's intensity is at least the chip's own, the FLOPs that the chip can do
    in the time of moving one byte; also where the two are equal, as then neither waits.
    """
    raise NotImplementedError


def smallest_compute_limited(
    cost_of: Callable[[int], Cost], chip: Chip, largest: int = 1_048_576
) -> int | None:
    """The least n from 1 to `largest` for which cost_of(n) is limited by compute; None if none is.

    With `lambda n: mlp(n, d_model, d_ff)`, that is the number of tokens from which on the weights'
    way from memory no longer counts; with `lambda n: attention(1, n, n, …)`, the shortest prompt
    whose attention keeps the chip busy.

    The intensity of cost_of(n) does not fall as n rises: once limited by compute, always. So a
    search by halving finds n with about log₂(largest) calls of cost_of, where trying one n after
    the other takes up to a million. At most 2 log₂(largest) + 4 calls are allowed, each with an int
    from 1 to `largest`.

    Raises:
        ValueError: largest is below 1.

    About 10 lines.
    """
    if largest < 1:
        raise ValueError(f"largest is {largest}, expected at least 1")
    raise NotImplementedError


def _check_sizes(bytes_per_number: int | float, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 0:
            raise ValueError(f"{name} is {size}, expected 0 or more")
    if not bytes_per_number > 0:
        raise ValueError(f"bytes_per_number is {bytes_per_number}, expected more than 0")
