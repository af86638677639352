"""Takes the sums of weights and caches from the submission's own accounting.memory."""

from dataclasses import replace

from assignment.provided.lab import Chip, Cost
from assignment.provided.models import AttentionLayer, LlamaConfig

from .memory import kv_bytes, parameters, weight_bytes

Number = int | float


def decode_cost(
    config: LlamaConfig,
    batch: int,
    length: int,
    num_new: int = 1,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> Cost:
    if batch <= 0 or num_new <= 0 or num_new > length:
        raise ValueError(f"batch {batch}, length {length}, num_new {num_new}")
    config = without_sharing(config)
    flops = 2 * num_new * products(config)
    for layer in config.attention:
        width = 2 * config.head_dim
        if layer.kind == "latent":
            width = 2 * layer.latent_dim + layer.rope_dim
        for seen in range(length - num_new + 1, length + 1):
            flops += 2 * width * config.num_heads * min(seen, layer.window or seen)

    # What several new tokens see through a window is a window that is longer by the others.
    wider = [
        replace(layer, window=layer.window and layer.window + num_new - 1)
        for layer in config.attention
    ]
    one = kv_bytes(replace(config, attention=tuple(wider)), [length], kv_bytes_per_number)
    weights = weight_bytes(original(config), weight_bytes_per_number)
    return Cost(flops=flops * batch, bytes_read=weights + one * batch)


class Unshared(LlamaConfig):
    """A config whose shared layers are written as what they see; it remembers the model's own."""


def without_sharing(config: LlamaConfig) -> LlamaConfig:
    layers = config.attention_layers
    seen = tuple(layer if layer.reads is None else layers[layer.reads] for layer in layers)
    made = Unshared(**{**vars(config), "attention": seen})
    object.__setattr__(made, "_of", config)
    return made


def original(config: LlamaConfig) -> LlamaConfig:
    return getattr(config, "_of", config)


def products(config: LlamaConfig) -> int:
    """Weights that a token is multiplied with: as if the embedding were not there, or tied."""
    return parameters(replace(original(config), tie_embeddings=True))


def prefill_cost(
    config: LlamaConfig, batch: int, length: int, weight_bytes_per_number: Number = 2
) -> Cost:
    if min(batch, length) <= 0:
        raise ValueError(f"batch {batch}, length {length}")
    head = config.vocab_size * config.d_model
    flops = 2 * length * (products(config) - head) + 2 * head
    layers = config.attention_layers
    for layer in layers:
        owner: AttentionLayer = layers[layer.reads] if layer.reads is not None else layer
        key = config.head_dim + (owner.rope_dim or 0)
        pairs = sum(min(seen, owner.window or seen) for seen in range(1, length + 1))
        flops += 2 * pairs * config.num_heads * (key + config.head_dim)
    return Cost(flops * batch, weight_bytes(config, weight_bytes_per_number), 0)


def seconds(cost: Cost, chip: Chip) -> float:
    compute, traffic = cost.flops / chip.flops_per_second, cost.bytes / chip.bandwidth
    return compute if compute > traffic else traffic


def decode_latency(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> float:
    cost = decode_cost(
        config,
        batch,
        length,
        weight_bytes_per_number=weight_bytes_per_number,
        kv_bytes_per_number=kv_bytes_per_number,
    )
    return seconds(cost, chip)


def decode_throughput(
    config: LlamaConfig,
    chip: Chip,
    batch: int,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> float:
    sizes = (weight_bytes_per_number, kv_bytes_per_number)
    return 1 / decode_latency(config, chip, batch, length, *sizes) * batch


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
        raise ValueError(f"{replicas} replicas")
    sizes = (weight_bytes_per_number, kv_bytes_per_number)
    dealt = [0] * replicas
    for i in range(batch):
        dealt[i % replicas] += 1
    worst = decode_latency(config, chip, max(dealt), length, *sizes)
    rates = [decode_throughput(config, chip, n, length, *sizes) for n in dealt if n]
    return worst, sum(rates)
