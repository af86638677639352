"""Time SmolLM2-135M on this machine: `make bench BENCH=speed` writes smollm2_speed.json.

accounting.ipynb draws the file: what was measured, beside what `accounting.latency` predicts for a
chip with this machine's bandwidth and FLOP rate. Those two are measured in the same run: a machine
is slower on some days. Everything is float32 on two threads, without checks of shapes. A figure is
the median over ROUNDS rounds, each of which measures everything once; `busy` is how many threads
worked, or span while they waited. What is timed:

    read, multiply   the machine: a product of two long vectors, and of two matrices
    decode           a pass over one new token a row, through KVCache and grouped_query_attention
    matrices         of such a pass, the products with the model's weights and nothing else
    prefill          a pass over a prompt
    fused            the same with PyTorch's own attention, which keeps the scores to itself
"""

from __future__ import annotations

import json
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.nn.functional as F
from jaxtyping import config
from torch import Tensor, nn

import tests.grading.notebook  # noqa: F401  (makes `submission` importable)
from assignment.provided.models import Llama
from assignment.provided.models.smollm2 import ModelNotAvailable, load_smollm2
from submission.attention.grouped_query import grouped_query_attention
from submission.attention.kv_cache import KVCache
from tests.grading.results import write_whole

FILE = Path(__file__).with_suffix(".json")
THREADS, ROUNDS = 2, 7
VECTOR = 2**25  # two of them are 256 MiB in float32: far more than a cache holds
PRODUCT = 2048
PROMPTS = [1, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
BATCHES, CONTEXTS = [1, 2, 4, 8, 16, 32], [128, 1024]


class Passes:
    """Passes of a model over new tokens, behind `held` random ones in every row's cache."""

    def __init__(self, model: Llama, batch: int, held: int, num_new: int, attention: Callable):
        sizes = model.config
        shape = (batch, held + num_new, sizes.num_kv_heads, sizes.head_dim)
        self.model, self.attention = model, attention
        self.caches = [KVCache(*shape) for _ in range(sizes.num_layers)]
        self.held = torch.full((batch,), held)
        self.tokens = torch.randint(sizes.vocab_size, (batch, num_new))
        for cache in self.caches if held else ():
            cache.append(*torch.randn(2, batch, sizes.num_kv_heads, held, sizes.head_dim))

    @torch.no_grad()
    def __call__(self) -> Tensor:
        """Logits of each row's last token. The same again, however often it is called."""
        positions = self.caches[0].positions(self.tokens.shape[1])
        hidden = self.model.hidden(self.tokens, positions, self._attend)
        for cache in self.caches:
            cache.truncate(self.held)
        return self.model.logits(hidden[:, -1:])

    def _attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        self.caches[layer].append(k, v)
        return self.attention(q, *self.caches[layer].keys_values())


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """For whole prompts: PyTorch's causal mask is aligned top-left."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def products(model: Llama, batch: int) -> Callable[[], object]:
    """Every product of a decode step with the model's weights, the head's included."""
    weights = [module.weight for module in model.modules() if isinstance(module, nn.Linear)]
    weights.append(model.embedding.weight)
    inputs = {weight.shape[1]: torch.rand(batch, weight.shape[1]) for weight in weights}
    return lambda: [F.linear(inputs[weight.shape[1]], weight) for weight in weights]


def works(model: Llama) -> dict[tuple, Callable[[], object]]:
    """What is timed, by kind, batch and length."""
    vectors, matrices = torch.rand(2, VECTOR), torch.rand(2, PRODUCT, PRODUCT)
    found = {("read",): lambda: torch.dot(*vectors), ("multiply",): lambda: torch.mm(*matrices)}
    for length in PROMPTS:
        found["prefill", 1, length] = Passes(model, 1, 0, length, grouped_query_attention)
        found["fused", 1, length] = Passes(model, 1, 0, length, fused)
    for batch in BATCHES:
        found["matrices", batch, 0] = products(model, batch)
        for length in CONTEXTS:
            passes = Passes(model, batch, length - 1, 1, grouped_query_attention)
            found["decode", batch, length] = passes
    return found


def measure(works: dict[tuple, Callable[[], object]]) -> dict[tuple, tuple[float, float]]:
    """Seconds of each, and of how much processor time: the medians of the rounds."""
    times = {name: [] for name in works}
    for number in range(ROUNDS):
        for name, work in works.items():
            work()  # what it needs is then in place
            started, worked = time.perf_counter(), time.process_time()
            work()
            times[name].append((time.perf_counter() - started, time.process_time() - worked))
        print(f"round {number + 1} of {ROUNDS}", flush=True)
    return {name: tuple(map(median, zip(*taken, strict=True))) for name, taken in times.items()}


def machine() -> str:
    """The processor's name, as the system has it."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{THREADS} threads on {(names or [platform.processor() or platform.machine()])[0]}"


def main() -> int:
    torch.set_num_threads(THREADS)
    config.update("jaxtyping_disable", True)
    try:
        model, _ = load_smollm2()
    except ModelNotAvailable as error:
        print(error, file=sys.stderr)
        return 1
    taken = measure(works(model))
    found = {
        "machine": machine(),
        "torch": torch.__version__.partition("+")[0],
        "bandwidth": round(8 * VECTOR / taken[("read",)][0], -7),
        "flops_per_second": round(2 * PRODUCT**3 / taken[("multiply",)][0], -8),
    }
    for kind in ("decode", "matrices", "prefill", "fused"):
        found[kind] = [
            {
                "batch": name[1],
                "length": name[2],
                "seconds": round(seconds, 5),
                "busy": round(processor / seconds, 1),
            }
            for name, (seconds, processor) in taken.items()
            if name[0] == kind
        ]
    write_whole(one_row_a_line(found), FILE)
    for name, value in found.items():
        print(f"{name}: {value}")
    return 0


def one_row_a_line(found: dict) -> str:
    """As JSON that a person can read, too."""
    lines = []
    for name, value in found.items():
        text = json.dumps(value)
        if isinstance(value, list):
            text = "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in value) + "\n ]"
        lines.append(f' "{name}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    sys.exit(main())
