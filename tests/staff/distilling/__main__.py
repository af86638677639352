"""Halve the toy target, train the half in four ways, and write notebooks/distilling.json.

    python -m tests.staff.distilling

One training at a time. It can be stopped and called again: build/distilling keeps what is done.
"""

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path

import torch
from rich.console import Console

from assignment.provided.models import Llama, LlamaConfig
from tests.staff.distilling import measure, recipe
from tests.staff.distilling.recipe import BASELINE, SCHEDULE, SEEDS, WAYS
from tests.staff.heads.measure import over_seeds
from tests.staff.unfinished import run_alone
from tests.staff.weights.guess_card import LOSS_EVERY, curve

REPOSITORY = Path(__file__).resolve().parents[3]
RESULTS = REPOSITORY / "notebooks" / "distilling.json"
UNFINISHED = REPOSITORY / "build" / "distilling"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make distil", description=__doc__.split("\n")[0])
    parser.parse_args(arguments)
    return run_alone(parser, UNFINISHED, _make)


def _make() -> None:
    torch.set_num_threads(1)  # models this small gain nothing from more
    text = json.dumps(results(SEEDS), indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", encoding="utf-8")


# ---- the results -------------------------------------------------------------------------------


def results(seeds: Sequence[int]) -> dict:
    """What distilling.json says. What is not done yet is done now."""
    tried, student = search(), pruned_student()
    runs = {name: [] for name in WAYS}
    for seed in seeds:  # seed by seed: what is stopped has whole comparisons
        for name in WAYS:
            runs[name].append(trained(name, seed))
    return {
        "schedule": asdict(SCHEDULE),
        "seeds": list(seeds),
        "stories": measure.STORIES,
        "grammar_nats": asdict(measure.grammar_nats()),
        "loss_every": LOSS_EVERY,
        "trial_steps": recipe.SEARCH.trial_steps,
        "baseline": BASELINE,
        "target": untrained("target", recipe.target()),
        "sizes": tried,
        "student": untrained("pruned", student) | {"layers_removed": tried[0]["layers_removed"]},
        "ways": {name: _about(runs, name) for name in WAYS},
        "by_distilling": {
            "pruned": _difference(runs, "pruned, distilled", "pruned, on tokens"),
            "from scratch": _difference(runs, "from scratch, distilled", BASELINE),
        },
    }


def _about(runs: dict[str, list[dict]], name: str) -> dict:
    points = zip(*(run["curve"] for run in runs[name]), strict=True)
    return {
        "over_grammar": asdict(over_seeds(_means(runs[name]))),
        "minus_baseline": _difference(runs, name, BASELINE),
        "curve": [[at[0][0], sum(nats for _, nats in at) / len(at)] for at in points],
        "runs": runs[name],
    }


def _difference(runs: dict[str, list[dict]], ours: str, theirs: str) -> dict:
    return asdict(measure.gain(_means(runs[ours]), _means(runs[theirs])))


def _means(runs: list[dict]) -> list[float]:
    return [run["over_grammar"]["mean"] for run in runs]


# ---- what is done once ---------------------------------------------------------------------------


def search() -> list[dict]:
    """The sizes that were tried, the best first."""

    def tried() -> list[dict]:
        return [
            {
                "config": asdict(one["model"].config),
                "parameters": recipe.parameters(one["model"]),
                "layers_removed": one["layers_removed"],
                "before": one["before"],
                "after": one["after"],
            }
            for one in recipe.choose(lambda model: measure.over_grammar(model, "validation").mean)
        ]

    return _once("sizes", tried)


@cache
def pruned_student() -> Llama:
    """The target in the best sizes, before any training."""
    config = LlamaConfig(**search()[0]["config"])
    return recipe.pruned(recipe.target(), config, recipe.calibration())[0]


def untrained(name: str, model: Llama) -> dict:
    about = {"config": asdict(model.config), "parameters": recipe.parameters(model)}
    return about | _once(name, lambda: _tested(model))


def _tested(model: Llama) -> dict:
    return {"over_grammar": asdict(measure.over_grammar(model, "test"))}


def trained(name: str, seed: int) -> dict:
    """A training, and what the student can do then."""

    def run() -> dict:
        way = WAYS[name]
        model = recipe.begun(way, pruned_student(), seed)
        on_the_way = measure.Curve(model)
        losses = recipe.learn(way, model, seed, on_the_way)
        result = {"seed": seed, "losses": curve(losses), "curve": on_the_way.points}
        return result | _tested(model)

    result = _once(f"{name} {seed}", run)
    nats = result["over_grammar"]["mean"]
    Console(stderr=True).print(f"{name}, seed {seed}: {nats:.3f} nats over the grammar")
    return result


def _once(name: str, make: Callable[[], list | dict]) -> list | dict:
    """What `make` returns, as JSON has it; kept in a file, of another recipe another."""
    described = repr([SCHEDULE, recipe.SEARCH, recipe.CALIBRATION, measure.STORIES])
    digest = hashlib.sha256(described.encode()).hexdigest()[:8]
    path = UNFINISHED / f"{re.sub('[^a-z0-9]+', '-', name.lower())}-{digest}.json"
    if not path.exists():
        part = path.with_suffix(".part")
        part.write_text(json.dumps(make()), encoding="utf-8")
        part.replace(path)
    return json.loads(path.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
