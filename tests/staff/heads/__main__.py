"""Train the models of the experiment, or what is left of them, and write notebooks/heads.json.

    python -m tests.staff.heads

Part A: models that keep equally much a token, in different ways. Part B: MHA turned into GQA.
It can be stopped and called again: build/heads keeps what was trained and measured.
"""

import argparse
import hashlib
import json
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import partial
from multiprocessing import Pool
from pathlib import Path

import torch

from assignment.provided.models import Llama
from assignment.provided.models.training import optimizers, train
from solutions.accounting.memory import kv_bytes_per_token
from tests.staff.heads.measure import TEST_STORIES, figures, grammar_nats, over_seeds
from tests.staff.heads.recipe import (
    CONVERTED,
    MERGES,
    MODELS,
    SCHEDULE,
    SEEDS,
    UPTRAINING_STEPS,
    StoryLoss,
    made,
    merged,
)
from tests.staff.unfinished import run_alone

REPOSITORY = Path(__file__).resolve().parents[3]
RESULTS = REPOSITORY / "notebooks" / "heads.json"
UNFINISHED = REPOSITORY / "build" / "heads"
PARALLEL = 2
LOSS_EVERY = 25  # steps that a point of the curve is the mean of
BASELINE = "2 heads"
MEASURED = ("nats", "over_grammar", "answered")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make heads", description=__doc__.split("\n")[0])
    parser.parse_args(arguments)
    return run_alone(parser, UNFINISHED, _make)


def _make() -> None:
    with Pool(PARALLEL, initializer=_as_worker) as pool:  # leaving it ends what still runs
        for seed in SEEDS:
            _report(pool.imap(partial(trained, seed=seed), MODELS))
            _report(pool.imap(partial(converted, seed=seed), MERGES))
    text = json.dumps(results(SEEDS), indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", encoding="utf-8")


def _as_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    torch.set_num_threads(1)


def _report(runs: Iterable[dict]) -> None:
    for run in runs:
        figures = run["over_grammar"]
        means = [figure["mean"] for figure in (figures if isinstance(figures, list) else [figures])]
        numbers = ", ".join(f"{mean:.3f}" for mean in means)
        print(f"{run['name']}, seed {run['seed']}: {numbers} nats over the grammar", flush=True)


# ---- the results -------------------------------------------------------------------------------


def results(seeds: Sequence[int]) -> dict:
    """What heads.json says. All runs of these seeds are done."""
    of_models = {name: [trained(name, seed) for seed in seeds] for name in MODELS}
    of_merges = {merge: [converted(merge, seed) for seed in seeds] for merge in MERGES}
    baseline = [_mean(run) for run in of_models[BASELINE]]
    return {
        "schedule": asdict(SCHEDULE),
        "seeds": list(seeds),
        "test_stories": TEST_STORIES,
        "grammar_nats": asdict(grammar_nats()),
        "loss_every": LOSS_EVERY,
        "baseline": BASELINE,
        "models": {name: _about(name, runs, baseline) for name, runs in of_models.items()},
        "uptraining": {
            "kv_heads": CONVERTED.num_kv_heads,
            "steps": list(UPTRAINING_STEPS),
            "merges": {merge: _after(runs) for merge, runs in of_merges.items()},
        },
    }


def _about(name: str, runs: list[dict], baseline: list[float]) -> dict:
    config = MODELS[name]
    gains = [_mean(run) - other for run, other in zip(runs, baseline, strict=True)]
    return {
        "config": asdict(config),
        "parameters": sum(p.numel() for p in made(config, seed=1).parameters()),
        "kv_bytes_per_token": kv_bytes_per_token(config),
        **{key: asdict(over_seeds([_mean(run, key) for run in runs])) for key in MEASURED},
        "minus_baseline": asdict(over_seeds(gains)),  # seed by seed: the same stories, in one order
        "runs": [_without_name(run) for run in runs],
    }


def _after(runs: list[dict]) -> dict:
    """A list for each figure, one entry for each number of steps."""
    entries = range(len(UPTRAINING_STEPS))
    means = {
        key: [asdict(over_seeds([run[key][i]["mean"] for run in runs])) for i in entries]
        for key in MEASURED
    }
    return {**means, "runs": [_without_name(run) for run in runs]}


def _mean(run: dict, key: str = "over_grammar") -> float:
    return run[key]["mean"]


def _without_name(run: dict) -> dict:
    return {key: value for key, value in run.items() if key != "name"}


# ---- one run -----------------------------------------------------------------------------------


def trained(name: str, seed: int) -> dict:
    """Part A: a model from scratch, and what it can do then."""
    path = _file(name, seed, ".json")
    if not path.exists():
        model = made(MODELS[name], seed)
        losses = _train(model, StoryLoss(model, SCHEDULE.steps, seed), SCHEDULE.steps, name, seed)
        _keep(path, {"name": name, "seed": seed, "losses": _means(losses), **figures(model)})
    return json.loads(path.read_text(encoding="utf-8"))


def converted(merge: str, seed: int) -> dict:
    """Part B: the MHA model of this seed, its KV heads merged, before and after uptraining on
    stories that it has not seen."""
    path = _file(f"uptrained {merge}", seed, ".json")
    if not path.exists():
        mha = made(MODELS["MHA"], seed)
        mha.load_state_dict(torch.load(_file("MHA", seed, ".pt"))["model"])
        after = []
        for steps in UPTRAINING_STEPS:
            model = merged(mha, merge, seed)
            _uptrain(model, steps, merge, seed)
            after.append(figures(model))
        _keep(path, {"name": merge, "seed": seed, **_transposed(after)})
    return json.loads(path.read_text(encoding="utf-8"))


def _uptrain(model: Llama, steps: int, merge: str, seed: int) -> None:
    if steps:
        seen = SCHEDULE.steps * SCHEDULE.stories_per_step
        _train(model, StoryLoss(model, steps, seed, start=seen), steps, f"{merge} {steps}", seed)


def _train(model: torch.nn.Module, loss: StoryLoss, steps: int, name: str, seed: int) -> list:
    return train(
        model,
        loss,
        optimizers(model, SCHEDULE.learning_rate),
        steps,
        warm_up=SCHEDULE.warm_up * steps // SCHEDULE.steps,
        checkpoint=_file(name, seed, ".pt"),
        recipe=f"{SCHEDULE}, seed {seed}",
    )


def _file(name: str, seed: int, suffix: str) -> Path:
    """Of another recipe, another file."""
    recipe = repr((MODELS, SCHEDULE, TEST_STORIES))
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:8]
    return UNFINISHED / f"{re.sub('[^a-z0-9]+', '-', name.lower())}-{seed}-{digest}{suffix}"


def _keep(path: Path, run: dict) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(run), encoding="utf-8")
    part.replace(path)


def _means(losses: list[float]) -> list[float]:
    groups = [losses[start : start + LOSS_EVERY] for start in range(0, len(losses), LOSS_EVERY)]
    return [round(sum(group) / len(group), 4) for group in groups]


def _transposed(rows: list[dict]) -> dict[str, list]:
    return {key: [row[key] for row in rows] for key in rows[0]}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
