"""The committed EAGLE layer against its card and its bars, and the way it is trained and measured.

Skipped without `tokenizers` (the extra `real`).
"""

import json
from dataclasses import asdict, replace

import pytest
import torch

pytest.importorskip("tokenizers")

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models.llama import draw_weights
from assignment.provided.models.toy import WEIGHTS, load_heads, load_toy
from solutions.speculative.medusa import tree_parents
from tests.staff.weights import eagle, eagle_card, rounds

FIGURES = {name: json.loads((WEIGHTS / f"{name}.json").read_text()) for name in ("eagle", "medusa")}
STORIES = 12


@pytest.fixture(scope="module")
def target():
    return load_toy("target")


@pytest.fixture(scope="module")
def drafter(target):
    return eagle.loaded(target, load_heads("eagle"))


def test_it_is_what_its_recipe_and_its_card_say(drafter):
    figures = FIGURES["eagle"]
    assert figures["recipe"] == asdict(eagle.RECIPE), "changed: run `make weights ARGS=eagle`"
    assert figures["parameters"] == sum(p.numel() for p in drafter.parameters())
    assert figures["file_bytes"] == (WEIGHTS / "eagle.safetensors").stat().st_size <= 2_000_000
    assert (WEIGHTS / "eagle.md").read_text() == eagle_card.page(figures, FIGURES["medusa"])
    choices = [tuple(choice) for choice in figures["choices"]]
    assert len(tree_parents(choices)) == 1 + eagle.GUESSES == 1 + len(FIGURES["medusa"]["choices"])


@pytest.mark.parametrize("way", ["chain", "tree"])
@pytest.mark.parametrize("temperature", eagle.TEMPERATURES)
def test_tokens_a_round_are_the_cards(target, drafter, way, temperature):
    figures = FIGURES["eagle"]
    draft = figures["num_draft"] if way == "chain" else list(map(tuple, figures["choices"]))
    prompts = rounds.prompts_of("test", STORIES)
    answers, pasts = eagle.decoded(target, drafter, draft, prompts, temperature)
    if way == "tree" or temperature == 0:
        told = rounds.told(target, prompts, temperature)
        expected = [text[len(prompt) :] for text, prompt in zip(told, prompts, strict=True)]
        assert answers == expected, "not the target's tokens"
    share = sum(len(a) - 1 for a in answers) / sum(len(past.kept) for past in pasts)
    assert share == pytest.approx(
        figures["tokens_a_round"][str(temperature)][way]["mean"], rel=0.15
    )


def test_the_cards_figures_meet_the_bars():
    """More tokens a round than the draft model's chain and than Medusa's tree of the same size."""
    ours, medusa = (FIGURES[name]["tokens_a_round"] for name in ("eagle", "medusa"))
    for of_eagle in ours.values():
        assert of_eagle["chain"]["low"] > of_eagle["draft"]["high"]
    assert ours["0.0"]["tree"]["low"] > ours["0.0"]["chain"]["high"]
    assert all(ours[t]["tree"]["low"] > medusa[t]["tree"]["high"] for t in ours)


def test_acceptance_by_position():
    stories = [[(4, 4), (4, 0), (4, 2)], [(2, 2), (4, 1), (0, 0)]]
    means = [figure.mean for figure in eagle.by_position(stories, 4)]
    assert means == pytest.approx([4 / 5, 3 / 4, 1 / 2, 1])


def test_a_short_training(target, tmp_path):
    """Learns; and what it is in the target's units says the same as what was trained."""
    tokenizer = load_tokenizer()
    documents = [tokenizer.document(text) for text in story_texts("train", 60)]
    recipe = replace(eagle.RECIPE, steps=8, warm_up=2, stories_per_step=4)
    drafter, losses = eagle.trained(recipe, documents, target, tmp_path)
    assert losses[-1] < 0.95 * losses[0]
    again, same = eagle.trained(recipe, documents, target, tmp_path)  # from its checkpoint
    assert losses == same
    for name, weight in drafter.state_dict().items():
        assert torch.equal(weight, again.state_dict()[name]), name


def test_the_targets_units(target):
    """What was trained on features and embeddings of size 1, for those of the target."""
    embedding, size = target.embedding.weight, 12.0
    trained = eagle.EagleDrafter(target.config, embedding / embedding.square().mean().sqrt())
    draw_weights(trained, seed=0)
    there = eagle.in_the_targets_units(trained, target, size)
    features = torch.randn(1, 9, target.config.d_model, generator=torch.Generator().manual_seed(1))
    tokens = torch.arange(9)[None]
    with torch.no_grad():
        expected, got = size * trained(features, tokens), there(size * features, tokens)
    assert torch.allclose(got, expected, rtol=1e-3, atol=1e-3 * size)
