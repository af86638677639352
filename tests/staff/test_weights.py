"""The committed toy models against their bars and their cards, and the way they are measured.

Skipped without `tokenizers` (the extra `real`).
"""

import fcntl
import json
import math
from dataclasses import asdict, replace

import pytest
import torch

pytest.importorskip("tokenizers")

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.stories import log_probability, sample
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import Llama, LlamaConfig
from assignment.provided.models.toy import TOY_MODELS, WEIGHTS, load_toy
from tests.staff.weights import __main__ as make_weights
from tests.staff.weights import card, measure, ngram, recipe

FIGURES = {name: json.loads((WEIGHTS / f"{name}.json").read_text()) for name in TOY_MODELS}
STORIES = 150  # of the test split; enough to tell 1% of perplexity


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer()


@pytest.fixture(scope="module")
def models():
    return {name: load_toy(name) for name in TOY_MODELS}


# ---- the committed models ----------------------------------------------------------------------


@pytest.mark.parametrize("name", TOY_MODELS)
def test_a_model_is_what_its_recipe_and_its_card_say(name, models, tokenizer):
    figures, model = FIGURES[name], models[name]
    settings = asdict(recipe.RECIPES[name])
    assert LlamaConfig(**figures["config"]) == LlamaConfig(**settings.pop("config")) == model.config
    assert figures["recipe"] == settings, "the recipe changed: run `make weights`"
    assert settings["steps"] * settings["stories_per_step"] <= figures["training_stories"]
    assert model.config.vocab_size == tokenizer.vocab_size
    assert model.config.num_kv_heads < model.config.num_heads
    assert figures["parameters"] == sum(p.numel() for p in model.parameters())
    assert figures["file_bytes"] == (WEIGHTS / f"{name}.safetensors").stat().st_size <= 4_000_000
    assert (WEIGHTS / f"{name}.md").read_text() == card.page(name, figures)
    assert all(p.dtype == torch.float32 and not p.requires_grad for p in model.parameters())


def test_the_draft_is_a_tenth_of_the_target():
    assert FIGURES["target"]["parameters"] >= 1.8e6
    assert 8 <= FIGURES["target"]["parameters"] / FIGURES["draft"]["parameters"] <= 13


def test_perplexity_is_the_cards_and_meets_the_bars(models, tokenizer):
    texts = list(story_texts("test", STORIES))
    documents = [tokenizer.document(text) for text in texts]
    sizes = [len(document) - 1 for document in documents]
    over = {}
    for name, model in models.items():
        nats = measure.nats(model, documents)
        excess = [ours + log_probability(text) for ours, text in zip(nats, texts, strict=True)]
        over[name] = measure.ratio(excess, sizes).map(math.exp)
        card_says = FIGURES[name]["perplexity_over_grammar"]
        assert over[name].mean == pytest.approx(card_says["mean"], rel=0.02)
    baseline = FIGURES["target"]["ngram_perplexity"]["mean"]
    assert 1.0 < over["target"].mean <= 1.15
    assert over["target"].high < over["draft"].low
    assert over["draft"].high * FIGURES["draft"]["grammar_perplexity"]["mean"] < baseline


def test_questions_are_answered_as_the_cards_say(models, tokenizer):
    documents = [tokenizer.document(text) for text in story_texts("test", STORIES)]
    share = {n: measure.answered(model, tokenizer, documents) for n, model in models.items()}
    for name, figure in share.items():
        card_says = FIGURES[name]["answered"]
        assert figure.low <= card_says["high"] and card_says["low"] <= figure.high
    assert share["target"].low > share["draft"].high


def test_an_answer_is_right_when_all_its_tokens_are(tokenizer, monkeypatch):
    document = tokenizer.document("Ada was a cook.\nWho was Ada? She was a cook.\nWas Ada? Yes.")
    perfect = torch.eye(tokenizer.vocab_size)[document[1:]]
    asks = [t for t, token in enumerate(document) if token == tokenizer.encode("?")[0]]

    def share(*wrong_places):
        logits = perfect.clone()
        logits[list(wrong_places)] = 0.0
        monkeypatch.setattr(measure, "logits_of", lambda model, documents: [logits])
        return measure.answered(None, tokenizer, [document]).mean

    assert share() == share(0, asks[0] - 1) == share(len(document) - 2) == 1.0  # no answer there
    assert share(asks[0]) == share(asks[0] + 4) == share(asks[1] + 1) == 0.5
    assert share(asks[0], asks[1]) == 0.0


def test_acceptance_is_the_cards_and_meets_the_bar(models, tokenizer):
    told = measure.told(models["target"], tokenizer, 40, seed=5)
    accepted = measure.acceptance(models["target"], models["draft"], told, 1.0)
    assert 0.6 <= FIGURES["draft"]["acceptance"]["1.0"]["mean"] <= 0.9
    assert accepted.mean == pytest.approx(FIGURES["draft"]["acceptance"]["1.0"]["mean"], abs=0.02)


def test_the_target_tells_stories_that_the_grammar_can_tell(models, tokenizer):
    told = measure.told(models["target"], tokenizer, 60, seed=6)
    found = measure.violations_of([tokenizer.decode(document) for document in told])
    expected = FIGURES["target"]["violations"]["stories"]
    assert found.stories.low <= expected["high"] and expected["low"] <= found.stories.high
    sentences = [FIGURES[name]["violations"]["sentences"] for name in TOY_MODELS]
    assert sentences[0]["high"] < 0.7 * sentences[1]["low"]


def test_there_is_no_model_of_another_name():
    with pytest.raises(ValueError, match="target, draft.*'teacher'"):
        load_toy("teacher")


# ---- how they are measured ---------------------------------------------------------------------


def small(seed: int, vocab_size: int = 647) -> Llama:
    return Llama(LlamaConfig(vocab_size, 1, 16, 2, 1, 8, 16), seed=seed).requires_grad_(False)


def test_nats_do_not_count_the_first_token_or_padding(tokenizer):
    model = small(0)
    documents = [[0, 5, 6], [0, 7], [0, 5, 6, 7, 8, 9]]
    expected = []
    for document in documents:
        probabilities = model(torch.tensor([document])).double().log_softmax(-1)[0]
        expected.append(-sum(float(probabilities[i, t]) for i, t in enumerate(document[1:])))
    assert measure.nats(model, documents) == pytest.approx(expected, rel=1e-5)


def test_acceptance_is_all_for_a_models_own_tokens_and_an_overlap_else():
    one, other, documents = small(0), small(1), [[0, 5, 6, 9], [0, 7]]
    assert measure.acceptance(one, one, documents, 1.0).mean == pytest.approx(1.0, abs=1e-5)
    overlaps = []
    for document in documents:
        p, q = (m(torch.tensor([document]))[0, :-1].softmax(-1) for m in (one, other))
        overlaps += [1 - 0.5 * float((a - b).abs().sum()) for a, b in zip(p, q, strict=True)]
    assert measure.acceptance(one, other, documents, 1.0).mean == pytest.approx(
        sum(overlaps) / len(overlaps), rel=1e-4
    )


def test_greedy_acceptance_is_how_often_the_best_tokens_are_the_same():
    one, other, documents = small(0), small(1), [[0, 5, 6, 9, 3, 2, 1]]
    best = [m(torch.tensor(documents))[0, :-1].argmax(-1) for m in (one, other)]
    same = float((best[0] == best[1]).double().mean())
    assert measure.acceptance(one, other, documents, 0.0).mean == pytest.approx(same)


def test_told_stories_do_not_depend_on_the_batch(models, tokenizer, monkeypatch):
    together = measure.told(models["draft"], tokenizer, 6, seed=3)
    assert together == measure.told(models["draft"], tokenizer, 6, seed=3)
    assert together != measure.told(models["draft"], tokenizer, 6, seed=4)
    colder = measure.told(models["draft"], tokenizer, 6, seed=3, temperature=1e-4)
    assert all(document == colder[0] for document in colder)
    monkeypatch.setattr(measure, "TOGETHER", 2)
    assert together[:2] == measure.told(models["draft"], tokenizer, 6, seed=3)[:2]
    assert all(document[0] == tokenizer.begin for document in together)
    stops = [set(document) & tokenizer.stop_tokens for document in together]
    assert all(stops) or max(map(len, together)) == measure.LONGEST


def test_violations_are_counted_by_story_and_by_sentence():
    good = sample("good")
    found = measure.violations_of([good, good, "Nonsense. More of it."])
    assert found.stories.mean == pytest.approx(1 / 3)
    assert found.kinds == {"form": 2, "unfinished": 1}
    sentences = 2 * measure.stories.count_sentences(good) + 2
    assert found.sentences.mean == pytest.approx(100 * 3 / sentences)


def test_the_intervals_hold_what_they_promise():
    # ratio: of 400 draws of 200 stories, the true ratio lies in about 95% of the intervals
    generator = torch.Generator().manual_seed(0)
    inside = 0
    for _ in range(400):
        sizes = torch.randint(80, 200, (200,), generator=generator).double()
        amounts = 0.8 * sizes + 9 * torch.randn(200, generator=generator).double()
        figure = measure.ratio(amounts.tolist(), sizes.tolist())
        inside += figure.low <= 0.8 <= figure.high
    assert 0.90 <= inside / 400 <= 0.99
    # Wilson's interval, by its textbook example
    figure = measure.share(1, 10)
    assert (figure.low, figure.high) == pytest.approx((0.0179, 0.4042), abs=1e-4)
    assert measure.share(0, 10).low == pytest.approx(0.0, abs=1e-12)
    assert measure.share(0, 10).high > 0.2


# ---- make weights, in small --------------------------------------------------------------------


def test_make_weights_from_nothing_to_cards(tmp_path, monkeypatch, capsys):
    small_recipes = {
        name: replace(
            recipe.RECIPES[name],
            config=LlamaConfig(647, 1, 16, 2, 1, 8, 16),
            steps=3,
            warm_up=1,
            stories_per_step=2,
        )
        for name in TOY_MODELS
    }
    documents = recipe.training_documents(20)
    monkeypatch.setattr(make_weights, "RECIPES", small_recipes)
    monkeypatch.setattr(make_weights, "training_documents", lambda: documents)
    monkeypatch.setattr(make_weights, "UNFINISHED", tmp_path / "unfinished")
    for name, value in (("TEST_STORIES", 4), ("TOLD_STORIES", 3), ("POSITIONS", 200)):
        monkeypatch.setattr(make_weights, name, value)
    into = tmp_path / "weights"
    assert make_weights.main(["--into", str(into)]) == 0
    first = {path.name: path.read_bytes() for path in into.iterdir()}
    assert sorted(first) == sorted(f"{n}.{kind}" for n in TOY_MODELS for kind in
                                   ("json", "md", "safetensors", "svg"))  # fmt: skip
    assert not list((tmp_path / "unfinished").glob("*.pt"))
    assert make_weights.main(["--into", str(into)]) == 0  # the same again, figures beside the old
    assert {path.name: path.read_bytes() for path in into.iterdir()} == first
    assert "1.000" in capsys.readouterr().err


def no_work(*arguments):
    raise AssertionError("this should have been refused before any work")


@pytest.mark.parametrize("spoil", ["a file", "no json", "another run"])
def test_what_cannot_work_is_said_at_once(tmp_path, monkeypatch, capsys, spoil):
    monkeypatch.setattr(make_weights, "UNFINISHED", tmp_path / "unfinished")
    monkeypatch.setattr(make_weights, "_make", no_work)
    into = tmp_path / "weights"
    (tmp_path / "unfinished").mkdir()
    with (tmp_path / "unfinished" / "lock").open("w") as lock:
        if spoil == "a file":
            into.write_text("")
        elif spoil == "no json":
            into.mkdir()
            (into / "target.json").write_text("{")
        else:
            fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SystemExit) as end:
            make_weights.main(["--into", str(into)])
    assert end.value.code == 2
    expected = "another make weights" if spoil == "another run" else f"cannot use {into}"
    assert expected in capsys.readouterr().err


def test_what_was_trained_is_kept_until_all_is_written(tmp_path, monkeypatch):
    unfinished, into = tmp_path / "unfinished", tmp_path / "weights"
    for folder in (unfinished, into):
        folder.mkdir()
    kept = [unfinished / f"{name}.{kind}" for name in TOY_MODELS for kind in ("pt", "safetensors")]
    for path in kept:
        path.write_text(path.name)
    monkeypatch.setattr(make_weights, "UNFINISHED", unfinished)
    cards = iter([None, KeyboardInterrupt])

    def stop_at_the_second(*arguments):
        if error := next(cards):
            raise error

    monkeypatch.setattr(make_weights, "write_card", stop_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        make_weights._write(into, FIGURES)
    assert all(path.exists() for path in kept)


def test_the_baseline_is_trained_on_what_the_models_are(tokenizer):
    training = recipe.training_documents(30)
    assert training == [tokenizer.document(text) for text in story_texts("train", 30)]
    model = ngram.fit(training, 3, tokenizer.vocab_size)
    seen, unseen = training[3], tokenizer.document(next(story_texts("test", 1)))
    rate = [float(model.log_probabilities(d).mean()) for d in (seen, unseen)]
    assert rate[0] > rate[1]
