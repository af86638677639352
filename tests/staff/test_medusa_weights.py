"""The committed Medusa heads against their card and their bars, and the tree that is chosen.

Skipped without `tokenizers` (the extra `real`).
"""

import copy
import itertools
import json
import math
from dataclasses import asdict

import pytest
import torch

pytest.importorskip("tokenizers")

from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import CachedSession, GrowingCache, Llama, LlamaConfig
from assignment.provided.models.toy import WEIGHTS, load_heads, load_toy
from assignment.provided.speculative import LlamaPast
from solutions.attention.generate import generate
from solutions.attention.grouped_query import grouped_query_attention
from solutions.speculative.medusa import MedusaHeads, medusa_generate, tree_parents
from tests.staff.weights import medusa, rounds

FIGURES = json.loads((WEIGHTS / "medusa.json").read_text())
CHOICES = [tuple(choice) for choice in FIGURES["choices"]]


@pytest.fixture(scope="module")
def target():
    return load_toy("target")


@pytest.fixture(scope="module")
def heads(target):
    heads = MedusaHeads(3, target.embedding.weight).requires_grad_(False)
    heads.load_state_dict(load_heads("medusa"))
    return heads


def test_the_heads_are_what_their_recipe_and_their_card_say(heads):
    assert FIGURES["recipe"] == asdict(medusa.RECIPE), "call make weights ARGS=medusa"
    assert FIGURES["parameters"] == sum(p.numel() for p in heads.parameters())
    assert FIGURES["file_bytes"] == (WEIGHTS / "medusa.safetensors").stat().st_size <= 2_000_000
    assert (WEIGHTS / "medusa.md").read_text() == medusa.page(FIGURES)
    assert all(p.dtype == torch.float32 for p in heads.parameters())
    assert len(tree_parents(CHOICES)) == 1 + medusa.GUESSES


def test_they_guess_as_the_card_says(target, heads):
    texts = rounds.told(target, rounds.prompts_of("test", 40), 1.0)
    for m, of_head in enumerate(medusa.ranks(target, heads, texts)):
        ranks = torch.cat(of_head)
        for best, figure in zip((1, 3), FIGURES["right"]["1.0"][m], strict=True):
            right = float((ranks < best).double().mean())
            assert right == pytest.approx(figure["mean"], abs=0.04)


@pytest.mark.parametrize("temperature", medusa.TEMPERATURES)
def test_trees_give_as_many_tokens_as_the_card_says(target, heads, temperature):
    prompts = rounds.prompts_of("test", 12)
    guess = medusa.guessing(target, heads, CHOICES)
    got = rounds.by_guesses(target, guess, prompts, temperature).mean
    by = FIGURES["tokens_a_round"][str(temperature)]
    assert got == pytest.approx(by["tree"]["mean"], rel=0.15)
    assert by["tree"]["low"] > by["chain"]["high"] > 1.2


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_on_a_real_past_the_tokens_are_those_of_generate(target, heads, temperature):
    """In float64, where the order of a sum decides nothing. A story's end is a stop token."""
    target, heads = copy.deepcopy(target).double(), copy.deepcopy(heads).double()
    stop_tokens = load_tokenizer().stop_tokens
    for prompt, uniforms in zip(rounds.prompts_of("test", 3), rounds.uniforms_of(3), strict=True):
        options = {"temperature": temperature, "stop_tokens": stop_tokens}
        caches = [GrowingCache(1) for _ in target.layers]
        session = CachedSession(target, caches, grouped_query_attention)
        (expected,) = generate(session, [prompt], rounds.NEW, uniforms=uniforms[None], **options)
        past = LlamaPast(target)
        got = medusa_generate(
            past,
            lambda hidden: heads(target.norm(hidden)),
            prompt,
            rounds.NEW,
            CHOICES,
            uniforms=uniforms,
            **options,
        )
        assert got == expected
        assert past.length < len(prompt) + rounds.NEW


def test_ranks_are_of_the_tokens_that_the_target_said():
    """A head that always says the same: token v has rank v."""
    target = Llama(LlamaConfig(9, 1, 8, 2, 1, 4, 8)).requires_grad_(False)

    def heads(hidden):
        return -torch.arange(9.0).expand(*hidden.shape[:-1], 3, 9)

    text = [*range(9)] * 6  # PROMPT tokens, and more
    for m, (first, second) in enumerate(medusa.ranks(target, heads, [text, text[:42]])):
        assert first.tolist() == text[rounds.PROMPT + 1 + m :]
        assert second.tolist() == text[rounds.PROMPT + 1 + m : 42]


def test_the_tree_is_of_the_likeliest_guesses():
    """Brute force over all of them."""
    shares = [[0.5, 0.2, 0.1], [0.4, 0.35, 0.05], [0.9, 0.03, 0.01]]
    every = {
        choice: math.prod(shares[m][rank] for m, rank in enumerate(choice))
        for depth in (1, 2, 3)
        for choice in itertools.product(range(3), repeat=depth)
    }
    for size in (1, 4, 9):
        best = sorted(every, key=every.get, reverse=True)[:size]
        chosen = medusa.best_tree(shares, size)
        assert sorted(chosen) == sorted(best)
        assert len(tree_parents(chosen)) == 1 + size


def test_there_are_no_heads_of_another_name():
    with pytest.raises(ValueError, match="medusa, eagle.*'hydra'"):
        load_heads("hydra")


def test_the_draft_is_measured_by_its_rounds(target):
    """A draft that is the target itself: five tokens a call, but for the ends."""
    prompts = rounds.prompts_of("test", 3)
    assert rounds.by_the_draft(target, target, prompts, 0.0).mean > 4.5
    assert rounds.by_the_draft(target, load_toy("draft"), prompts, 0.0).mean < 4.5
