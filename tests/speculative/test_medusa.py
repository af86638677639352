"""speculative.medusa: the trees of guesses, their heads, what is accepted, and the text.

TreeModel is the target: its tokens are right only if every row of every call saw exactly its own
branch, at its own place, behind a past that is the sequence.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction

import pytest
import torch

from assignment.provided.models import TableLM
from assignment.provided.speculative import NO_TOKEN
from submission.attention.generate import generate, sample
from submission.speculative.medusa import (
    MedusaHeads,
    accept_path,
    accept_typical,
    medusa_generate,
    medusa_loss,
    tree_depths,
    tree_mask,
    tree_parents,
    tree_tokens,
)
from tests.grading.boundary import call_then_spoil, grad_of, parameter_grads, watch
from tests.grading.closeness import assert_close, assert_equal
from tests.grading.refusal import assert_value_error
from tests.speculative import medusa_trees as trees
from tests.speculative.law import assert_law, completed, grid, table_law, text_law
from tests.speculative.medusa_rounds import HEADS, VOCAB, Generation, no_guesses
from tests.speculative.medusa_trees import CHOICES, PARENTS, draw_parents, draw_tree
from tests.speculative.tree_model import TreeModel


@pytest.mark.group("trees")
class TestTrees:
    @pytest.mark.parametrize("choices", CHOICES, ids=len)
    def test_parents_of_choices(self, choices):
        assert_equal(tree_parents(choices), trees.parents_of(choices))

    @pytest.mark.parametrize(
        "choices",
        [[(0, 0)], [(0,), (1, 0)], [(0, 0), (0,)], [(0,), (0, 0, 0)], [()], [(0,), (0,)], [(-1,)]],
        ids=str,
    )
    def test_choices_that_are_no_tree(self, choices):
        assert_value_error(f"tree_parents({choices})", tree_parents, choices)

    @pytest.mark.parametrize("choices", CHOICES, ids=len)
    def test_each_node_has_its_heads_guess(self, draw, choices):
        logits = draw.normal(3, 7)
        expected = [trees.ranked(logits[len(c) - 1])[c[-1]] for c in choices]
        got = tree_tokens(5, logits, choices)
        assert_equal(got, torch.tensor([5, *expected]), axes="node")
        assert got.dtype == torch.int64, f"expected int64, got {got.dtype}"

    def test_of_equal_guesses_the_lower_id_comes_first(self, draw):
        values = torch.tensor([-math.inf, -1.0, 0.5, 2.0])
        logits = values[draw.integers(0, 4, 2, 40)]
        choices = [(rank,) for rank in range(40)] + [(3, rank) for rank in range(40)]
        expected = [0, *trees.ranked(logits[0]), *trees.ranked(logits[1])]
        assert_equal(tree_tokens(0, logits, choices), torch.tensor(expected), axes="node")

    def test_more_ranks_than_tokens(self, draw):
        """The vocabulary has 3."""
        logits = draw.normal(2, 3)
        choices = [(2,), (3,), (9,), (2, 3), (3, 1)]
        best, second = trees.ranked(logits[0]), trees.ranked(logits[1])
        expected = [1, best[2], NO_TOKEN, NO_TOKEN, NO_TOKEN, second[1]]
        assert_equal(tree_tokens(1, logits, choices), torch.tensor(expected), axes="node")

    def test_more_ranks_than_heads(self, draw):
        choices = [(0,), (0, 0), (0, 0, 0)]
        assert_value_error("3 ranks for 2 heads", tree_tokens, 1, draw.normal(2, 5), choices)

    def test_depths(self, draw):
        for parents in [*PARENTS, draw_parents(draw, 25)]:
            expected = [len(trees.ancestors(parents, i)) - 1 for i in range(len(parents))]
            got = tree_depths(parents)
            assert_equal(got, torch.tensor(expected), axes="node", what=f"parents {parents}")
            assert got.dtype == torch.int64, f"expected int64, got {got.dtype}"

    @pytest.mark.parametrize("length", [0, 1, 6])
    def test_mask(self, draw, length):
        for parents in [*PARENTS, draw_parents(draw, 25)]:
            expected = trees.mask(parents, length)
            got = tree_mask(parents, length)
            assert_equal(got, expected, axes="node slot", what=f"parents {parents}")

    def test_arguments_are_not_changed(self, draw):
        for call in (
            (tree_parents, CHOICES[4]),
            (tree_tokens, 2, draw.normal(3, 7), CHOICES[4]),
            (tree_depths, PARENTS[4]),
            (tree_mask, PARENTS[4], 3),
        ):
            _, changed = watch(*call)
            assert changed == [], f"changed: argument {changed} of call {call[1:]}"


WIDTH, TOKENS = 10, 7


def draw_heads(draw, number: int, dtype=torch.float32):
    """Heads with weights of their own, and these in float64: blocks [M D D], outputs [M V D]."""
    heads = MedusaHeads(number, draw.normal(TOKENS, WIDTH, dtype=dtype))
    blocks = draw.normal(number, WIDTH, WIDTH, dtype=dtype, scale=0.4)
    outputs = draw.normal(number, TOKENS, WIDTH, dtype=dtype)
    named = {f"blocks.{m}.weight": block for m, block in enumerate(blocks)}
    heads.load_state_dict(named | {f"outputs.{m}.weight": out for m, out in enumerate(outputs)})
    heads.requires_grad_(False)
    return heads, blocks, outputs


def heads_oracle(hidden, blocks, outputs):
    """Head by head, as it is written."""
    logits = []
    for block, out in zip(blocks, outputs, strict=True):
        inner = hidden @ block.T
        logits.append((hidden + inner / (1 + (-inner).exp())) @ out.T)
    return torch.stack(logits, dim=-2)


@pytest.mark.group("heads")
class TestHeads:
    @pytest.mark.parametrize("shape", [(), (5,), (2, 3), (2, 1, 4)], ids=str)
    @pytest.mark.parametrize("number", [1, 3])
    def test_formula(self, draw, number, shape):
        heads, *weights = draw_heads(draw, number)
        hidden = draw.normal(*shape, WIDTH)
        expected = heads_oracle(hidden.double(), *(w.double() for w in weights))
        naive = heads_oracle(hidden, *weights)
        axes = " ".join([*["batch", "seq", "more"][: len(shape)], "head", "token"])
        assert_close(heads(hidden), expected, naive=naive, axes=axes)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_at_first_all_say_what_the_target_says(self, draw, dtype):
        head_weight = draw.normal(TOKENS, WIDTH, dtype=dtype)
        heads, hidden = MedusaHeads(3, head_weight), draw.normal(2, 4, WIDTH, dtype=dtype)
        heads.requires_grad_(False)
        naive = (hidden @ head_weight.T)[..., None, :].expand(-1, -1, 3, -1)
        expected = (hidden.double() @ head_weight.double().T)[..., None, :].expand_as(naive)
        got = heads(hidden)
        assert got.dtype == dtype, f"expected {dtype}, got {got.dtype}"
        assert_close(got, expected, naive=naive, axes="batch seq head token")

    def test_the_targets_head_is_copied(self, draw):
        head_weight, hidden = draw.normal(TOKENS, WIDTH), draw.normal(4, WIDTH)
        expected = (hidden.double() @ head_weight.double().T)[:, None].expand(-1, 2, -1)
        naive = (hidden @ head_weight.T)[:, None].expand(-1, 2, -1)
        heads = call_then_spoil(MedusaHeads, 2, head_weight)
        heads.requires_grad_(False)
        assert_close(heads(hidden), expected, naive=naive, axes="row head token")

    def test_gradient(self, draw):
        heads, *weights = draw_heads(draw, 3, torch.float64)
        hidden, cotangent = draw.normal(4, WIDTH).double(), draw.normal(4, 3, TOKENS).double()
        leaf = hidden.clone().requires_grad_()
        (heads_oracle(leaf, *weights) * cotangent).sum().backward()
        _, (got,) = grad_of(heads, hidden, cotangent=cotangent)
        assert_close(got, leaf.grad, naive=leaf.grad, axes="row d_model")

    def test_all_weights_are_trained(self, draw):
        heads, *weights = draw_heads(draw, 3, torch.float64)
        heads.requires_grad_(True)
        hidden, cotangent = draw.normal(4, WIDTH).double(), draw.normal(4, 3, TOKENS).double()
        leaves = [weight.requires_grad_() for weight in weights]
        (heads_oracle(hidden, *leaves) * cotangent).sum().backward()
        got = parameter_grads(heads, hidden, cotangent=cotangent)
        for name, leaf in zip(("blocks", "outputs"), leaves, strict=True):
            for m, expected in enumerate(leaf.grad):
                what = f"gradient of {name}.{m}.weight"
                assert_close(got[f"{name}.{m}.weight"], expected, naive=expected.float(), what=what)


def loss_oracle(logits, tokens, is_real, dtype):
    """Place by place."""
    batch, length, number, _ = logits.shape
    log_probs = logits.to(dtype).log_softmax(dim=-1)
    total = torch.zeros((), dtype=dtype)
    for m in range(number):
        said = [
            -log_probs[b, t, m, tokens[b, t + 2 + m]]
            for b in range(batch)
            for t in range(length - 2 - m)
            if is_real[b, t + 2 + m]
        ]
        total += 0.8**m * sum(said) / max(len(said), 1)
    return total


@pytest.mark.group("heads")
class TestLoss:
    @pytest.mark.parametrize(
        "lengths, number, scale",
        [
            ((9, 9), 3, 1.0),
            ((12, 5, 8), 3, 1.0),
            ((12, 2, 3, 1), 4, 2.0),
            ((6, 4), 1, 1.0),
            ((8, 7), 2, 90.0),  # exp() of these overflows
            ((4, 3), 4, 1.0),  # nothing for the last two heads
            ((2, 1), 2, 1.0),  # nor for any
        ],
    )
    def test_equals_the_sum_over_places(self, draw, lengths, number, scale):
        width = max(lengths)
        logits = draw.normal(len(lengths), width, number, 13, scale=scale)
        tokens = draw.integers(0, 13, len(lengths), width)
        is_real = torch.arange(width) < torch.tensor(lengths)[:, None]
        expected, naive = (
            loss_oracle(logits, tokens, is_real, dtype) for dtype in (torch.float64, torch.float32)
        )
        padding = torch.tensor([-1, 13, 0, 10**6])[draw.integers(0, 4, len(lengths), width)]
        got = medusa_loss(logits, tokens.where(is_real, padding), is_real)
        assert_close(got, expected, naive=naive)

    def test_the_heads_learn_from_it(self, draw):
        logits, tokens = draw.normal(2, 7, 3, 9), draw.integers(0, 9, 2, 7)
        is_real = torch.arange(7) < torch.tensor([[7], [4]])
        expected = self._gradient(logits, tokens, is_real, torch.float64)
        naive = self._gradient(logits, tokens, is_real, torch.float32)
        _, (got,) = grad_of(medusa_loss, logits, tokens, is_real)
        assert_close(got, expected, naive=naive, axes="row place head token")

    def test_arguments_are_not_changed(self, draw):
        is_real = torch.arange(6) < torch.tensor([[6], [4]])
        tokens = draw.integers(0, 5, 2, 6)
        _, changed = watch(medusa_loss, draw.normal(2, 6, 2, 5), tokens, is_real)
        assert changed == [], "an argument was changed, by its place"

    def _gradient(self, logits, tokens, is_real, dtype):
        leaf = logits.to(dtype).requires_grad_()
        loss_oracle(leaf, tokens, is_real, dtype).backward()
        return leaf.grad


def assert_accepted(got, expected, tree):
    path, token = got
    what = f"tokens {tree.tokens.tolist()}, parents {tree.parents}"
    assert_equal((list(path), int(token)), expected, what=what)


# A root 2, children 1 and 0, and below the first of these 0, 2 and padding. The vocabulary is 3.
SMALL_TOKENS = torch.tensor([2, 1, 0, 0, NO_TOKEN, 2])
SMALL_PARENTS = [-1, 0, 0, 1, 1, 1]


def small_probs(next_law) -> torch.Tensor:
    rows = []
    for node in range(len(SMALL_PARENTS)):
        path = trees.ancestors(SMALL_PARENTS, node)[::-1][1:]
        rows.append(next_law(tuple(SMALL_TOKENS[path].clamp(min=0).tolist())))
    return torch.tensor([[float(p) for p in row] for row in rows])


def tokens_of(path, token) -> tuple[int, ...]:
    return (*SMALL_TOKENS[list(path)[1:]].tolist(), int(token))


@pytest.mark.group("acceptance")
class TestAcceptPath:
    @pytest.mark.parametrize("padding", [0.0, 0.3])
    def test_goes_where_the_target_draws(self, draw, padding):
        for parents in [*PARENTS * 2, *(draw_parents(draw, 18) for _ in range(6))]:
            tree = draw_tree(draw, parents, 6, padding=padding)
            got = accept_path(tree.tokens, tree.parents, tree.probs, tree.uniforms)
            # The submission's own way to lay the tokens on [0, 1); rows of padding have none.
            depths = torch.tensor(tree.depths)
            drawn = sample(tree.probs.nan_to_num(1 / 6), tree.uniforms[depths]).tolist()
            assert_accepted(got, tree.lossless(drawn), tree)

    def test_all_accepted(self, draw):
        """Each node's distribution is all on the child that is to be taken."""
        for parents in PARENTS:
            tree = draw_tree(draw, parents, 12)
            deepest = max(range(len(parents)), key=tree.depths.__getitem__)
            path = trees.ancestors(parents, deepest)[::-1]
            wanted = [*tree.tokens[path[1:]].tolist(), 11]
            tree.probs[:] = torch.eye(12)[0]
            tree.probs[path] = torch.eye(12)[wanted]
            got = accept_path(tree.tokens, parents, tree.probs, tree.uniforms)
            assert_accepted(got, (path, 11), tree)

    def test_law_is_the_targets(self, draw):
        """Every triple of uniforms: each text of 3 tokens as often as the target would say it."""
        next_law = table_law(TableLM(3, draw.seed()))
        probs, law = small_probs(next_law), {}
        points = grid(6, 6, 6)  # all probabilities are sixths
        for uniforms in points:
            text = tokens_of(*accept_path(SMALL_TOKENS, SMALL_PARENTS, probs, uniforms))
            law[text] = law.get(text, 0) + Fraction(1, len(points))
        assert_law(completed(law, next_law, 3), text_law(next_law, 3), "texts of 3 tokens")

    def test_arguments_are_not_changed(self, draw):
        tree = draw_tree(draw, PARENTS[4], 6, padding=0.3)
        for target, chance in ((accept_path, tree.uniforms), (accept_typical, 0.4)):
            _, changed = watch(target, tree.tokens, tree.parents, tree.probs, chance)
            assert changed == [], "an argument was changed, by its place"


@pytest.mark.group("acceptance")
class TestAcceptTypical:
    @pytest.mark.parametrize("padding", [0.0, 0.3])
    @pytest.mark.parametrize(
        "options",
        [{}, {"epsilon": 0.3, "delta": 0.9}, {"epsilon": 0.01, "delta": 0.1}, {"epsilon": 0.9}],
        ids=str,
    )
    def test_longest_of_the_typical_paths(self, draw, options, padding):
        limits = {"epsilon": 0.09, "delta": 0.3} | options
        for parents in [*PARENTS, *(draw_parents(draw, 18) for _ in range(6))]:
            tree = self._draw_clear(draw, parents, padding, limits)
            path = tree.typical(**limits)[0]
            uniform = float(draw.uniform(1))
            got = accept_typical(tree.tokens, tree.parents, tree.probs, uniform, **options)
            token = int(sample(tree.probs[path[-1:]], torch.tensor([uniform])))
            assert_accepted(got, (path, token), tree)

    def _draw_clear(self, draw, parents, padding, limits):
        """A tree in which no rounding decides."""
        while True:
            tree = draw_tree(draw, parents, 6, padding=padding)
            margins = [abs(tree.margin(node, **limits)) for node in range(1, len(parents))]
            best = tree.typical(**limits)[:2]
            products = [tree.product(path) for path in best]
            alike = len(best) == 2 and len(best[0]) == len(best[1])
            alike = alike and products[0] < 1.0001 * products[1]
            if not alike and min(margins, default=1.0) > 1e-4:
                return tree

    def test_longer_is_better_than_more_probable(self):
        """A child that is nearly certain, and two in a row that will do."""
        probs = torch.tensor([[0.8, 0.15, 0.05]] * 4)
        tokens, parents = torch.tensor([0, 0, 1, 1]), [-1, 0, 0, 2]
        path, _ = accept_typical(tokens, parents, probs, 0.5)
        assert_equal(list(path), [0, 2, 3])

    def test_it_is_not_lossless(self, draw):
        """The same trees and distributions as above: a typical guess is certain to come.

        Its law is computed, too: where a guess is accepted it has all the mass, and what the target
        would have said instead is never said.
        """
        model = TableLM(3, draw.seed())
        next_law = table_law(model)
        probs = small_probs(next_law)
        tree = trees.Tree(SMALL_TOKENS, SMALL_PARENTS, probs, torch.zeros(3))
        path = tree.typical(epsilon=0.1, delta=0.3)[0]  # a sixth is typical enough
        assert_equal(len(path), 3)
        taken = tuple(SMALL_TOKENS[path[1:]].tolist())
        expected = {(*taken, x): p for x, p in enumerate(next_law(taken)) if p}
        assert expected != text_law(next_law, 3)
        got, points = {}, grid(6)[:, 0].tolist()
        for uniform in points:
            answer = accept_typical(SMALL_TOKENS, SMALL_PARENTS, probs, uniform, 0.1, 0.3)
            text = tokens_of(*answer)
            got[text] = got.get(text, 0) + Fraction(1, len(points))
        assert_law(got, expected, "texts of typical acceptance")


def fresh_target():
    return TreeModel(TableLM(VOCAB)).parts


BUSHY = [(0,), (1,), (0, 0), (2,), (0, 1), (1, 0), (0, 0, 0), (0, 0, 1), (1, 1), (0, 2)]
DEEP_FIRST = [(1,), (1, 0), (1, 0, 0), (0,), (0, 1), (0, 1, 2), (0, 0), (0, 0, 0), (2,)]
CHAIN = [(0,), (0, 0), (0, 0, 0)]


@pytest.mark.group("generation")
class TestGenerate:
    @pytest.mark.parametrize("choices", [BUSHY, DEEP_FIRST, CHAIN, [(3,)], []], ids=len)
    def test_greedy(self, draw, choices):
        Generation(draw, medusa_generate).run(choices, 20)

    @pytest.mark.parametrize(
        "options",
        [
            {"temperature": 1.0},
            {"temperature": 0.5},
            {"temperature": 1.4, "top_k": 6},
            {"temperature": 1.0, "top_p": 0.7},
            {"temperature": 2.0, "top_k": 8, "top_p": 0.8},
        ],
        ids=str,
    )
    def test_sampled_tokens_are_those_of_generate(self, draw, options):
        """Token for token: new token i takes uniform i, in a tree or not."""
        uniforms = draw.uniform(20 + HEADS + 1)
        run = Generation(draw, medusa_generate)
        run.run(BUSHY, 20, generate=generate, uniforms=uniforms, **options)

    @pytest.mark.parametrize("count", range(8))
    def test_any_number_of_tokens(self, draw, count):
        """Also when the last tree could give more."""
        Generation(draw, medusa_generate).run(DEEP_FIRST, count, ranks=[0, 0, 0, 1])

    @pytest.mark.parametrize("count", [2, 3, 7])
    def test_the_last_uniforms(self, draw, count):
        uniforms = draw.uniform(count + HEADS + 1)
        options = {"generate": generate, "uniforms": uniforms, "temperature": 1.0}
        Generation(draw, medusa_generate).run(CHAIN, count, ranks=[0], **options)

    @pytest.mark.parametrize("length", [1, 2, 9])
    def test_prompts(self, draw, length):
        Generation(draw, medusa_generate, length=length).run(BUSHY, 9)

    def test_uniforms_do_not_disturb_the_best_tokens(self, draw):
        Generation(draw, medusa_generate).run(BUSHY, 9, uniforms=draw.uniform(9))

    def test_more_ranks_than_tokens(self, draw):
        """Nodes without a token: nothing else than tokens is fed, and they are not accepted."""
        choices = [(0,), (3,), (0, 4), (1,), (0, 1), (3, 0), (1, 0), (0, 1, 3), (0, 1, 0), (0, 0)]
        Generation(draw, medusa_generate, vocab=3).run(choices, 30, ranks=[0, 1, 1, 2])

    def test_a_choice_that_cannot_be_used_is_not_looked_at(self, draw):
        """It has more ranks than there are heads, and than tokens are missing."""
        Generation(draw, medusa_generate).run([*CHAIN, (0, 0, 0, 0)], 5, ranks=[0])

    def test_guesses_that_are_never_right(self, draw):
        Generation(draw, medusa_generate).run([(0,), (1,), (0, 1)], 8, ranks=[9, 10])

    def test_guesses_save_calls(self, draw):
        """All are right: 4 tokens a call after the first."""
        run = Generation(draw, medusa_generate)
        run.run(CHAIN, 25, ranks=[0])
        calls = len(run.target.feeds)
        assert calls <= 13, f"expected 7 calls for 25 tokens, none without need, got {calls}"

    def test_plain_integers(self, draw):
        got = Generation(draw, medusa_generate).run(BUSHY, 6)
        assert all(type(token) is int for token in got), f"expected a list of int, got {got!r}"

    def test_arguments_are_not_changed(self, draw):
        options = {"temperature": 1.0, "uniforms": draw.uniform(6)}
        arguments = (no_guesses, [1, 2], 6, list(BUSHY))
        _, changed = watch(medusa_generate, fresh_target(), *arguments, **options)
        assert changed == [], f"changed: {changed}"


@pytest.mark.group("generation")
class TestEnds:
    def test_stop_token_anywhere_in_a_path(self, draw):
        run = Generation(draw, medusa_generate)
        text = run.run(CHAIN, 9)
        for stop in text[:7]:
            run.run(CHAIN, 9, ranks=[0], stop_tokens={stop, VOCAB + 3})
            roots = [feed.tokens[0] for feed in run.target.feeds[1:]]
            assert stop not in roots, f"a call was made after the stop token {stop}"

    def test_stop_tokens_of_sampled_text(self, draw):
        for stop_tokens in ([0], [3, 7], (5,)):
            options = {"temperature": 1.0, "uniforms": draw.uniform(24 + HEADS + 1)}
            run = Generation(draw, medusa_generate)
            run.run(BUSHY, 24, generate=generate, stop_tokens=stop_tokens, **options)

    def test_stop_token_in_the_prompt_does_nothing(self, draw):
        run = Generation(draw, medusa_generate)
        text = run.run(CHAIN, 5)
        stops = [token for token in run.prompt if token not in text]
        run.run(CHAIN, 5, stop_tokens=[*stops, VOCAB + 3])

    def test_requests_that_make_no_sense(self, draw):
        whole = {"prompt": [1, 2], "max_new_tokens": 6, "choices": BUSHY}
        for wrong in (
            {"prompt": []},
            {"max_new_tokens": -1},
            {"temperature": 1.0},
            {"temperature": 1.0, "uniforms": draw.uniform(5)},
            {"temperature": -1.0, "uniforms": draw.uniform(6)},
            {"temperature": 1.0, "uniforms": draw.uniform(6), "top_k": 0},
            {"choices": [(0, 0), (0,)]},
            {"choices": [(0,), (0, 0), (0, 0, 0), (0, 0, 0, 0)]},
        ):
            shown = {k: "…" if isinstance(v, torch.Tensor) else v for k, v in wrong.items()}
            ask = functools.partial(medusa_generate, fresh_target(), no_guesses, **(whole | wrong))
            assert_value_error(f"medusa_generate with {shown}", ask)


def measured(draw) -> tuple[Generation, list[list[int]]]:
    """50 tokens by trees of ten guesses, and the calls that this takes: rows, and new tokens."""
    run = Generation(draw, medusa_generate, length=6)
    run.run(BUSHY, 50)
    return run, run.heads.rounds(BUSHY, 6, 50)


@pytest.mark.cost("target_calls")
def test_one_call_a_round(draw, budget):
    """The prompt, and then one call for as many tokens as the tree has right, and one more."""
    run, rounds = measured(draw)
    beside = {"token by token": 50}
    budget(len(run.target.feeds), len(rounds), unit="calls", beside=beside)


@pytest.mark.cost("rows")
def test_no_row_is_fed_in_vain(draw, budget):
    """The prompt, and each tree: its root and the guesses that can still be used."""
    run, rounds = measured(draw)
    beside = {"token by token": 6 + 49}
    budget(run.target.rows, sum(rows for rows, _ in rounds), unit="rows", beside=beside)
