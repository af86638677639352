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
    raise NotImplementedError


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
    raise NotImplementedError


def seconds(cost: Cost, chip: Chip) -> float:
    """The least time for `cost`: max(flops / chip.flops_per_second, bytes / chip.bandwidth).

    The roofline: arithmetic and traffic go on at the same time, and the slower one decides. Bytes
    read and bytes written use the same wires.
    """
    raise NotImplementedError


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
    raise NotImplementedError


def decode_throughput(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> float:
    """Tokens a second that all sequences of the batch get together: each gets one a step."""
    raise NotImplementedError


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
    raise NotImplementedError


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
    raise NotImplementedError


def _check_at_least_one(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} is {size}, expected at least 1")


def _check_bytes(*bytes_per_number: Number) -> None:
    for value in bytes_per_number:
        if not value > 0:
            raise ValueError(f"bytes per number are {value}, expected more than 0")
