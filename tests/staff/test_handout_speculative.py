"""The numbers of the chapter on speculative decoding once more, by other words; its drawings."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import pytest
import torch

from assignment.provided.speculative import Draft
from solutions.speculative import prompt_lookup, verification
from solutions.speculative.medusa import accept_path, accept_typical, tree_depths, tree_mask
from tests.staff.authoring import pictures
from tests.staff.authoring.source import ROOT
from tests.staff.test_handout import query
from tests.staff.test_handout_numbers import (
    BANDWIDTH,
    PEAK,
    D,
    L,
    N,
    S,
    V,
    model_flops,
    parameters,
    step_bytes,
)

WEIGHTS = ROOT / "assignment/provided/models/weights"
FEW = 8  # KV heads of GQA-8
ACCEPTANCES, COSTS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95), (0.01, 0.02, 0.05, 0.1, 0.2)
LETTERS = range(4)  # A, B, C, D


@pytest.fixture(scope="module")
def facts():
    [facts] = query("facts")
    return facts


@pytest.fixture(scope="module")
def by_hand():
    [by_hand] = query("by-hand")
    return by_hand


# --- what checking costs, and what it brings -----------------------------------------------------


def pass_seconds(batch, new):
    flops = batch * model_flops(new, S - new, FEW)
    return max(flops / PEAK, step_bytes(FEW, batch) / BANDWIDTH)


def ratio(batch, new):
    return pass_seconds(batch, new) / pass_seconds(batch, 1)


def test_where_checking_is_no_longer_free(facts):
    for batch, stated in zip((64, 256), facts["verify-ratio"], strict=True):
        assert stated == pytest.approx(ratio(batch, 5), rel=1e-12)
    for drafted, stated in zip((2, 4, 8), facts["not-free-from"], strict=True):
        assert ratio(stated - 1, drafted + 1) <= 1.1 < ratio(stated, drafted + 1)


def test_the_gain_falls_with_the_batch(facts):
    tokens = sum(Fraction(4, 5) ** i for i in range(5))
    for batch, stated in zip((1, 64, 256), facts["checked-gain"], strict=True):
        assert stated == pytest.approx(float(tokens) / (ratio(batch, 5) + 4 * 0.05), rel=1e-12)


def test_best_numbers(facts):
    """By what a guess more adds: αⁱ tokens for c, as long as that raises the quotient."""
    for alpha, numbers, gains in zip(
        ACCEPTANCES, facts["best-num-draft"], facts["gains"], strict=True
    ):
        for cost, number, gain in zip(COSTS, numbers, gains, strict=True):
            tokens, time, drafted = 1.0, 1.0, 0
            while alpha ** (drafted + 1) / cost > tokens / time:
                drafted += 1
                tokens, time = tokens + alpha**drafted, time + cost
            assert number == drafted
            assert gain == pytest.approx(tokens / time, rel=1e-9)
            assert verification.best_num_draft(alpha, cost, 64) == number
            assert verification.expected_speedup(alpha, number, cost) == pytest.approx(gain)


def test_a_guess_below_its_cost_is_not_worth_making():
    for alpha, cost in ((0.1, 0.11), (0.3, 0.3)):
        assert verification.best_num_draft(alpha, cost, 20) == 0
    assert verification.best_num_draft(0.12, 0.11, 20) == 1


def test_toy_rounds(facts):
    draft, target = (json.loads((WEIGHTS / f"{n}.json").read_text()) for n in ("draft", "target"))
    assert facts["toy-smaller"] == target["parameters"] / draft["parameters"]
    measured = [figure["mean"] for t, figure in draft["acceptance"].items() if t != "0.0"]
    for alpha, row in zip(measured, facts["toy-rounds"], strict=True):
        expected = [(1 - alpha ** (n + 1)) / (1 - alpha) for n in (1, 2, 4, 8)]
        assert row == pytest.approx(expected)


# --- one round by hand ---------------------------------------------------------------------------


def fractions(probabilities):
    return [Fraction(p).limit_denominator(100) for p in probabilities]


def recovered(p, q):
    missing = [max(b - a, 0) for a, b in zip(p, q, strict=True)]
    return [m / sum(missing) for m in missing]


def law(p, accept, after):
    """Of what comes out: every drafted token, accepted or replaced."""
    out = [Fraction(0) for _ in p]
    for drafted, probability in enumerate(p):
        stays = accept(drafted)
        out[drafted] += probability * stays
        for token in LETTERS:
            out[token] += probability * (1 - stays) * after(drafted)[token]
    return out


def test_laws_that_went_wrong(facts, by_hand):
    p, q = fractions(by_hand["p"]), fractions(by_hand["q"])
    residual = recovered(p, q)
    assert by_hand["residual"] == pytest.approx([float(r) for r in residual], abs=1e-12)

    def right(x):
        return min(Fraction(1), q[x] / p[x])

    def softmax(_):
        powers = [math.exp(max(b - a, 0)) for a, b in zip(p, q, strict=True)]
        return [power / sum(powers) for power in powers]

    def reused(x):
        """A fine grid over the uniforms that reject x: where each lies among the residual's."""
        points = [Fraction(2 * i + 1, 24_000) for i in range(12_000)]
        rejecting = [u for u in points if u >= right(x)]
        counts, edges = [0] * 4, list(itertools.accumulate(residual))
        for u in rejecting:
            counts[next(token for token in LETTERS if u < edges[token])] += 1
        return [Fraction(count, max(len(rejecting), 1)) for count in counts]

    squares = [a * a / sum(b * b for b in p) for a in p]
    best = [Fraction(x == 3) for x in LETTERS]
    assert law(p, right, lambda _: residual) == q
    expected = {
        "resampled": law(p, right, lambda _: q),
        "softmaxed": law(p, right, softmax),
        "inverted": law(p, lambda x: min(Fraction(1), p[x] / q[x]), lambda _: residual),
        "one-uniform": law(p, right, reused),
        "colder": law(squares, right, lambda _: residual),
        "certain": law(best, right, lambda _: residual),
    }
    assert set(expected) == set(by_hand["laws"])
    for name, stated in by_hand["laws"].items():
        assert stated == pytest.approx([float(x) for x in expected[name]], abs=1e-12), name
    distances = [sum(abs(a - b) for a, b in zip(x, q, strict=True)) / 2 for x in expected.values()]
    assert facts["by-hand-distance-of"] == pytest.approx([float(d) for d in distances], abs=1e-12)


def test_the_reference_has_the_targets_law(by_hand):
    """A midpoint grid, every drafted token in proportion to its probability."""
    size = 40
    grid = [(i + 0.5) / size for i in range(size)]
    uniforms = torch.tensor(list(itertools.product(grid, grid)))
    p, q = torch.tensor(by_hand["p"]), torch.tensor(by_hand["q"])
    out = torch.zeros(4)
    for drafted in LETTERS:
        rows = len(uniforms)
        tokens = torch.full((rows, 1), drafted)
        draft = Draft(tokens, torch.ones(rows).long(), p.expand(rows, 1, 4))
        first = verification.verify(draft, q.expand(rows, 2, 4), uniforms)[:, 0]
        out += p[drafted] * torch.bincount(first, minlength=4) / rows
    assert out.tolist() == pytest.approx(by_hand["q"], abs=0.01)


# --- prompt lookup -------------------------------------------------------------------------------


def test_what_is_looked_up():
    [example] = query("lookup")
    numbers = {word: i for i, word in enumerate(dict.fromkeys(example["said"]))}
    found = prompt_lookup.lookup([numbers[word] for word in example["said"]], 4)
    assert found == [numbers[word] for word in example["guessed"]]
    assert example["guessed"][0] == "a" and len(example["guessed"]) == 4
    assert prompt_lookup.lookup([1, 2, 1, 2, 1], 4) == [2, 1, 2, 1]


# --- trees ---------------------------------------------------------------------------------------


def test_the_tree_is_that_of_its_picture_and_of_the_reference():
    [about] = query("tree")
    tree = about["tree"]
    assert {name: list(value) for name, value in pictures.TREE.items()} == {
        name: tree[name] for name in pictures.TREE
    }
    assert about["depths"] == tree_depths(tree["parents"]).tolist()
    assert about["mask"] == tree_mask(tree["parents"], about["past"]).tolist()


def test_the_path_of_the_picture_is_one_that_can_be_accepted():
    [about] = query("tree")
    parents, labels, path = (about["tree"][name] for name in ("parents", "labels", "path"))
    words = sorted({*labels, about["tree"]["next"]})
    tokens = torch.tensor([words.index(label) for label in labels])
    drawn = [*(labels[node] for node in path[1:]), about["tree"]["next"]]
    probs = torch.full((len(parents), len(words)), 1 / len(words))
    for node, word in zip(path, drawn, strict=True):
        probs[node] = torch.tensor([float(other == word) for other in words])
    found = accept_path(tokens, parents, probs, torch.full((4,), 0.5))
    assert found == (path, words.index(about["tree"]["next"]))


def test_typical_acceptance_takes_what_is_guessed(facts):
    [about] = query("typical")
    q = about["q"]
    entropy = -sum(x * math.log(x) for x in q)
    assert facts["typical-entropy"] == pytest.approx(entropy)
    needed = min(about["epsilon"], about["delta"] * math.exp(-entropy))
    assert about["threshold"] == pytest.approx(needed) and min(q) > needed
    probs = torch.tensor([q, q])
    for guess, stated in enumerate(about["laws"]):
        tokens = torch.tensor([0, guess])
        came = [0.0, 0.0]
        for i in range(50):
            uniform = (i + 0.5) / 50
            path, token = accept_typical(
                tokens, [-1, 0], probs, uniform, about["epsilon"], about["delta"]
            )
            first = int(tokens[path[1]]) if len(path) > 1 else token
            came[first] += 1 / 50
        assert came == pytest.approx(stated)


# --- EAGLE ---------------------------------------------------------------------------------------


def test_what_a_drafted_token_costs(facts):
    one_layer = (parameters(N) - 2 * V * D) / L
    assert facts["eagle-cost"] == pytest.approx((one_layer + 2 * D * D + V * D) / parameters(N))
