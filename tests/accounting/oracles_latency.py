"""What one pass of a model multiplies and reads, counted pair by pair."""

from __future__ import annotations

from dataclasses import dataclass

from assignment.provided.lab import Chip, Cost
from assignment.provided.models import AttentionLayer, LlamaConfig
from tests.accounting.oracles_memory import (
    assert_number,
    draw_config,
    matrices,
    one,
    parameters,
    vectors,
)
from tests.grading.closeness import Mismatch

__tracebackhide__ = True  # pytest's word: a traceback ends in the test, not here


@dataclass(frozen=True)
class Pass:
    """FLOPs, and what is read of the cache in numbers, over all sequences; the weights once."""

    flops: int
    cached: int
    weights: int

    def bytes(self, weight_bytes: float = 2, kv_bytes: float = 2) -> float:
        return self.weights * weight_bytes + self.cached * kv_bytes

    def seconds(self, chip: Chip, weight_bytes: float = 2, kv_bytes: float = 2) -> float:
        compute = self.flops / chip.flops_per_second
        return max(compute, self.bytes(weight_bytes, kv_bytes) / chip.bandwidth)


def decode(config: LlamaConfig, batch: int, length: int, num_new: int = 1) -> Pass:
    """Every new token goes through every matrix; each layer reads what any new token sees."""
    flops = batch * num_new * _products(config, head=True)
    cached = 0
    for _ in range(batch):
        for index, layer in enumerate(config.attention_layers):
            seen = [_seen(config, index, query) for query in range(length - num_new, length)]
            width = [config.head_dim, config.head_dim]  # of a score's vectors, of what is summed
            if layer.kind == "latent":
                width = [layer.latent_dim + layer.rope_dim, layer.latent_dim]
            flops += config.num_heads * sum(2 * len(keys) * sum(width) for keys in seen)
            cached += len(set().union(*seen)) * sum(vectors(config, _owner(config, index)))
    return Pass(flops, cached, parameters(config))


def prefill(config: LlamaConfig, batch: int, length: int) -> Pass:
    """Every prompt token goes through the layers, the last one through the head too."""
    flops = 0
    for _ in range(batch):
        for query in range(length):
            flops += _products(config, head=query == length - 1)
            for index, layer in enumerate(config.attention_layers):
                keys = len(_seen(config, index, query))
                key_width = config.head_dim + (layer.rope_dim if layer.kind == "latent" else 0)
                for _ in range(config.num_heads):
                    flops += 2 * keys * key_width + 2 * keys * config.head_dim
    return Pass(flops, 0, parameters(config))


def _products(config: LlamaConfig, head: bool) -> int:
    """FLOPs of one token's products with the matrices. A tied head has the embedding's."""
    flops = 0
    for name, outputs, inputs in matrices(config):
        is_head = name == "head" or (name == "embedding" and config.tie_embeddings)
        if (name != "embedding" or config.tie_embeddings) and (head or not is_head):
            flops += 2 * outputs * inputs
    return flops


def _owner(config: LlamaConfig, index: int):
    reads = config.attention_layers[index].reads
    return config.attention_layers[index if reads is None else reads]


def _seen(config: LlamaConfig, index: int, query: int) -> set[int]:
    """The positions that a token at position `query` sees in a layer."""
    window = _owner(config, index).window
    return {key for key in range(query + 1) if window is None or query - key < window}


def assert_cost(got: object, expected: Pass, sizes: tuple, what: str, config: LlamaConfig) -> None:
    """`got` is the Cost of a pass. sizes: bytes of a weight, and of a number of the cache."""
    if type(got) is not Cost:
        kind = type(got).__name__
        raise Mismatch(f"expected a Cost, got {kind}", expected="a Cost", got=kind, what=what)
    assert_number(got.flops, expected.flops, f"flops of {what}", config)
    assert_number(got.bytes_read, expected.bytes(*sizes), f"bytes_read of {what}", config)
    assert_number(got.bytes_written, 0, f"bytes_written of {what}", config)


def windowed(draw, window: int) -> LlamaConfig:
    """A model of a layer with a window, one that reads it, and a full one."""
    layers = [AttentionLayer(window=window), AttentionLayer(reads=0), AttentionLayer()]
    return draw_config(draw, layers)


def draw_chip(draw, expected: Pass) -> Chip:
    """A chip that takes as long for the arithmetic of `expected` as for its bytes, give or take
    half: which of the two is longer differs from draw to draw."""
    bandwidth = 1e6 * one(draw, 100, 999)
    rate = expected.flops / expected.bytes() * bandwidth * one(draw, 500, 1500) / 1000
    return Chip("a chip", flops_per_second=rate, bandwidth=bandwidth, memory=1e3)
