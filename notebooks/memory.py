"""`make memory`: what a model takes on a chip in 16, 8, 4 and 3 bits, and how fast that can be.

    python notebooks/memory.py --model llama-3-8b --chip A100 --length 4096 --batch 32

Every figure is made by your own functions: `accounting.memory`, `accounting.latency` and
`bits_per_weight` of `compression.quantization`. The sizes are those of model_sizes.py.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import jaxtyping
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY))
jaxtyping.config.update("jaxtyping_disable", True)

import tests.grading.notebook  # noqa: E402, F401  (makes `submission` importable)
from assignment.provided.lab import CHIPS, Chip  # noqa: E402
from assignment.provided.models import LlamaConfig  # noqa: E402
from submission.accounting.latency import decode_throughput  # noqa: E402
from submission.accounting.memory import (  # noqa: E402
    kv_bytes,
    largest_batch,
    parameters,
    weight_bytes,
)
from submission.compression.quantization import bits_per_weight  # noqa: E402
from tests.grading.errors import SubmissionError  # noqa: E402
from tests.grading.submission import short  # noqa: E402

# isort: split
from model_sizes import MODELS  # noqa: E402

NEEDS = "accounting.memory, accounting.latency and compression.quantization"
GROUP, SCALE_BITS = 128, 16
Bits = Callable[[int], float]  # of a number in a row of so many

WEIGHTS: dict[str, Bits] = {
    "BF16": lambda columns: 16,
    "INT8": lambda columns: bits_per_weight(columns, 8, columns, SCALE_BITS),
    "INT4": lambda columns: bits_per_weight(columns, 4, GROUP, SCALE_BITS, 4),
    "INT3": lambda columns: bits_per_weight(columns, 3, GROUP, SCALE_BITS, 3),
}
CACHES: dict[str, Bits] = {
    "BF16": lambda head_dim: 16,
    "INT8": lambda head_dim: bits_per_weight(head_dim, 8, head_dim, SCALE_BITS),
}
FORMATS = (
    "INT8: a 16-bit scale for each row of a matrix; INT4 and INT3: a 16-bit scale and a zero point "
    f"for each {GROUP} weights. Embedding and head stay in 16 bits. INT8 keys and values: a 16-bit "
    "scale for each token and head. Speeds are the roofline's: no kernel can be faster."
)


def weight_bytes_per_number(config: LlamaConfig, bits: Bits) -> float:
    """The mean over all weights: those of the layers in `bits`, embedding and head in 16."""
    queries, keys = (n * config.head_dim for n in (config.num_heads, config.num_kv_heads))
    width, neurons = config.d_model, config.d_ff
    by_columns = [
        (width * (queries + 2 * keys + 2 * neurons), width),  # q, k, v, gate, up
        (queries * width, queries),  # o
        (neurons * width, neurons),  # down
    ]
    layers = config.num_layers * sum(number * bits(columns) for number, columns in by_columns)
    tables = config.vocab_size * width * (1 if config.tie_embeddings else 2)
    return (layers + 16 * tables) / 8 / parameters(config)


def table(name: str, chip: Chip, length: int, batch: int | None) -> Table:
    config = MODELS[name].config
    made = Table(
        title=f"{name}, {parameters(config) / 1e6:,.0f} million weights, on one {chip.name} "
        f"({chip.memory / 1e9:g} GB),\nsequences of {length:,} tokens",
        box=SIMPLE,
        padding=(0, 1, 0, 0),
    )
    for heading in ("weights", "KV"):
        made.add_column(heading)
    at_batch = [] if batch is None else [f"\nat {batch:,}"]
    sizes = ["bits\neach", "weights\nGB", "KV MB\neach", "largest\nbatch"]
    for heading in [*sizes, "tokens/s\nat 1", *at_batch, "\nlargest"]:
        made.add_column(heading, justify="right")
    for weights, weight_bits in WEIGHTS.items():
        weight = weight_bytes_per_number(config, weight_bits)
        for cache, cache_bits in CACHES.items():
            kept = cache_bits(config.head_dim) / 8
            most = largest_batch(config, chip, length, weight, kept)
            batches = [1, most] if batch is None else [1, batch, most]
            speeds = [
                f"{decode_throughput(config, chip, n, length, weight, kept):,.0f}"
                if 0 < n <= most
                else "-"
                for n in batches
            ]
            made.add_row(
                weights,
                cache,
                f"{8 * weight:.2f}",
                f"{weight_bytes(config, weight) / 1e9:.3g}",
                f"{kv_bytes(config, [length], kept) / 1e6:,.4g}",
                f"{most:,}",
                *speeds,
            )
        made.add_section()
    return made


def main() -> int:
    parser = argparse.ArgumentParser(
        description="What a model takes on a chip, and how fast it can decode, by your own code."
    )
    parser.add_argument("--model", choices=MODELS, default="llama-2-13b", help="(llama-2-13b)")
    parser.add_argument("--chip", choices=CHIPS, default="H100", help="(H100)")
    parser.add_argument("--length", type=int, default=1024, help="tokens of a sequence (1024)")
    parser.add_argument("--batch", type=int, help="a batch to show besides 1 and the largest")
    asked = parser.parse_args()
    for name in ("length", "batch"):
        if getattr(asked, name) is not None and getattr(asked, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(asked, name)}")
    console = Console(highlight=False)
    try:
        console.print(table(asked.model, CHIPS[asked.chip], asked.length, asked.batch))
    except SubmissionError as error:
        return fail(str(error))
    except NotImplementedError as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{short(Path(frame.filename))}: `{frame.name}`"
        return fail(f"{place} is not written yet; the table is made by your own {NEEDS}")
    console.print(FORMATS)
    console.print(
        f"Sizes: config.json of {MODELS[asked.model].source}. {CHIPS[asked.chip].source}."
    )
    return 0


def fail(line: str) -> int:
    print(f"memory: {line}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
