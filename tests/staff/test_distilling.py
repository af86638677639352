"""The experiment "who teaches half a model?": its recipe is fair, its figures mean what they say.

Skipped without `tokenizers` (the extra `real`).
"""

from __future__ import annotations

import fcntl
import json

import pytest
import torch

pytest.importorskip("tokenizers")

from assignment.provided.compression import nats
from assignment.provided.data.stories import log_probability
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.training import next_token_loss
from solutions.compression.distillation import kd_loss
from solutions.compression.pruning import loss_without, prune_depth
from tests.staff.distilling import __main__ as make_distil
from tests.staff.distilling import measure, recipe
from tests.staff.distilling.recipe import WAYS, Calibration, Schedule, Search

TARGET = LlamaConfig(
    vocab_size=647, num_layers=3, d_model=16, num_heads=4, num_kv_heads=2, head_dim=4, d_ff=24
)
SEARCH = Search(
    num_layers=(3, 2),
    num_kv_heads=(2, 1),
    d_ff=(24, 20, 16, 12, 8),
    d_model=(16, 12, 9, 8, 7),
    finalists=2,
    trial_steps=1,
)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A recipe of seconds, for an untrained target."""
    target = Llama(TARGET, seed=3).requires_grad_(False)
    schedule = Schedule(4, 2, learning_rate=1e-3, learning_rate_from_scratch=2e-3)
    monkeypatch.setattr(recipe, "target", lambda: target)
    monkeypatch.setattr(recipe, "SCHEDULE", schedule)
    monkeypatch.setattr(make_distil, "SCHEDULE", schedule)
    monkeypatch.setattr(recipe, "SEARCH", SEARCH)
    monkeypatch.setattr(recipe, "CALIBRATION", Calibration(stories=2, tokens=20))
    monkeypatch.setattr(measure, "STORIES", {"validation": 2, "test": 3})
    monkeypatch.setattr(measure, "CURVE_EVERY", 2)
    monkeypatch.setattr(make_distil, "UNFINISHED", tmp_path)
    caches = measure.stories, make_distil.pruned_student
    for cached in caches:
        cached.cache_clear()
    yield tmp_path
    for cached in caches:
        cached.cache_clear()


@pytest.fixture
def student(small):
    return recipe.pruned(recipe.target(), recipe.half_sizes(TARGET)[0], recipe.calibration())[0]


# ---- the recipe --------------------------------------------------------------------------------


def test_a_half_is_a_half():
    for config, least in ((recipe.target().config, 0.475), (TARGET, 0.475)):
        whole = recipe.parameters(Llama(config, seed=None))
        for size in recipe.half_sizes(config):
            assert least * whole <= recipe.parameters(Llama(size, seed=None)) <= whole / 2


def test_calibration_is_of_whole_rows(small):
    tokens = recipe.calibration()
    assert list(tokens.shape) == [2, 20]
    assert (tokens[:, 0] == load_tokenizer().begin).all()
    assert not torch.equal(tokens[0], tokens[1])


def test_layers_go_one_by_one_and_the_least_first(small):
    model, tokens = Llama(TARGET, seed=5).requires_grad_(False), recipe.calibration()
    config = LlamaConfig(**vars(TARGET) | {"num_layers": 1})
    left, removed = recipe.pruned(model, config, tokens)
    first = int(loss_without(model, tokens).argmin())
    assert len(removed) == 2 and first in removed
    second = int(loss_without(prune_depth(model, [first]), tokens).argmin())
    assert sorted([first, [i for i in range(3) if i != first][second]]) == removed
    torch.testing.assert_close(left(tokens), prune_depth(model, removed)(tokens))


def test_the_best_of_the_search_comes_first(small):
    tried = recipe.choose(lambda model: measure.over_grammar(model, "validation").mean)
    assert len(tried) == len(recipe.half_sizes(TARGET)) > SEARCH.finalists
    best, others = tried[: SEARCH.finalists], tried[SEARCH.finalists :]
    assert best[0]["after"] <= best[1]["after"]
    assert all(one["after"] is None for one in others)
    assert max(one["before"] for one in best) <= min(one["before"] for one in others)
    for one in best:  # the trial has trained a copy
        assert measure.over_grammar(one["model"], "validation").mean == one["before"]
        assert one["after"] != one["before"]


def test_ways_differ_in_what_they_are_called_only(student):
    begun = {name: recipe.begun(way, student, seed=1) for name, way in WAYS.items()}
    assert {model.config for model in begun.values()} == {student.config}
    for name, model in begun.items():
        weight = model.layers[0].mlp.up_proj.weight
        pruned = WAYS[name].pruned
        assert torch.equal(weight, student.layers[0].mlp.up_proj.weight) == pruned, name
        alike = next(n for n, way in WAYS.items() if way.pruned == pruned)
        assert torch.equal(weight, begun[alike].layers[0].mlp.up_proj.weight), name
        assert weight.data_ptr() != student.layers[0].mlp.up_proj.weight.data_ptr()
    again = recipe.begun(WAYS["from scratch, on tokens"], student, seed=2)
    other = begun["from scratch, on tokens"]
    assert not torch.equal(again.norm.weight, other.embedding.weight[0])
    assert not torch.equal(again.embedding.weight, other.embedding.weight)


def test_stories_come_once_and_are_others_for_another_seed(small):
    steps = recipe.SCHEDULE.steps
    rows = {}
    for seed in (1, 2):
        batches = recipe.story_batches(seed, steps)
        rows[seed] = {
            tuple(row[mask].tolist())
            for step in range(steps)
            for row, mask in zip(*batches(step), strict=True)
        }
        assert len(rows[seed]) == steps * recipe.SCHEDULE.stories_per_step
    assert not rows[1] & rows[2]


@pytest.mark.parametrize("name", WAYS)
def test_what_a_way_learns_from(student, name):
    way, told = WAYS[name], []
    model = recipe.begun(way, student, seed=1)
    tokens, real = recipe.story_batches(1, recipe.SCHEDULE.steps)(0)
    with torch.no_grad():
        logits, taught = model(tokens), recipe.target()(tokens)
    if way.distilled:
        expected = kd_loss(logits, taught, 1.0, real)
    else:
        expected = next_token_loss(logits, tokens, real)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    losses = recipe.learn(way, model, 1, on_step=lambda step, loss: told.append(loss))
    assert losses[0] == pytest.approx(float(expected), rel=1e-5)
    assert told == losses and len(losses) == recipe.SCHEDULE.steps
    assert all(not torch.equal(before[key], value) for key, value in model.state_dict().items())


def test_the_learning_rate_goes_by_how_one_begins(student, monkeypatch):
    rates = []
    monkeypatch.setattr(
        recipe, "distil", lambda *_, learning_rate, **__: rates.append(learning_rate)
    )
    monkeypatch.setattr(recipe, "optimizers", lambda model, rate: rates.append(rate))
    monkeypatch.setattr(recipe, "train", lambda *_, **__: [])
    for way in WAYS.values():
        recipe.learn(way, recipe.begun(way, student, 1), 1, lambda step, loss: None)
    assert rates == [1e-3 if way.pruned else 2e-3 for way in WAYS.values()]


# ---- the figures -------------------------------------------------------------------------------


def test_nats_over_the_grammar(small):
    texts, documents, sizes = measure.stories("test")
    excess = [
        nats(recipe.target(), torch.tensor([document])) * size + log_probability(text)
        for text, document, size in zip(texts, documents, sizes, strict=True)
    ]
    got = measure.over_grammar(recipe.target(), "test")
    assert got.mean == pytest.approx(sum(excess) / sum(sizes), rel=1e-4)
    assert 0 < got.low < got.mean < got.high


def test_a_curve_begins_before_the_first_step(small):
    model = Llama(TARGET, seed=9).requires_grad_(False)
    curve = measure.Curve(model)
    before = measure.over_grammar(model, "validation").mean
    curve(0, 0.0)
    model.norm.weight.zero_()
    curve(1, 0.0)
    assert [step for step, _ in curve.points] == [0, 2]
    assert curve.points[0][1] == before != curve.points[1][1]


def test_a_gain_is_paired_by_seed():
    """The seeds differ much, ours and theirs do not."""
    figure = measure.gain([1.0, 5.0, 9.0], [2.0, 6.0, 10.5])
    assert figure.mean == pytest.approx(-3.5 / 3)
    assert figure.high < 0


# ---- the command -------------------------------------------------------------------------------


def test_what_is_done_is_not_done_again(small, monkeypatch):
    once = make_distil.results([1, 2])
    monkeypatch.setattr(recipe, "learn", None)
    monkeypatch.setattr(recipe, "choose", None)
    assert json.dumps(make_distil.results([1, 2])) == json.dumps(once)
    for about in once["ways"].values():
        assert [point[0] for point in about["curve"]] == [0, 2, 4]
        assert [run["seed"] for run in about["runs"]] == [1, 2]
    assert once["ways"][once["baseline"]]["minus_baseline"]["mean"] == 0


def test_two_at_once_are_refused(small, capsys):
    with (small / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SystemExit):
            make_distil.main([])
    assert "another make distil" in capsys.readouterr().err
