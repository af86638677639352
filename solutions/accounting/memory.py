"""What must fit: the weights, once, and for every sequence what its attention layers keep.

The weights cost the same for one sequence as for a hundred. Keys and values do not: each sequence
brings its own, and they grow with every token. So the room beside the weights, divided by what one
sequence keeps, is the largest batch that a chip can serve. And since a decode step reads nearly all
of both, the same sum returns in `latency` as the time of a step.

Letters: V vocabulary, L layers, D model width, F MLP width, N query heads, K KV heads, H head dim,
C latent dim and R rope dim of latent attention. All stand in `LlamaConfig`, and the kind of each
layer in `config.attention_layers`: read both in `assignment/provided/models/blocks.py` first.

Every result is a plain product of such numbers: a byte is a byte, and 80 GB are 80·10⁹ of them.

Latent attention: DeepSeek-AI, "DeepSeek-V2", 2024, arXiv:2405.04434. Layers that share keys and
values: Brandon et al., 2024, arXiv:2405.12981. A window in each layer: Jiang et al., "Mistral 7B",
2023, arXiv:2310.06825.
"""

from collections.abc import Sequence

from assignment.provided.lab import Chip
from assignment.provided.models import AttentionLayer, LlamaConfig

Number = int | float
"""Bytes: of a number (2 in 16 bits, 1 in eight, 0.5 in four), or of many."""


def parameters(config: LlamaConfig) -> int:
    """The weights of a Llama: every entry of every matrix.

    The embedding has V·D, and the head as many again; if `tie_embeddings`, they are one matrix. A
    layer has 3·D·F in its MLP (gate, up, down), and in its attention, by kind:

        full, local   q: D × N·H         k, v: D × K·H each                        out: N·H × D
        shared        q: D × N·H         none: it reads another layer's            out: N·H × D
        latent        q: D × N·(H + R)   down: D × C, rope key: D × R,             out: N·H × D
                                         up to keys, up to values: C × N·H each

    The norms' D·(2L + 1) weights are left out: 0.003% of Llama 2 13B. That model (V 32,000, L 40,
    D 5120, F 13,824, N = K = 40, H 128, untied) has 13,015,449,600 by this count.

    Hint: one small function for the attention of one layer, by `layer.kind`. About 18 lines.
    """
    # BEGIN SOLUTION
    table = config.vocab_size * config.d_model
    tables = table if config.tie_embeddings else 2 * table
    mlps = config.num_layers * 3 * config.d_model * config.d_ff
    return tables + mlps + sum(_projections(config, layer) for layer in config.attention_layers)
    # END SOLUTION


# BEGIN SOLUTION
def _projections(config: LlamaConfig, layer: AttentionLayer) -> int:
    """The weights of one layer's attention."""
    width, query_width = config.d_model, config.num_heads * config.head_dim
    queries_and_out = 2 * width * query_width
    if layer.kind == "shared":
        return queries_and_out
    if layer.kind == "latent":
        rope_queries = width * config.num_heads * layer.rope_dim
        down = width * (layer.latent_dim + layer.rope_dim)
        up = 2 * layer.latent_dim * query_width
        return queries_and_out + rope_queries + down + up
    return queries_and_out + 2 * width * config.num_kv_heads * config.head_dim


# END SOLUTION


def weight_bytes(config: LlamaConfig, bytes_per_number: Number = 2) -> Number:
    """Bytes of all weights, at `bytes_per_number` for each.

    Raises:
        ValueError: bytes_per_number is not above 0.
    """
    _check_bytes("bytes_per_number", bytes_per_number)
    # BEGIN SOLUTION
    return parameters(config) * bytes_per_number
    # END SOLUTION


def kv_bytes_per_token(config: LlamaConfig, bytes_per_number: Number = 2) -> Number:
    """Bytes that one more token adds to one sequence, while no window is full.

    Each layer keeps, of each token:

        full, local   a key and a value of H numbers for each KV head
        latent        one latent of C numbers and one rope key of R, for all heads together
        shared        nothing

    Llama 2 13B in 16 bits: 819,200. DeepSeek-V2, 60 latent layers of 512 + 64: 69,120.

    Raises:
        ValueError: bytes_per_number is not above 0.

    Hint: as in `parameters`, one small function for one layer. About 8 lines.
    """
    _check_bytes("bytes_per_number", bytes_per_number)
    # BEGIN SOLUTION
    return sum(_kept(config, layer) for layer in config.attention_layers) * bytes_per_number
    # END SOLUTION


# BEGIN SOLUTION
def _kept(config: LlamaConfig, layer: AttentionLayer) -> int:
    """Numbers that a layer keeps of one token."""
    if layer.kind == "shared":
        return 0
    if layer.kind == "latent":
        return layer.latent_dim + layer.rope_dim
    return 2 * config.num_kv_heads * config.head_dim


# END SOLUTION


def kv_bytes(config: LlamaConfig, lengths: Sequence[int], bytes_per_number: Number = 2) -> Number:
    """Bytes that the layers keep of a batch of sequences of lengths[b] tokens, b = 0 … B − 1.

    Each sequence counts by its own length: none is padded to the longest. A local layer keeps the
    last `window` tokens of a sequence, or all while it has no more than that.

    Args:
        config: the model.
        lengths: tokens of each sequence, 0 or more; not changed.
        bytes_per_number: of the keys, values and latents.

    Raises:
        ValueError: a length is below 0, or bytes_per_number is not above 0.

    About 6 lines.
    """
    _check_bytes("bytes_per_number", bytes_per_number)
    for row, length in enumerate(lengths):
        if length < 0:
            raise ValueError(f"lengths[{row}] is {length}, expected 0 or more")
    # BEGIN SOLUTION
    numbers = sum(
        _kept(config, layer) * min(length, layer.window or length)
        for length in lengths
        for layer in config.attention_layers
    )
    return numbers * bytes_per_number
    # END SOLUTION


def memory_bytes(
    config: LlamaConfig,
    lengths: Sequence[int],
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> Number:
    """Bytes of the weights and of all that is kept of a batch: see `weight_bytes`, `kv_bytes`.

    The two may be stored in different formats: quantising one does not shrink the other.
    """
    # BEGIN SOLUTION
    kept = kv_bytes(config, lengths, kv_bytes_per_number)
    return weight_bytes(config, weight_bytes_per_number) + kept
    # END SOLUTION


def largest_batch(
    config: LlamaConfig,
    chip: Chip,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> int:
    """How many sequences of `length` tokens fit into `chip.memory` bytes beside the weights.

    A batch that fills the memory to the last byte fits. 0 if not even one sequence does, or the
    weights alone are too large. Llama 2 13B at 1024 tokens on an H100: 64.

    Raises:
        ValueError: length is below 1, or what `memory_bytes` refuses.

    Hint: `//` rounds down and stays exact, however large the numbers. About 3 lines.
    """
    if length < 1:
        raise ValueError(f"length is {length}, expected at least 1")
    # BEGIN SOLUTION
    room = chip.memory - weight_bytes(config, weight_bytes_per_number)
    return max(0, int(room // kv_bytes(config, [length], kv_bytes_per_number)))
    # END SOLUTION


def _check_bytes(name: str, value: Number) -> None:
    if not value > 0:
        raise ValueError(f"{name} is {value}, expected more than 0")
