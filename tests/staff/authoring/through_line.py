"""The picture that runs through the course: one model on one chip, and what each technique changes.

    python -m tests.staff.authoring.through_line [--check]

It writes tests/grading/page/through_line.json, from which the report's page says where a student
is. A design is a model that can be built from some techniques. A student's is the best of those
whose techniques they have all solved; so one that another design beats with fewer techniques is
left out. To add a technique: an entry in TECHNIQUES, and what it changes in `setup`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path

from assignment.provided.lab import CHIPS
from assignment.provided.models import AttentionLayer, LlamaConfig
from solutions.accounting import latency, memory
from solutions.attention.cross_layer import kv_owners
from tests.grading.course import load_course
from tests.staff.authoring.source import ROOT

FILE = Path("tests/grading/page/through_line.json")
MODEL, CHIP = "Llama 2 13B", CHIPS["H100"]
LENGTH = 4096  # tokens of each sequence: all that Llama 2 was trained for
BATCH = 16  # sequences: as many as fit with all keys and values of all heads

KV_HEADS = 8  # as Llama 2 70B
LATENT, ROPE = 512, 64  # as DeepSeek-V2
WINDOW, PERIOD = 1024, 6  # as Character.AI: one layer in six sees everything
SHARE = 2  # layers


@dataclass(frozen=True)
class Technique:
    """What a problem of the course earns. `means` is what it changes in the model, as a phrase."""

    name: str
    title: str
    problem: str
    means: str


TECHNIQUES = (
    Technique(
        "cache",
        "KV cache",
        "attention.kv_cache",
        "keys and values are kept, not computed again for each token",
    ),
    Technique("grouped", "GQA", "attention.grouped_query", f"{KV_HEADS} KV heads in place of 40"),
    Technique(
        "latent",
        "latent attention",
        "attention.latent",
        f"a token keeps {LATENT} + {ROPE} numbers a layer, in place of keys and values",
    ),
    Technique(
        "window",
        "sliding windows",
        "attention.sliding_window",
        f"five layers in six see the last {WINDOW:,} tokens only, and keep keys and values of "
        "these, also where the others keep latents",
    ),
    Technique(
        "shared",
        "shared layers",
        "attention.cross_layer",
        "two layers keep one set of keys and values, and both read it",
    ),
)


@dataclass(frozen=True)
class Setup:
    """A model as it is run. Without a cache, every token costs a pass over its whole sequence."""

    config: LlamaConfig
    cached: bool
    weight_bytes: float = 2
    kv_bytes: float = 2


@dataclass(frozen=True)
class Figures:
    """latency: seconds a token with BATCH sequences. throughput: tokens a second with as many

    sequences as fit. largest_batch: how many that are; None where nothing is kept of them.
    kv_bytes_per_sequence: of LENGTH tokens.
    """

    latency: float
    throughput: float
    largest_batch: int | None
    kv_bytes_per_sequence: float
    weight_bytes: float


def setup(techniques: Collection[str]) -> Setup:
    """The model that these techniques make together.

    Latents replace keys and values where a layer sees everything; a layer with a window keeps those
    of its KV heads. Sharing is for layers with keys and values, each with its own kind.
    """
    windows = [WINDOW if "window" in techniques and layer % PERIOD else None for layer in range(40)]
    owners = kv_owners(windows, share=SHARE if "shared" in techniques else 1)
    layers = []
    for layer, (window, owner) in enumerate(zip(windows, owners, strict=True)):
        if window is None and "latent" in techniques:
            layers.append(AttentionLayer(latent_dim=LATENT, rope_dim=ROPE))
        elif owner != layer:
            layers.append(AttentionLayer(reads=owner))
        else:
            layers.append(AttentionLayer(window=window))
    config = LlamaConfig(
        vocab_size=32_000,
        num_layers=40,
        d_model=5120,
        num_heads=40,
        num_kv_heads=KV_HEADS if "grouped" in techniques else 40,
        head_dim=128,
        d_ff=13_824,
        tie_embeddings=False,
        attention=tuple(layers),
    )
    return Setup(config, cached="cache" in techniques)


def figures(made: Setup) -> Figures:
    config, sizes = made.config, (made.weight_bytes, made.kv_bytes)
    weights = memory.weight_bytes(config, made.weight_bytes)
    if not made.cached:  # the whole batch again for each token, and more sequences help nothing
        again = latency.time_to_first_token(config, CHIP, LENGTH, BATCH, made.weight_bytes)
        return Figures(again, BATCH / again, None, 0, weights)
    most = memory.largest_batch(config, CHIP, LENGTH, *sizes)
    return Figures(
        latency=latency.decode_latency(config, CHIP, BATCH, LENGTH, *sizes),
        throughput=latency.decode_throughput(config, CHIP, most, LENGTH, *sizes),
        largest_batch=most,
        kv_bytes_per_sequence=memory.kv_bytes(config, [LENGTH], made.kv_bytes),
        weight_bytes=weights,
    )


def designs(names: Iterable[str]) -> dict[frozenset[str], Figures]:
    """The designs of these techniques that no design of fewer of them beats."""
    names = list(names)
    found: dict[frozenset[str], Figures] = {}
    for size in range(len(names) + 1):
        for chosen in map(frozenset, combinations(names, size)):
            made = figures(setup(chosen))
            less = (other for techniques, other in found.items() if techniques < chosen)
            if all(other.throughput < made.throughput for other in less):
                found[chosen] = made
    return found


def content(root: Path = ROOT) -> str:
    """The file's text, for the techniques whose problem the course has."""
    problems = load_course(root / "tests" / "course.toml").problems
    techniques = [technique for technique in TECHNIQUES if technique.problem in problems]
    names = [technique.name for technique in techniques]
    made = [
        {
            "techniques": [name for name in names if name in chosen],
            **{name: _rounded(value) for name, value in asdict(found).items()},
        }
        for chosen, found in designs(names).items()
    ]
    place = {"model": MODEL, "chip": CHIP.name, "length": LENGTH, "batch": BATCH}
    return _one_entry_a_line(place | {"techniques": list(map(asdict, techniques)), "designs": made})


def _rounded(value: float | None) -> float | None:
    """Six digits: what is left is the same on every machine."""
    if value is None:
        return None
    short = float(f"{value:.6g}")
    return int(short) if short.is_integer() else short


def _one_entry_a_line(data: dict) -> str:
    lines = []
    for name, value in data.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list):
            entries = ",\n".join(f"  {json.dumps(entry, ensure_ascii=False)}" for entry in value)
            text = f"[\n{entries}\n ]"
        lines.append(f' "{name}": {text}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.staff.authoring.through_line")
    parser.add_argument("--check", action="store_true", help="only say whether it is current")
    file, text = root / FILE, content(root)
    if not parser.parse_args(arguments).check:
        file.write_text(text, encoding="utf-8")
        return 0
    if file.is_file() and file.read_text(encoding="utf-8") == text:
        return 0
    print(f"{FILE} is out of date: run `python -m tests.staff.authoring.through_line`")
    return 1


if __name__ == "__main__":
    sys.exit(main())
