"""speculative.eagle: drafts from features, true ones between the rounds, and nothing lost.

The drafter has random weights, and is computed again in float64 from its formulas. The target is
the grader's: its features depend on all tokens that they see (`eagle_model`).
"""

from __future__ import annotations

import pytest
import torch

from assignment.provided.speculative import Draft
from submission.attention.generate import next_token_probs, sample
from submission.speculative.eagle import (
    DrafterPast,
    EagleDrafter,
    draft_chain,
    draft_tree,
    eagle_generate,
    eagle_loss,
)
from submission.speculative.verification import verify
from tests.grading.boundary import grad_of, parameter_grads, watch
from tests.grading.closeness import assert_equal
from tests.speculative import eagle_oracles as oracles
from tests.speculative.eagle_drafting import Drafting, assert_near
from tests.speculative.eagle_model import FeatureModel, RationalModel
from tests.speculative.eagle_oracles import CONFIG, DrafterOracle
from tests.speculative.eagle_rounds import assert_chains, assert_ranks, assert_trees
from tests.speculative.law import assert_law, grid, table_law, tally, text_law
from tests.speculative.texts import assert_text

VOCAB, WIDTH = CONFIG.vocab_size, CONFIG.d_model
CHOICES = [
    [(0,), (1,), (0, 0), (2,), (1, 0), (0, 0, 0), (0, 1), (0, 0, 0, 0)],  # not in order of depth
    [(0,), (0, 0), (0, 0, 0)],  # a chain
    [(3,), (0,), (3, 2), (3, 2, 1), (3, 2, 0), (3, 4)],  # ranks are left out
    [(i,) for i in range(VOCAB)],  # every token
]


def new_drafter(weights, embedding):
    """The submission's, with given weights."""
    drafter = EagleDrafter(CONFIG, embedding)
    drafter.load_state_dict(weights)
    return drafter


def drafting_of(draw, length):
    return Drafting(lambda *parts: DrafterPast(new_drafter(*parts)), draw, length)


@pytest.mark.group("drafter")
class TestDrafter:
    @pytest.mark.parametrize("rows, pairs", [(3, 7), (1, 1), (2, 12)])
    def test_equals_the_formulas(self, draw, rows, pairs):
        weights, embedding = oracles.draw_weights(draw), draw.normal(VOCAB, WIDTH)
        features, tokens = draw.normal(rows, pairs, WIDTH), draw.integers(0, VOCAB, rows, pairs)
        oracle = DrafterOracle(weights, embedding)
        expected = torch.stack([oracle(*row) for row in zip(features, tokens, strict=True)])
        got = new_drafter(weights, embedding)(features, tokens)
        assert_near(got, expected, axes="row pair width")

    def test_fed_bit_by_bit(self, draw):
        """At given positions, reading what is held: `positions` and `attend` are passed on."""
        drafting = drafting_of(draw, 9)
        expected = drafting.oracle.drafting(drafting.features, drafting.sequence, [])
        assert_near(drafting.predicted[None], expected, axes="pair width")
        drafting.assert_holds_the_same()


@pytest.mark.group("loss")
class TestLoss:
    # features near each other and far apart; rows that end early, one of them at its first token
    @pytest.mark.parametrize("scale", [0.3, 3.0])
    @pytest.mark.parametrize("lengths", [(6, 6), (2, 6, 1, 4), (5, 3)])
    def test_equals_the_formulas(self, draw, lengths, scale):
        *tensors, is_real = self._batch(draw, lengths, scale)
        expected = oracles.loss(*(tensor.double() for tensor in tensors), is_real)
        assert_near(eagle_loss(*tensors, is_real), expected)

    def test_each_part_alone(self, draw):
        """Features that are right; then distributions that are."""
        predicted, predicted_logits, features, logits, is_real = self._batch(draw, (7, 4), 1.0)
        for right in ([features[:, 1:], predicted_logits], [predicted, logits[:, 1:]]):
            tensors = [*right, features, logits]
            expected = oracles.loss(*(tensor.double() for tensor in tensors), is_real)
            assert_near(eagle_loss(*tensors, is_real), expected)

    def test_the_drafter_learns_from_it(self, draw):
        """By what is predicted; what the target gives has no gradient in training."""
        *tensors, is_real = self._batch(draw, (6, 3), 1.0)
        leaves = [tensor.double().requires_grad_() for tensor in tensors]
        oracles.loss(*leaves, is_real).backward()
        _, gradients = grad_of(eagle_loss, *tensors, is_real)
        for got, leaf in zip(gradients[:2], leaves[:2], strict=True):
            assert_near(got, leaf.grad, axes="row pair entry")

    def test_the_drafter_is_trained(self, draw):
        weights, embedding = oracles.draw_weights(draw), draw.normal(VOCAB, WIDTH)
        features, tokens = draw.normal(1, 5, WIDTH), draw.integers(0, VOCAB, 1, 5)
        cotangent = draw.normal(1, 5, WIDTH)
        leaves = {name: weight.double().requires_grad_() for name, weight in weights.items()}
        (DrafterOracle(leaves, embedding)(features[0], tokens[0]) * cotangent[0]).sum().backward()
        drafter = new_drafter(weights, embedding)
        got = parameter_grads(drafter, features, tokens, cotangent=cotangent)
        for name, leaf in leaves.items():
            assert_near(got[name], leaf.grad, what=f"gradient of {name}")

    def test_padding_does_not_matter(self, draw):
        *tensors, is_real = self._batch(draw, (2, 6, 1, 4), 1.0)
        before = eagle_loss(*tensors, is_real)
        for tensor in tensors:
            real = is_real[:, is_real.shape[1] - tensor.shape[1] :]
            tensor[~real] = draw.normal(*tensor.shape, scale=30.0)[~real]
        assert_near(eagle_loss(*tensors, is_real), before.double())

    def test_arguments_are_not_changed(self, draw):
        _, changed = watch(eagle_loss, *self._batch(draw, (3, 5), 2.0))
        assert changed == [], "an argument was changed, by its place"

    def _batch(self, draw, lengths, scale):
        rows, most = len(lengths), max(lengths)
        features = draw.normal(rows, most, WIDTH, scale=2.0)
        predicted = features[:, 1:] + draw.normal(rows, most - 1, WIDTH, scale=scale)
        logits = draw.normal(rows, most, VOCAB, scale=2.0)
        predicted_logits = logits[:, 1:] + draw.normal(rows, most - 1, VOCAB, scale=scale)
        is_real = torch.arange(most) < torch.tensor(lengths)[:, None]
        return predicted, predicted_logits, features, logits, is_real


@pytest.mark.group("chain")
class TestDraftChain:
    @pytest.mark.parametrize("length, num_draft", [(6, 4), (2, 5), (9, 1)])
    @pytest.mark.parametrize("temperature", [1.0, 0.6])
    def test_tokens_and_their_distributions(self, draw, length, num_draft, temperature):
        drafting, uniforms = drafting_of(draw, length), draw.uniform(num_draft)
        draft = self._draft(drafting, uniforms, temperature)
        tokens = draft.tokens[0].tolist()
        logits = drafting.logits(tokens[:-1])
        assert_near(draft.probs[0], (logits / temperature).softmax(dim=1), axes="place token")
        assert_equal(tokens, sample(draft.probs[0], uniforms).tolist(), what="drafted tokens")
        drafting.assert_holds_the_same()

    def test_the_best_tokens_at_temperature_zero(self, draw):
        drafting, uniforms = drafting_of(draw, 7), draw.uniform(5)
        draft = self._draft(drafting, uniforms, 0.0)
        tokens = draft.tokens[0].tolist()
        assert_ranks(drafting.logits(tokens[:-1]), tokens, [0] * 5)
        one_hot = torch.nn.functional.one_hot(draft.tokens, VOCAB)
        assert_equal(draft.probs, one_hot.float(), axes="row place token")
        drafting.assert_holds_the_same()

    def test_again_and_again(self, draw):
        """Nothing is left of one draft when the next is made."""
        drafting, uniforms = drafting_of(draw, 5), draw.uniform(4)
        first = self._draft(drafting, uniforms, 1.0)
        self._draft(drafting, draw.uniform(3), 1.0)
        assert_equal(self._draft(drafting, uniforms, 1.0).tokens, first.tokens)

    def test_no_token(self, draw):
        drafting = drafting_of(draw, 4)
        draft = self._draft(drafting, torch.zeros(0), 1.0)
        assert_equal(list(draft.tokens.shape), [1, 0], what="shape of the tokens")
        drafting.assert_holds_the_same()

    def _draft(self, drafting, uniforms, temperature) -> Draft:
        arguments = drafting.pairs, drafting.head, drafting.predicted, uniforms
        draft = draft_chain(*arguments, temperature=temperature)
        assert isinstance(draft, Draft), f"expected a Draft, got {draft!r}"
        assert_equal(draft.num_draft.tolist(), [len(uniforms)], what="num_draft")
        return draft


@pytest.mark.group("chain")
class TestChains:
    @pytest.mark.parametrize("num_draft, length", [(4, 5), (1, 3), (2, 1), (0, 4)])
    def test_round_by_round(self, draw, num_draft, length):
        """The tokens that `sample` and `verify` make of the right distributions."""
        model, prompt = FeatureModel(draw), draw.integers(0, VOCAB, length).tolist()
        uniforms = draw.uniform(14, 2 * num_draft + 1)
        new = generate(model, prompt, 14, num_draft, temperature=1.0, uniforms=uniforms)
        assert_chains(model, prompt, new, num_draft, uniforms, sampler(1.0), verify)

    def test_greedy_is_greedy(self, draw):
        model, prompt = FeatureModel(draw), draw.integers(0, VOCAB, 4).tolist()
        expected = plain(model, prompt, 16)
        for options in ({}, {"uniforms": draw.uniform(16, 7)}):
            model.slots, model.feeds = [], []
            new = generate(model, prompt, 16, 3, **options)
            assert_text(new, expected, hint=model.first_fault)
            assert len(model.feeds) < 14, f"{len(model.feeds)} target calls for 16 tokens"

    @pytest.mark.parametrize("num_draft", [1, 3])
    def test_law_of_two_tokens(self, draw, num_draft):
        """Each text comes up in as many points of a grid as it should, whatever the draft says. One
        token is drafted; where it might be more, the numbers between decide nothing."""
        model, rows, masses = RationalModel(draw), [], []
        drafter = new_drafter(model.weights, model.embedding)
        for drawn, accepted, last in grid(4, 2, 4).tolist():
            for after in grid(4).flatten().tolist():
                uniforms = torch.full((3, 2 * num_draft + 1), 0.5)
                uniforms[1, [0, num_draft, -1]] = torch.tensor([drawn, accepted, last])
                uniforms[2] = torch.tensor([0.3] * num_draft + [0.7] * num_draft + [after])
                options = {"temperature": 1.0, "uniforms": uniforms}
                model.slots, model.feeds = [], []
                generated = eagle_generate(
                    model.parts, drafter, model.prompt, 3, num_draft, **options
                )
                rows.append(generated)
                is_done = len(model.feeds) == 2  # nothing is drawn with `after`
                masses.append(4 if is_done else 1)
                if is_done:
                    break
        assert all(len(row) == 3 and row[0] == rows[0][0] for row in rows), "expected 3 tokens"
        start = [*model.prompt, rows[0][0]]
        expected = text_law(table_law(model.model, start), 2)
        got = tally(torch.tensor(rows)[:, 1:], torch.tensor(masses))
        assert_law(got, expected, f"num_draft {num_draft}, after {start}")


@pytest.mark.group("tree")
class TestDraftTree:
    @pytest.mark.parametrize("choices", CHOICES, ids=len)
    @pytest.mark.parametrize("length", [2, 7])
    def test_ranks(self, draw, choices, length):
        drafting = drafting_of(draw, length)
        root = drafting.sequence[-1]
        tokens = draft_tree(drafting.pairs, drafting.head, drafting.predicted, root, choices)
        assert_equal(tokens.shape, (1 + len(choices),), what="shape of the tokens")
        assert_equal(int(tokens[0]), root, what="the root's token")
        of = dict(zip(choices, tokens[1:].tolist(), strict=True))
        for choice in choices:
            path = [of[choice[:depth]] for depth in range(1, len(choice))]
            logits = drafting.logits(path)[-1:]
            assert_ranks(logits, [of[choice]], [choice[-1]], what=f"choice {choice}")
        drafting.assert_holds_the_same()

    def test_the_root_alone(self, draw):
        drafting = drafting_of(draw, 4)
        root = drafting.sequence[-1]
        tokens = draft_tree(drafting.pairs, drafting.head, drafting.predicted, root, [])
        assert_equal(tokens.tolist(), [root])
        drafting.assert_holds_the_same()


@pytest.mark.group("tree")
class TestTrees:
    @pytest.mark.parametrize("temperature", [0.0, 0.8])
    @pytest.mark.parametrize("choices", CHOICES, ids=len)
    def test_the_tokens_of_plain_decoding(self, draw, choices, temperature):
        model, prompt = FeatureModel(draw), draw.integers(0, VOCAB, 3).tolist()
        uniforms = draw.uniform(12)
        options = {"temperature": temperature, "uniforms": uniforms}
        new = generate(model, prompt, 12, choices, **options)
        assert_text(new, plain(model, prompt, 12, **options), hint=model.first_fault)
        assert_trees(model, prompt, new, choices)


@pytest.mark.group("rounds")
class TestRounds:
    @pytest.mark.parametrize("draft", [CHOICES[0], 3], ids=["tree", "chain"])
    def test_an_answer_ends_at_a_stop_token(self, draw, draft):
        model, prompt = FeatureModel(draw), draw.integers(0, VOCAB, 4).tolist()
        whole = plain(model, prompt, 20)
        for stop in {whole[0], whole[3], whole[8], whole[12]}:
            model.slots, model.feeds = [], []
            new = generate(model, prompt, 20, draft, stop_tokens={stop, VOCAB})
            expected = whole[: whole.index(stop) + 1]
            assert_text(new, expected, what=f"stop token {stop}", hint=model.first_fault)
            known = len(model.feeds[-1].held) + 1  # tokens, when the target was called last
            assert known < len(prompt + expected), "a target call after the answer had ended"

    @pytest.mark.parametrize("draft", [CHOICES[0], 3], ids=["tree", "chain"])
    def test_few_new_tokens(self, draw, draft):
        """None: no call. One: that of the prompt. Then drafts are cut to what is missing."""
        for count in range(5):
            model, prompt = FeatureModel(draw), draw.integers(0, VOCAB, 5).tolist()
            new = generate(model, prompt, count, draft)
            right, fault = plain(model, prompt, count), model.first_fault
            assert_text(new, right, what=f"{count} new tokens", hint=fault)
            if count < 2:
                assert_equal(len(model.feeds), count, what=f"target calls for {count} new tokens")

    def test_the_prompt_is_not_changed(self, draw):
        model, prompt = FeatureModel(draw), draw.integers(0, VOCAB, 5).tolist()
        drafter = new_drafter(model.weights, model.embedding)
        _, changed = watch(eagle_generate, model.parts, drafter, prompt, 6, CHOICES[0])
        assert changed == [], "the prompt or the choices were changed, by their places"

    def test_one_sequence_after_the_other(self, draw):
        """A drafter keeps nothing of a sequence that it has drafted for."""
        model, prompt = FeatureModel(draw), draw.integers(0, VOCAB, 5).tolist()
        drafter = new_drafter(model.weights, model.embedding)
        for draft in (CHOICES[0], CHOICES[2]):
            model.slots, model.feeds, model.asked = [], [], {}
            new = eagle_generate(model.parts, drafter, prompt, 10, draft)
            assert_trees(model, prompt, new, draft)


def generate(model, prompt, count, draft, **options):
    drafter = new_drafter(model.weights, model.embedding)
    new = eagle_generate(model.parts, drafter, prompt, count, draft, **options)
    assert all(type(token) is int for token in new), f"expected integers, got {new!r}"
    return new


def plain(model, prompt, count, temperature=0.0, uniforms=None):
    """The new tokens without drafts, from the features of the whole sequence each time."""
    sequence = list(prompt)
    for i in range(count):
        logits = model.head(model.state(tuple(sequence)))[None]
        if temperature == 0:
            sequence.append(int(logits.argmax()))
        else:
            sequence.append(int(sampler(temperature)(logits, uniforms[i : i + 1])[1][0]))
    return sequence[len(prompt) :]


def sampler(temperature):
    """(logits [N, V], uniforms [N]) -> (probabilities, tokens), by the submission's functions."""

    def draw_tokens(logits, uniforms):
        probs = next_token_probs(logits.float(), temperature)
        return probs, sample(probs, uniforms)

    return draw_tokens
