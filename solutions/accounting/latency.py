"""How fast a chip can decode, at best: the arithmetic or the reading, whichever takes longer.

A decode step reads every weight once, for the whole batch, and of each sequence what its attention
layers look at. It multiplies little with all that: mostly, the chip waits for its memory. Hence two
numbers that pull against each other. A larger batch shares the weights, so all sequences together
get more tokens a second; and it reads more keys and values, so each of them waits longer for its
own.

Letters: B sequences, S tokens attended to, T new tokens in this pass; V vocabulary, D model width,
N query heads, K KV heads, H head dim, C latent dim, R rope dim. Costs are ideal: every operand is
read once, and neither activations nor scores leave the chip. Nothing written is counted: a token's
keys and values are small beside what is read for it.

The counts of `memory` return here. Write them down again in small functions, or import your own
(`from .memory import …`; a mistake there then costs here, too).

Pope et al., "Efficiently Scaling Transformer Inference", 2022, arXiv:2211.05102. Latent attention,
absorbed: DeepSeek-AI, "DeepSeek-V2", 2024, arXiv:2405.04434.
"""

from assignment.provided.lab import Chip, Cost
from assignment.provided.models import AttentionLayer, LlamaConfig

Number = int | float
"""Bytes of a number: 2 in 16 bits, 1 in eight, 0.5 in four."""


def decode_cost(
    config: LlamaConfig,
    batch: int,
    length: int,
    num_new: int = 1,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> Cost:
    """One pass over `num_new` new tokens of each of `batch` sequences.

    num_new is 1 in plain decoding, and γ + 1 when a model verifies γ draft tokens. `length` is how
    many tokens a sequence then has, the new ones included: new token i = 0 … num_new − 1 sees the
    length − num_new + i + 1 tokens up to itself, or the last `window` of those in a local layer. A
    shared layer sees what its owner, the layer it reads, sees.

    flops, over all sequences:
      - for each new token, 2 for each weight that is multiplied: all but the embedding's, which is
        looked up. A head that is tied to the embedding is multiplied all the same.
      - for each new token and each token that it sees, in each layer and query head:
            full, local, shared   2·H for the score, and 2·H for the sum of the values
            latent                2·(C + R), and 2·C: absorbed, so that no key or value is built

    bytes_read, over all sequences:
      - every weight once, however large the batch; by convention the embedding's too, although a
        step looks up a few rows of it;
      - in each layer the keys and values, or latents and rope keys, of the tokens that at least one
        new token sees: once for each sequence, not for each new token. Through a window, five new
        tokens together see four more than one does. A shared layer keeps nothing, and yet reads as
        much as its owner.

    Llama 2 13B with 64 sequences of 1024 tokens: 79,717,990,400 bytes, and 21.3 FLOPs for each.

    Raises:
        ValueError: batch is below 1, num_new is not in 1 … length, or bytes are not above 0.

    Hint: first say how many pairs (new token, token it sees) a layer has. With f(n) the pairs of a
    whole sequence of n tokens, it is f(length) − f(length − num_new). About 35 lines in all.
    """
    _check_at_least_one(batch=batch, num_new=num_new)
    if length < num_new:
        raise ValueError(f"length is {length}, expected at least num_new, {num_new}")
    _check_bytes(weight_bytes_per_number, kv_bytes_per_number)
    # BEGIN SOLUTION
    flops = num_new * 2 * (_layer_weights(config) + _table(config))
    numbers_read = 0  # of what one sequence keeps
    for layer in config.attention_layers:
        window = _window(config, layer) or length
        pairs = _pairs(length, window) - _pairs(length - num_new, window)
        flops += pairs * config.num_heads * _absorbed_flops(config, layer)
        numbers_read += min(length, window + num_new - 1) * _numbers_of_a_token(config, layer)
    weights_read = _weights(config) * weight_bytes_per_number
    return Cost(batch * flops, weights_read + batch * numbers_read * kv_bytes_per_number)
    # END SOLUTION


# BEGIN SOLUTION
def _table(config: LlamaConfig) -> int:
    """The weights of the head; the embedding has as many."""
    return config.vocab_size * config.d_model


def _layer_weights(config: LlamaConfig) -> int:
    """The weights of all layers: MLPs, and the projections of attention."""
    width, query_width = config.d_model, config.num_heads * config.head_dim
    total = config.num_layers * (3 * width * config.d_ff + 2 * width * query_width)
    for layer in config.attention_layers:
        if layer.kind == "latent":
            total += width * (config.num_heads * layer.rope_dim + layer.latent_dim + layer.rope_dim)
            total += 2 * layer.latent_dim * query_width
        elif layer.kind != "shared":
            total += 2 * width * config.num_kv_heads * config.head_dim
    return total


def _weights(config: LlamaConfig) -> int:
    return _layer_weights(config) + _table(config) * (1 if config.tie_embeddings else 2)


def _window(config: LlamaConfig, layer: AttentionLayer) -> int | None:
    owner = layer if layer.reads is None else config.attention_layers[layer.reads]
    return owner.window


def _numbers_of_a_token(config: LlamaConfig, layer: AttentionLayer) -> int:
    """What a layer reads of each token that it sees."""
    if layer.kind == "latent":
        return layer.latent_dim + layer.rope_dim
    return 2 * config.num_kv_heads * config.head_dim


def _absorbed_flops(config: LlamaConfig, layer: AttentionLayer) -> int:
    """FLOPs of one query head for one token that it sees: its score, its share of the sum."""
    if layer.kind == "latent":
        return 2 * (layer.latent_dim + layer.rope_dim) + 2 * layer.latent_dim
    return 2 * config.head_dim + 2 * config.head_dim


def _pairs(length: int, window: int) -> int:
    """Pairs of a token and one that it sees, in a whole sequence: Σ min(n, window), n = 1 … length.

    At length ≤ window this is length · (length + 1) / 2.
    """
    growing = min(length, window)
    return growing * (growing + 1) // 2 + (length - growing) * window


# END SOLUTION


def prefill_cost(
    config: LlamaConfig, batch: int, length: int, weight_bytes_per_number: Number = 2
) -> Cost:
    """One pass over `batch` whole prompts of `length` tokens, for the first new token of each.

    As `decode_cost` with all tokens new, but for three things:
      - the head is multiplied for the last token of each prompt only: no other logits are needed;
      - a latent layer is not absorbed: it builds the keys and values of all heads, each token's
        once, by the same weights as ever, and a pair costs 2·(H + R) and 2·H in each head. That is
        as a rule the cheaper form where there are as many queries as keys;
      - bytes_read are the weights alone: keys and values are made here, not read.

    Raises:
        ValueError: batch or length is below 1, or bytes are not above 0.

    About 10 lines.
    """
    _check_at_least_one(batch=batch, length=length)
    _check_bytes(weight_bytes_per_number)
    # BEGIN SOLUTION
    flops = 2 * (length * _layer_weights(config) + _table(config))
    for layer in config.attention_layers:
        pairs = _pairs(length, _window(config, layer) or length)
        flops += pairs * config.num_heads * 2 * (2 * config.head_dim + (layer.rope_dim or 0))
    return Cost(batch * flops, _weights(config) * weight_bytes_per_number)
    # END SOLUTION


def seconds(cost: Cost, chip: Chip) -> float:
    """The least time for `cost`: max(flops / chip.flops_per_second, bytes / chip.bandwidth).

    The roofline: arithmetic and traffic go on at the same time, and the slower one decides. Bytes
    read and bytes written use the same wires.
    """
    # BEGIN SOLUTION
    return max(cost.flops / chip.flops_per_second, cost.bytes / chip.bandwidth)
    # END SOLUTION


def decode_latency(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> float:
    """Seconds between two tokens of a sequence: one decode step of one new token each.

    That is what a user waits, and all sequences of the batch wait together. Whether they fit into
    the chip's memory is not asked here. Llama 2 13B, 64 sequences of 1024 tokens, H100: 23.8 ms.
    """
    # BEGIN SOLUTION
    sizes = (weight_bytes_per_number, kv_bytes_per_number)
    return seconds(decode_cost(config, batch, length, 1, *sizes), chip)
    # END SOLUTION


def decode_throughput(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> float:
    """Tokens a second that all sequences of the batch get together: each gets one a step."""
    # BEGIN SOLUTION
    sizes = (weight_bytes_per_number, kv_bytes_per_number)
    return batch / decode_latency(config, chip, batch, length, *sizes)
    # END SOLUTION


def time_to_first_token(
    config: LlamaConfig,
    chip: Chip,
    length: int,
    batch: int = 1,
    weight_bytes_per_number: Number = 2,
) -> float:
    """Seconds from the start of a prefill of `batch` prompts to the first new token of each.

    Waiting in a queue comes on top. A short prompt, too, waits until all weights are read.
    """
    # BEGIN SOLUTION
    return seconds(prefill_cost(config, batch, length, weight_bytes_per_number), chip)
    # END SOLUTION


def replicated(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    replicas: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> tuple[float, float]:
    """(decode latency of the fullest replica, throughput of all), with several copies of the model.

    Each of `replicas` chips holds all weights and decodes at its own pace. `batch` counts all
    sequences; they are spread so that no chip has two more than another. A chip without a sequence
    adds nothing.

    Raises:
        ValueError: replicas is below 1, or what `decode_cost` refuses.

    About 7 lines.
    """
    _check_at_least_one(batch=batch, replicas=replicas)
    # BEGIN SOLUTION
    sizes = (weight_bytes_per_number, kv_bytes_per_number)
    share, left_over = divmod(batch, replicas)
    loads = [share + 1] * left_over + [share] * (replicas - left_over)
    latency = decode_latency(config, chip, loads[0], length, *sizes)
    total = sum(decode_throughput(config, chip, n, length, *sizes) for n in loads if n > 0)
    return latency, total
    # END SOLUTION


def _check_at_least_one(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}, expected at least 1")


def _check_bytes(*bytes_per_number: Number) -> None:
    for value in bytes_per_number:
        if not value > 0:
            raise ValueError(f"bytes per number are {value}, expected more than 0")
