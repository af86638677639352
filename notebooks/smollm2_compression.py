"""Compress SmolLM2-135M: `make bench BENCH=compression` writes smollm2_compression.json.

    python notebooks/smollm2_compression.py                        all parts, 10 minutes
    python notebooks/smollm2_compression.py outliers "LLM.int8()"  some parts, or some of the ways

What is done is written at once, in the place of the old figures: after an interruption, name what
is missing. Everything is float32 on two threads, without checks of shapes. The model is measured
on text_evaluation.md, 6 windows of 512 tokens; what calibrates reads text_calibration.md, which is
other chapters of the same handout. The parts:

    machine     its bandwidth and FLOP rate, as in smollm2_speed.py
    layers      nats lost without each layer, and its block influence
    ways        those of smollm2_ways.py. nats: −log p a token, windows: of each window; seconds:
                to make the model; bits: of a weight of the blocks, where a chip has the format;
                megabytes, and kv_bytes of a token: as they are kept here. Tokens a second of one
                sequence behind 127 tokens: h100, predicted by `accounting.latency` for formats of
                at most 16 bits; predicted, for this machine and what is kept here; measured, the
                median of 5 steps. What is packed is unpacked in each step: there are no kernels
    thresholds  LLM.int8() with other thresholds
    carriers    W8A8 per tensor in some of the layers only
    depth       with ever fewer layers: those of least loss, or of least influence, are left out
    outliers    the largest |values| of each layer, by token and by channel

`bars` is what has to be reached, and what is.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from statistics import mean

# Read when torch loads. Threads that spin while they wait make a busy machine crawl.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from jaxtyping import config
from smollm2_speed import PRODUCT, THREADS, VECTOR, machine, measure, one_row_a_line

from assignment.provided.lab import CHIPS, Chip
from assignment.provided.models import Llama
from assignment.provided.models.smollm2 import ModelNotAvailable, SmolTokenizer, load_smollm2
from submission.accounting.latency import decode_throughput
from submission.accounting.memory import kv_bytes_per_token, parameters
from submission.compression.pruning import importance, loss_without, prune_depth
from submission.compression.quantization import bits_per_weight
from tests.grading.errors import SubmissionError
from tests.grading.results import write_whole

# isort: split
# After smollm2_speed, which makes `submission` importable.
from smollm2_outliers import carrier_rows, outlier_rows, threshold_rows
from smollm2_ways import (
    HELD,
    WAYS,
    Calibration,
    Way,
    block_bits,
    decode_seconds,
    kept_bytes,
    least,
    mean_nats,
    text_tokens,
    window_nats,
)

FILE = Path(__file__).with_suffix(".json")
MEASURED_ON, CALIBRATED_ON, RANKED_ON = 6, 1, 2  # windows
DEPTHS = [28, 26, 24, 22, 20]
PARTS = ["machine", "layers", "ways", "thresholds", "carriers", "depth", "outliers"]
HEAD = ["machine", "torch", "bandwidth", "flops_per_second", "tokens", "bars"]
NAMES = [way.name for way in WAYS]


class MissingPart(Exception):
    """A part was asked for that needs another one's figures."""


class Bench:
    """The model, its texts, and the file with what was found."""

    def __init__(self, model: Llama, tokenizer: SmolTokenizer):
        self.model = model
        self.text = text_tokens(tokenizer, "evaluation")[:MEASURED_ON]
        self.calibration = text_tokens(tokenizer, "calibration")
        self.found = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}

    def write(self, **values: object) -> None:
        self.found |= {"torch": torch.__version__.partition("+")[0]} | values
        self.found["tokens"] = self.text.numel()
        self.found["bars"] = bars({row["way"]: row for row in self.found.get("ways", [])})
        self.found = {name: self.found[name] for name in [*HEAD, *PARTS] if name in self.found}
        write_whole(one_row_a_line(self.found), FILE)

    def of(self, name: str, part: str) -> object:
        """What an earlier part found."""
        if name not in self.found:
            raise MissingPart(f"{FILE.name} has no {name!r}: measure the part {part!r} first")
        return self.found[name]


def measure_machine(bench: Bench) -> None:
    vectors, matrices = torch.rand(2, VECTOR), torch.rand(2, PRODUCT, PRODUCT)
    works = {"read": lambda: torch.dot(*vectors), "multiply": lambda: torch.mm(*matrices)}
    taken = measure(works)
    bench.write(
        machine=machine(),
        bandwidth=round(8 * VECTOR / taken["read"][0], -7),
        flops_per_second=round(2 * PRODUCT**3 / taken["multiply"][0], -8),
    )


def measure_layers(bench: Bench) -> None:
    tokens = bench.calibration[:RANKED_ON]
    losses = loss_without(bench.model, tokens).tolist()
    influences = importance(bench.model, tokens).layers.tolist()
    rows = [
        {"layer": layer, "loss": round(loss, 4), "influence": round(influence, 4)}
        for layer, (loss, influence) in enumerate(zip(losses, influences, strict=True))
    ]
    bench.write(layers=rows)


def measure_ways(bench: Bench, names: list[str]) -> None:
    losses = [row["loss"] for row in bench.of("layers", "layers")]
    calibration = Calibration(bench.calibration[:CALIBRATED_ON], losses)
    for way in WAYS:
        if way.name in names:
            rows = {row["way"]: row for row in bench.found.get("ways", [])}
            rows[way.name] = way_row(bench, way, calibration)
            bench.write(ways=[rows[name] for name in NAMES if name in rows])
            print(f"  {json.dumps(rows[way.name])}", flush=True)


def way_row(bench: Bench, way: Way, calibration: Calibration) -> dict:
    started = time.perf_counter()
    model = way.make(bench.model, calibration)
    seconds = time.perf_counter() - started
    windows = window_nats(model, bench.text, way.int8_cache)
    sizes, kept, bits = model.config, kept_bytes(model), block_bits(bench.model, way)
    table = sizes.vocab_size * sizes.d_model
    on_chip = 2 * table + (parameters(sizes) - table) * bits / 8
    kv_on_chip, kv_here = kv_number_bytes(sizes.head_dim, way.int8_cache)
    here = Chip(
        "here", bench.of("flops_per_second", "machine"), bench.of("bandwidth", "machine"), 0
    )

    def predicted(chip: Chip, weight_bytes: float, kv_number: float) -> float:
        per_number = weight_bytes / parameters(sizes)
        return three_digits(decode_throughput(sizes, chip, 1, HELD + 1, per_number, kv_number))

    return {
        "way": way.name,
        "nats": round(mean(windows), 4),
        "windows": [round(value, 4) for value in windows],
        "seconds": round(seconds, 1),
        "bits": round(bits, 3),
        "megabytes": round(kept / 1e6, 1),
        "kv_bytes": round(kv_bytes_per_token(sizes, kv_here)),
        "h100": predicted(CHIPS["H100"], on_chip, kv_on_chip),
        "predicted": predicted(here, kept, kv_here),
        "measured": three_digits(1 / decode_seconds(model, way.int8_cache)),
    }


def kv_number_bytes(head_dim: int, int8: bool) -> tuple[float, float]:
    """Bytes of a key's number: on a chip, 16 bits or int8 with 16-bit scales, and as kept here."""
    if not int8:
        return 2, 4
    chip, here = (bits_per_weight(head_dim, 8, head_dim, scale) / 8 for scale in (16, 32))
    return chip, here


def three_digits(value: float) -> float:
    return float(f"{value:.3g}")


def measure_depth(bench: Bench) -> None:
    layers, rows = bench.of("layers", "layers"), []
    for kind in ("loss", "influence"):
        for count in DEPTHS:
            left_out = least([row[kind] for row in layers], len(layers) - count)
            found = round(mean_nats(prune_depth(bench.model, left_out), bench.text), 4)
            rows.append({"by": kind, "layers": count, "nats": found})
            print(f"  {rows[-1]}", flush=True)
    bench.write(depth=rows)


def bars(ways: dict[str, dict]) -> list[dict]:
    """Those whose ways were measured."""
    found = []

    def bar(name: str, needed: list[str], value, **limit: float) -> None:
        if all(way in ways for way in needed):
            result = value(*(ways[way] for way in needed))
            ((kind, bound),) = limit.items()
            met = result >= bound if kind == "at_least" else result <= bound
            found.append({"bar": name, **limit, "is": round(result, 3), "met": met})

    bar(
        "of what W8A8 per tensor loses, LLM.int8() wins back",
        ["float32", "W8A8 per tensor", "LLM.int8()"],
        lambda plain, tensor, ours: (
            1 - (ours["nats"] - plain["nats"]) / (tensor["nats"] - plain["nats"])
        ),
        at_least=0.95,
    )
    for bits in (4, 3):
        bar(
            f"INT{bits} g128: nats that AWQ saves",
            [f"INT{bits} RTN, g128", f"INT{bits} AWQ, g128"],
            lambda nearest, aware: nearest["nats"] - aware["nats"],
            at_least=0,
        )
    for bits in (4, 3):
        name = f"INT{bits} AWQ, g128"
        bar(f"{name}: seconds to make", [name], lambda aware: aware["seconds"], at_most=60)
    return found


def run(bench: Bench, asked: list[str]) -> None:
    """The parts that were asked for, in order; a way's name asks for it alone."""
    ways = NAMES if "ways" in asked else [name for name in NAMES if name in asked]
    works = {
        "machine": lambda: measure_machine(bench),
        "layers": lambda: measure_layers(bench),
        "ways": lambda: measure_ways(bench, ways),
        "thresholds": lambda: bench.write(thresholds=threshold_rows(bench.model, bench.text)),
        "carriers": lambda: bench.write(carriers=carrier_rows(bench.model, bench.text)),
        "depth": lambda: measure_depth(bench),
        "outliers": lambda: bench.write(outliers=outlier_rows(bench.model, bench.text)),
    }
    for part, work in works.items():
        if part in asked or (part == "ways" and ways):
            print(part, flush=True)
            started = time.perf_counter()
            work()
            print(f"  {time.perf_counter() - started:.0f} s", flush=True)


def main(asked: list[str]) -> int:
    if unknown := [name for name in asked if name not in PARTS + NAMES]:
        known = ", ".join(map(repr, PARTS + NAMES))
        print(f"no part {unknown[0]!r}: there are {known}", file=sys.stderr)
        return 2
    torch.set_num_threads(THREADS)
    config.update("jaxtyping_disable", True)
    try:
        bench = Bench(*load_smollm2())
        run(bench, asked or PARTS)
    except (ModelNotAvailable, SubmissionError, MissingPart) as error:
        print(error, file=sys.stderr)
        return 1
    except NotImplementedError as error:
        function = traceback.extract_tb(error.__traceback__)[-1].name
        print(f"`{function}` is not written yet, and the bench runs your code", file=sys.stderr)
        return 1
    for row in bench.found["bars"]:
        print(json.dumps(row))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
