"""A small class for each kind of layer that knows what it weighs and keeps; no if on kinds."""

from collections.abc import Sequence
from dataclasses import dataclass

from assignment.provided.lab import Chip
from assignment.provided.models import LlamaConfig

Number = int | float


@dataclass
class Shared:
    config: LlamaConfig
    kept = 0

    @property
    def query_width(self) -> int:
        return self.config.num_heads * self.config.head_dim

    @property
    def weights(self) -> int:
        return 2 * self.config.d_model * self.query_width

    def tokens(self, length: int) -> int:
        return length


class Full(Shared):
    @property
    def weights(self) -> int:
        return super().weights + self.config.d_model * self.kept

    @property
    def kept(self) -> int:
        return 2 * self.config.num_kv_heads * self.config.head_dim


@dataclass
class Local(Full):
    window: int

    def tokens(self, length: int) -> int:
        return length if length < self.window else self.window


@dataclass
class Latent(Shared):
    latent: int
    rope: int

    @property
    def weights(self) -> int:
        into = self.config.d_model * (self.config.num_heads * self.rope + self.kept)
        return super().weights + into + 2 * self.query_width * self.latent

    @property
    def kept(self) -> int:
        return self.latent + self.rope


def build(config: LlamaConfig) -> list[Shared]:
    made = []
    for layer in config.attention_layers:
        if layer.reads is not None:
            made.append(Shared(config))
        elif layer.window is not None:
            made.append(Local(config, layer.window))
        elif layer.latent_dim is not None:
            made.append(Latent(config, layer.latent_dim, layer.rope_dim))
        else:
            made.append(Full(config))
    return made


def parameters(config: LlamaConfig) -> int:
    tables = [config.vocab_size * config.d_model] * (1 if config.tie_embeddings else 2)
    mlp = config.d_model * config.d_ff + config.d_ff * config.d_model + config.d_ff * config.d_model
    return sum(tables) + sum(layer.weights + mlp for layer in build(config))


def weight_bytes(config: LlamaConfig, bytes_per_number: Number = 2) -> Number:
    if bytes_per_number <= 0:
        raise ValueError(bytes_per_number)
    return parameters(config) * bytes_per_number


def kv_bytes_per_token(config: LlamaConfig, bytes_per_number: Number = 2) -> Number:
    if bytes_per_number <= 0:
        raise ValueError(bytes_per_number)
    return sum(layer.kept * bytes_per_number for layer in build(config))


def kv_bytes(config: LlamaConfig, lengths: Sequence[int], bytes_per_number: Number = 2) -> Number:
    if bytes_per_number <= 0 or [n for n in lengths if n < 0]:
        raise ValueError(lengths, bytes_per_number)
    layers = build(config)
    return sum(x.kept * x.tokens(n) * bytes_per_number for x in layers for n in lengths)


def memory_bytes(
    config: LlamaConfig,
    lengths: Sequence[int],
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> Number:
    kept = kv_bytes(config, lengths, kv_bytes_per_number)
    return kept + weight_bytes(config, weight_bytes_per_number)


def largest_batch(
    config: LlamaConfig,
    chip: Chip,
    length: int,
    weight_bytes_per_number: Number = 2,
    kv_bytes_per_number: Number = 2,
) -> int:
    if length < 1:
        raise ValueError(length)
    sizes = (weight_bytes_per_number, kv_bytes_per_number)
    nobody = memory_bytes(config, [], *sizes)
    somebody = memory_bytes(config, [length], *sizes)
    return max(int((chip.memory - nobody) / (somebody - nobody)), 0)
