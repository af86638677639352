"""Ways to make SmolLM2 smaller, each with a function that makes it, and what they are judged by.

The linear layers of the blocks are compressed, and the embedding, which is also the head, is not.
SmolLM2's weights come from a file of 4-bit codes in blocks of 32 with a zero point each. Such
groups would give the file's own codes back, with no error at all: never use them to measure what 4
bits cost. Here the groups are 128 (of 576 inputs: four, and one of 64), or whole rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import torch
from torch import Tensor, nn

from assignment.provided.compression import Quantized, linears, nats, with_linears
from assignment.provided.models import CachedSession, Llama
from assignment.provided.models.smollm2 import SmolTokenizer
from submission.attention.grouped_query import grouped_query_attention
from submission.attention.kv_cache import KVCache
from submission.compression.awq import awq
from submission.compression.llm_int8 import Int8Linear
from submission.compression.pruning import prune_depth
from submission.compression.quantization import (
    QuantizedCache,
    QuantizedLinear,
    bits_per_weight,
    dequantize,
    quantize,
)

GROUP, ROW = 128, 1536  # 1536 is the longest row: each is one group
WINDOW = 512  # tokens of a text that the model reads at once
HELD, STEPS = 127, 5  # decoding is timed behind so many tokens, so often


@dataclass(frozen=True)
class Calibration:
    """What a way may use besides the model: other texts than those it is measured on."""

    tokens: Tensor
    loss_without: list[float]  # of each layer


@dataclass(frozen=True)
class Way:
    """make: the compressed model. bits: of a weight of the blocks, where a chip has the format."""

    name: str
    make: Callable[[Llama, Calibration], Llama]
    bits: Callable[[int], float] = lambda columns: 16
    int8_cache: bool = False


class Int8Both(nn.Module):
    """Weights and activations in int8, with no column left out.

    The values that the codes stand for are multiplied in float32: what an exact product of the
    codes gives, but for the last digits.

    Args:
        per: who shares a scale, of both: "tensor", or "row": an output of the weight, and a token.
    """

    def __init__(self, weight: Tensor, per: str):
        super().__init__()
        quantized = quantize(weight, 8, per)
        self.per = per
        self.register_buffer("codes", quantized.codes)
        self.register_buffer("scale", quantized.scale)

    def forward(self, x: Tensor) -> Tensor:
        rows = dequantize(quantize(x.flatten(0, -2), 8, self.per))
        weight = dequantize(Quantized(self.codes, self.scale, None, self.per))
        return nn.functional.linear(rows, weight).unflatten(0, x.shape[:-1])


def every_linear(layer: Callable[[Tensor], nn.Module]) -> Callable[[Llama, Calibration], Llama]:
    """The model with layer(weight) in the place of each linear layer."""
    return lambda model, _: replaced(model, layer)


def replaced(
    model: Llama, layer: Callable[[Tensor], nn.Module], only: tuple[str, ...] = ("",)
) -> Llama:
    """The same for the layers whose names end so."""
    there = linears(model).items()
    return with_linears(model, {n: layer(old.weight) for n, old in there if n.endswith(only)})


def nearest(bits: int, group: int) -> Callable[[Llama, Calibration], Llama]:
    return every_linear(lambda weight: QuantizedLinear(weight, bits, group))


def activation_aware(bits: int, group: int) -> Callable[[Llama, Calibration], Llama]:
    return lambda model, calibration: awq(model, calibration.tokens, bits, group)


def fewer_layers(count: int) -> Callable[[Llama, Calibration], Llama]:
    return lambda model, calibration: prune_depth(
        model, least(calibration.loss_without, model.config.num_layers - count)
    )


def least(importance: list[float], count: int) -> list[int]:
    return sorted(range(len(importance)), key=importance.__getitem__)[:count]


def unchanged(model: Llama, _: Calibration) -> Llama:
    return model


def in_groups(bits: int, group: int) -> Callable[[int], float]:
    """With a 16-bit scale for each group, and with 4 bits or fewer a zero point of as many."""
    zero_bits = bits if bits <= 4 else 0
    return lambda columns: bits_per_weight(columns, bits, group, 16, zero_bits)


INT8 = in_groups(8, ROW)
WAYS = [
    Way("float32", unchanged),
    Way("INT8 weights, per row", every_linear(lambda w: QuantizedLinear(w, 8, "row")), INT8),
    Way("W8A8 per tensor", every_linear(lambda w: Int8Both(w, "tensor")), INT8),
    Way("W8A8 per token", every_linear(lambda w: Int8Both(w, "row")), INT8),
    Way("LLM.int8()", every_linear(Int8Linear), INT8),
    *(
        Way(f"INT{bits} {how}, {where}", make(bits, group), in_groups(bits, group))
        for bits, group, where in ((4, GROUP, "g128"), (4, ROW, "per row"), (3, GROUP, "g128"))
        for how, make in (("RTN", nearest), ("AWQ", activation_aware))
    ),
    Way("int8 KV cache", unchanged, int8_cache=True),
    *(Way(f"{count} of 30 layers", fewer_layers(count)) for count in (24, 20)),
]


def caches(model: Llama, capacity: int, int8: bool) -> list:
    """For one sequence; int8 ones keep a float32 scale for each token and head."""
    sizes = model.config
    shape = (1, capacity, sizes.num_kv_heads)
    if not int8:
        return [KVCache(*shape, sizes.head_dim) for _ in range(sizes.num_layers)]
    return [
        QuantizedCache(KVCache(*shape, sizes.head_dim, torch.int8), KVCache(*shape, 1))
        for _ in range(sizes.num_layers)
    ]


@torch.no_grad()
def window_nats(model: Llama, tokens: Tensor, int8_cache: bool = False) -> list[float]:
    """Nats of each window of WINDOW tokens. Each is read alone: a batch would share scales."""
    model = unpacked(model)
    reader = _Through(model) if int8_cache else model
    return [nats(reader, window) for window in tokens.split(1)]


def mean_nats(model: Llama, tokens: Tensor) -> float:
    return mean(window_nats(model, tokens))


class _Through(nn.Module):
    """A model whose attention reads keys and values from int8 caches."""

    def __init__(self, model: Llama):
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        held = caches(self.model, tokens.shape[1], int8=True)
        return CachedSession(self.model, held, grouped_query_attention)(tokens)


def unpacked(model: Llama) -> Llama:
    """With the weights that the codes stand for: the same results, unpacked once for all passes."""
    wide = {}
    for name, layer in linears(model).items():
        if isinstance(layer, QuantizedLinear):
            weight = layer.dequantized()
            wide[name] = nn.Linear(*weight.shape[::-1], bias=False, device="meta")
            wide[name].weight = nn.Parameter(weight, requires_grad=False)
    return with_linears(model, wide) if wide else model


def decode_seconds(model: Llama, int8_cache: bool) -> float:
    """Of one new token behind HELD others, of a sequence alone: the median of STEPS."""
    held = caches(model, HELD + 1, int8_cache)
    sizes, generator = model.config, torch.Generator().manual_seed(0)
    for cache in held:
        shape = (2, 1, sizes.num_kv_heads, HELD, sizes.head_dim)
        cache.append(*torch.randn(shape, generator=generator))
    session, token = CachedSession(model, held, grouped_query_attention), torch.tensor([[0]])
    seconds = []
    for _ in range(STEPS + 1):
        started = time.perf_counter()
        session(token)
        seconds.append(time.perf_counter() - started)
        session.truncate(torch.tensor([HELD]))
    return median(seconds[1:])


def kept_bytes(model: Llama) -> int:
    """Of all that the model keeps, as it lies in memory here."""
    return sum(value.nbytes for value in model.state_dict().values())


def block_bits(model: Llama, way: Way) -> float:
    """Of a weight of the blocks, the mean over all of them; `model` is the one to be compressed."""
    weights = [layer.weight for layer in linears(model).values()]
    return sum(w.numel() * way.bits(w.shape[1]) for w in weights) / sum(w.numel() for w in weights)


def text_tokens(tokenizer: SmolTokenizer, kind: str) -> Tensor:
    """A text beside this file, in windows; what does not fill one is left out."""
    text = Path(__file__).with_name(f"text_{kind}.md").read_text(encoding="utf-8")
    _, _, text = text.partition("\n\n")  # the first line says where it is from
    tokens = tokenizer.encode(text)
    return torch.tensor(tokens[: len(tokens) // WINDOW * WINDOW]).view(-1, WINDOW)
