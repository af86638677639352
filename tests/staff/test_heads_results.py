"""notebooks/heads.json: complete, of the recipe as it is, and as the notebook tells it.

Skipped without `tokenizers` (the extra `real`).
"""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

pytest.importorskip("tokenizers")

from solutions.accounting import memory
from tests.staff.heads import __main__ as make_heads
from tests.staff.heads import measure, recipe
from tests.staff.heads.recipe import MODELS, SCHEDULE, SEEDS

RESULTS = json.loads(make_heads.RESULTS.read_text(encoding="utf-8"))


def test_the_results_are_of_this_recipe():
    assert RESULTS["schedule"] == asdict(SCHEDULE), "the recipe changed: run `make heads`"
    assert RESULTS["seeds"] == list(SEEDS)
    assert RESULTS["test_stories"] == measure.TEST_STORIES
    assert list(RESULTS["models"]) == list(MODELS)
    assert list(RESULTS["uptraining"]["merges"]) == list(recipe.MERGES)
    assert RESULTS["uptraining"]["steps"] == list(recipe.UPTRAINING_STEPS)
    assert RESULTS["uptraining"]["kv_heads"] == recipe.CONVERTED.num_kv_heads
    assert RESULTS["baseline"] in MODELS


@pytest.mark.parametrize("name", MODELS)
def test_a_models_results_are_complete_and_fit_together(name):
    about, config = RESULTS["models"][name], MODELS[name]
    assert about["config"] == json.loads(json.dumps(asdict(config)))
    assert about["parameters"] == sum(p.numel() for p in recipe.made(config, 1).parameters())
    assert about["kv_bytes_per_token"] == memory.kv_bytes_per_token(config)
    runs = about["runs"]
    baseline = RESULTS["models"][RESULTS["baseline"]]["runs"]
    assert [run["seed"] for run in runs] == list(SEEDS)
    for run in runs:
        assert len(run["losses"]) * RESULTS["loss_every"] == SCHEDULE.steps
        assert run["losses"][-1] < run["losses"][0] / 4  # it did learn
        check_figures(run)
    for key in make_heads.MEASURED:
        assert about[key] == asdict(measure.over_seeds([run[key]["mean"] for run in runs]))
    gains = [
        ours["over_grammar"]["mean"] - theirs["over_grammar"]["mean"]
        for ours, theirs in zip(runs, baseline, strict=True)
    ]
    assert about["minus_baseline"] == asdict(measure.over_seeds(gains))


def check_figures(run):
    for key in make_heads.MEASURED:
        assert run[key]["low"] <= run[key]["mean"] <= run[key]["high"]
    # The surprise is the grammar's own and what comes on top; on these stories, not on average.
    own = run["nats"]["mean"] - run["over_grammar"]["mean"]
    assert own == pytest.approx(RESULTS["grammar_nats"]["mean"], abs=0.02)
    assert run["over_grammar"]["low"] > 0
    assert 0 <= run["answered"]["mean"] <= 1


@pytest.mark.parametrize("merge", recipe.MERGES)
def test_a_merges_results_are_complete_and_fit_together(merge):
    about = RESULTS["uptraining"]["merges"][merge]
    assert [run["seed"] for run in about["runs"]] == list(SEEDS)
    for i, _ in enumerate(recipe.UPTRAINING_STEPS):
        for run in about["runs"]:
            check_figures({key: run[key][i] for key in make_heads.MEASURED})
        for key in make_heads.MEASURED:
            means = [run[key][i]["mean"] for run in about["runs"]]
            assert about[key][i] == asdict(measure.over_seeds(means))
    if merge == "none":  # untrained further, it is the MHA model
        for run, mha in zip(about["runs"], RESULTS["models"]["MHA"]["runs"], strict=True):
            assert run["nats"][0]["mean"] == pytest.approx(mha["nats"]["mean"], rel=1e-5)


def test_what_the_notebook_says_of_them_is_so():
    """notebooks/attention.ipynb has it in words; other results need other words there."""
    gain = {name: about["minus_baseline"] for name, about in RESULTS["models"].items()}
    assert RESULTS["baseline"] == "2 heads"
    assert all(gain[name]["high"] < 0 for name in ("MHA", "MQA", "CLA2"))
    assert all(gain[name]["mean"] < 0 < gain[name]["high"] for name in ("GQA", "MLA"))
    assert gain["8 small heads"]["low"] > 0
    mqa, mha = (RESULTS["models"][name]["over_grammar"] for name in ("MQA", "MHA"))
    assert mqa["low"] < mha["mean"] < mqa["high"]

    after = {merge: RESULTS["uptraining"]["merges"][merge]["nats"] for merge in recipe.MERGES}
    scratch = RESULTS["models"]["GQA, same MLP"]["nats"]
    assert after["none"][0]["high"] + 1 < after["mean"][0]["low"]
    assert after["mean"][0]["high"] < after["first"][0]["low"]
    assert after["first"][0]["high"] < after["random"][0]["low"]
    assert scratch["high"] < after["mean"][-1]["low"]
    assert after["none"][0]["mean"] < after["none"][-1]["mean"]
