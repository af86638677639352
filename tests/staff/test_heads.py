"""The experiment "why not simply fewer heads?": its recipe is fair, its figures mean what they say.

Skipped without `tokenizers` (the extra `real`).
"""

from __future__ import annotations

import fcntl
from dataclasses import asdict, replace

import pytest
import torch

pytest.importorskip("tokenizers")

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.exact import ExactLaw
from assignment.provided.data.stories import log_probability
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import LayeredLlama, Llama
from solutions.accounting import memory
from solutions.attention.cross_layer import SharedAttention
from solutions.attention.grouped_query import GroupedQueryAttention
from solutions.attention.kv_cache import KVCache
from solutions.attention.latent import LatentAttention, LatentCache
from tests.staff.heads import __main__ as make_heads
from tests.staff.heads import measure, recipe
from tests.staff.heads.recipe import MHA, MODELS, SCHEDULE

LAYERS = {"full": GroupedQueryAttention, "latent": LatentAttention, "shared": SharedAttention}
EQUAL_SIZE = [name for name in MODELS if "same MLP" not in name]

every_model = pytest.mark.parametrize("name", MODELS)


def parameters(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# ---- the recipe --------------------------------------------------------------------------------


@every_model
def test_all_models_keep_as_much_but_mha_four_times(name):
    config = MODELS[name]
    kept = memory.kv_bytes_per_token(config, 2)
    assert kept == (2048 if name == "MHA" else 512)

    session = LayeredLlama(config, LAYERS).session({"full": KVCache, "latent": LatentCache}, 1, 3)
    session(torch.tensor([[5, 6, 7]]))
    kinds = [layer.kind for layer in config.attention_layers if layer.kind != "shared"]
    tensors = [
        tensor
        for cache, kind in zip(session.caches, kinds, strict=True)
        for tensor in (cache.latents() if kind == "latent" else cache.keys_values())
    ]
    assert sum(tensor.numel() for tensor in tensors) == 3 * kept // 2


@pytest.mark.parametrize("name", EQUAL_SIZE)
def test_models_have_as_many_parameters(name):
    expected = parameters(recipe.made(MHA, 1))
    assert parameters(recipe.made(MODELS[name], 1)) == pytest.approx(expected, rel=0.001)


def test_only_the_two_with_the_same_mlp_are_smaller():
    assert len(MODELS) - len(EQUAL_SIZE) == 2
    for name in set(MODELS) - set(EQUAL_SIZE):
        assert MODELS[name].d_ff == MHA.d_ff
        assert parameters(recipe.made(MODELS[name], 1)) < parameters(recipe.made(MHA, 1))


@every_model
def test_nothing_else_differs(name):
    """In what has nothing to do with attention; and only "2 heads" has fewer query heads."""
    config = MODELS[name]
    same = ("vocab_size", "num_layers", "d_model", "rope_theta", "norm_eps", "tie_embeddings")
    assert {key: asdict(config)[key] for key in same} == {key: asdict(MHA)[key] for key in same}
    assert config.num_heads == (2 if name.startswith("2 heads") else MHA.num_heads)
    assert config.vocab_size == load_tokenizer().vocab_size


def test_a_llama_is_the_layered_llama_of_full_layers():
    """`made` takes it because it is faster; the models that are compared are of one kind."""
    config = MODELS["GQA"]
    quick, slow = recipe.made(config, 7), LayeredLlama(config, LAYERS, seed=7)
    assert isinstance(quick, Llama)
    tokens = torch.arange(40).view(2, 20)
    torch.testing.assert_close(quick(tokens), slow(tokens), rtol=1e-4, atol=1e-4)
    assert isinstance(recipe.made(MODELS["MLA"], 7), LayeredLlama)
    assert isinstance(recipe.made(MODELS["CLA2"], 7), LayeredLlama)


# ---- the loss ----------------------------------------------------------------------------------


class Oracle(torch.nn.Module):
    """Knows the grammar; with `mix`, it is unsure."""

    def __init__(self, mix: float = 0.0):
        super().__init__()
        self.law, self.mix = ExactLaw(load_tokenizer()), mix

    def forward(self, tokens):
        logits = torch.full((*tokens.shape, MHA.vocab_size), -1e9)
        end = next(iter(load_tokenizer().stop_tokens))
        for row, ids in zip(logits, tokens.tolist(), strict=True):
            law = self.law(ids[: ids.index(end) + 1])
            law = (1 - self.mix) * law + self.mix / MHA.vocab_size
            row[: len(law)] = law.log().clamp(min=-1e9)
        return logits


def test_the_loss_is_zero_for_who_knows_the_grammar_and_no_one_else():
    assert float(recipe.StoryLoss(Oracle(), 1, seed=1)(0)) == pytest.approx(0, abs=1e-5)
    assert float(recipe.StoryLoss(Oracle(mix=0.1), 1, seed=1)(0)) > 0.05


def test_stories_come_once_and_in_an_order_that_only_the_seed_decides(monkeypatch):
    asked = []

    def texts(split, count, start=0):
        asked.append((split, start, start + count))
        return story_texts(split, count, start)

    monkeypatch.setattr(recipe, "story_texts", texts)
    losses = [recipe.StoryLoss(None, 3, seed) for seed in (1, 1, 2)]
    rows = [[loss._batches(step)[0].tolist() for step in range(3)] for loss in losses]
    assert rows[0] == rows[1] != rows[2]
    stories = [str(row) for batch in rows[0] for row in batch]
    assert len(set(stories)) == 3 * SCHEDULE.stories_per_step
    assert asked == [("train", 0, 3 * SCHEDULE.stories_per_step)] * 3


# ---- from MHA to GQA ---------------------------------------------------------------------------


def alike_heads() -> Llama:
    """An MHA model whose heads have the same keys and values within each group."""
    model = Llama(MHA, seed=3).requires_grad_(False)
    for layer in model.layers:
        for projection in (layer.attention.k_proj, layer.attention.v_proj):
            groups = projection.weight.view(recipe.CONVERTED.num_kv_heads, -1, 16, 128)
            groups.copy_(groups[:, :1].clone().expand_as(groups))
    return model


@torch.no_grad()
def test_merging_heads_that_are_alike_changes_nothing_unless_they_are_drawn_anew():
    mha, tokens = alike_heads(), torch.arange(30)[None]
    before = mha(tokens)
    for merge in recipe.MERGES:
        model = recipe.merged(mha, merge, seed=1)
        same = torch.allclose(model(tokens), before, rtol=1e-4, atol=1e-4)
        assert same == (merge != "random"), merge
        assert model.config == (MHA if merge == "none" else recipe.CONVERTED)


@torch.no_grad()
def test_mean_and_first_are_what_they_are_called_and_the_model_keeps_its_weights():
    mha = Llama(MHA, seed=3).requires_grad_(False)
    kept = {name: weight.clone() for name, weight in mha.state_dict().items()}
    heads = mha.layers[1].attention.v_proj.weight.view(2, 4, 16, 128)
    for merge, expected in (("mean", heads.mean(dim=1)), ("first", heads[:, 0])):
        weight = recipe.merged(mha, merge, seed=1).layers[1].attention.v_proj.weight
        torch.testing.assert_close(weight.view(2, 16, 128), expected)
    uptrained = recipe.merged(mha, "none", seed=1)
    uptrained.norm.weight.fill_(3)
    assert all(torch.equal(kept[name], weight) for name, weight in mha.state_dict().items())


# ---- the figures -------------------------------------------------------------------------------


def test_the_interval_over_seeds_is_students():
    figure = measure.over_seeds([1.0, 2.0, 3.0])
    assert figure.mean == 2
    # With 2 degrees of freedom, t / √(2 + t²) of all draws lie within ±t: here 0.95.
    t = (2 * 0.95**2 / (1 - 0.95**2)) ** 0.5
    assert figure.high - 2 == pytest.approx(t / 3**0.5, rel=1e-4)
    assert 2 - figure.low == pytest.approx(t / 3**0.5, rel=1e-4)


def test_what_is_over_the_grammar_is_nothing_for_who_knows_it(monkeypatch):
    texts = list(story_texts("test", 4))
    documents = [load_tokenizer().document(text) for text in texts]
    sizes = [len(document) - 1 for document in documents]
    monkeypatch.setattr(measure, "test_stories", lambda: (texts, documents, sizes))
    figures = measure.figures(Oracle())
    assert figures["over_grammar"]["mean"] == pytest.approx(0, abs=1e-5)
    true = -sum(map(log_probability, texts)) / sum(sizes)
    assert figures["nats"]["mean"] == pytest.approx(true, abs=1e-5)
    assert figures["answered"]["mean"] > 0.7  # some questions have several right answers


# ---- the command -------------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch, tmp_path):
    """A recipe of seconds."""
    mha = replace(MHA, num_layers=1, d_model=32, d_ff=16, head_dim=4)
    models = {"MHA": mha, "2 heads": replace(mha, num_heads=2, num_kv_heads=2)}
    schedule = recipe.Schedule(steps=4, learning_rate=1e-3, warm_up=1, stories_per_step=2)
    texts = list(story_texts("test", 3))
    documents = [load_tokenizer().document(text) for text in texts]
    sizes = [len(document) - 1 for document in documents]
    for module in (recipe, make_heads):
        monkeypatch.setattr(module, "MODELS", models)
        monkeypatch.setattr(module, "SCHEDULE", schedule)
        monkeypatch.setattr(module, "CONVERTED", replace(mha, num_kv_heads=2))
    monkeypatch.setattr(make_heads, "UPTRAINING_STEPS", (0, 2))
    monkeypatch.setattr(make_heads, "LOSS_EVERY", 2)
    monkeypatch.setattr(make_heads, "UNFINISHED", tmp_path)
    monkeypatch.setattr(measure, "test_stories", lambda: (texts, documents, sizes))
    return tmp_path


def test_what_is_done_is_not_done_again(small, monkeypatch):
    once = make_heads.results([1, 2])
    monkeypatch.setattr(make_heads, "train", None)
    assert make_heads.results([1, 2]) == once
    assert all(len(run["losses"]) == 2 for run in once["models"]["2 heads"]["runs"])
    nats = [once["uptraining"]["merges"][merge]["nats"] for merge in recipe.MERGES]
    assert all(len(of_one) == 2 and of_one[0] != of_one[1] for of_one in nats)


def test_two_at_once_are_refused(small, capsys):
    with (small / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SystemExit):
            make_heads.main([])
    assert "another make heads" in capsys.readouterr().err
