"""speculative.verification: what a round gives has the target's law, whatever the draft.

The law is computed: p and q are fractions, every drafted text counts as often as it is drafted, and
the uniforms run over a grid that has the right share of its points on each side of every edge.
"""

from __future__ import annotations

import pytest
import torch

from assignment.provided.speculative import NO_TOKEN, Draft
from submission.speculative.verification import (
    acceptance_rate,
    best_num_draft,
    expected_speedup,
    expected_tokens_per_round,
    verify,
)
from tests.grading.boundary import watch
from tests.grading.closeness import assert_close, assert_equal
from tests.grading.refusal import assert_value_error
from tests.speculative import verification_oracles as oracles
from tests.speculative.law import assert_law, completed, grid, tally, text_law
from tests.speculative.verification_rounds import (
    assert_rounds,
    constant,
    draw_batch,
    every_round,
    guesses,
    in_vocabulary,
    laws_given,
    one_row,
    tables,
)

NAN = float("nan")
HIGHEST = 1 - 2.0**-24  # the largest float32 below 1


def assert_lossless(law, p, q, num_draft):
    """A round's law, gone on with by the target, is the target's; and no token is lost in vain."""
    what, length = f"num_draft {num_draft}", num_draft + 1
    assert_law(completed(law, q, length), text_law(q, length), f"{what}, then the target", p=p, q=q)
    assert_law(law, oracles.round_law(p, q, num_draft), f"{what}, one round", p=p, q=q)


@pytest.mark.group("law")
class TestLaw:
    @pytest.mark.parametrize(
        "p, q",
        [
            ((1, 6, 3), (5, 3, 2)),
            ((1, 2, 3, 4), (4, 3, 2, 1)),
            ((3, 1), (1, 3)),
            ((1, 1, 2), (0, 3, 1)),
            ((0, 1, 3), (2, 2, 0)),
            ((0, 0, 4), (4, 0, 0)),
            ((2, 3, 1), (2, 3, 1)),
        ],
    )
    def test_one_token(self, draw, p, q):
        """Where several tokens can be recovered, one number for acceptance and recovery shows."""
        p, q = constant(*p), constant(*q)
        (law,) = laws_given(verify, [every_round(p, q, 1)], draw)
        assert_lossless(law, p, q, 1)

    @pytest.mark.parametrize(
        "num_draft, p, q",
        [
            (2, (1, 2, 3), (1, 2, 3)),
            (2, (2, 2, 1, 1), (1, 1, 0, 4)),
            (3, (1, 1, 2), (0, 1, 3)),
            (3, (1, 2), (2, 1)),
        ],
    )
    def test_several_tokens(self, draw, num_draft, p, q):
        """Each drafted token has its own p and q, after all before it."""
        p, q = tables(draw, p, q)
        (law,) = laws_given(verify, [every_round(p, q, num_draft)], draw)
        assert_lossless(law, p, q, num_draft)

    @pytest.mark.parametrize("num_draft, weights", [(1, (1, 2, 3)), (2, (1, 1, 2)), (3, (2, 1))])
    def test_deterministic_draft(self, draw, num_draft, weights):
        """Lossless for each drafted text, not only on average over them."""
        (q,) = tables(draw, weights)
        drafts = [guesses(draw, len(weights)) for _ in range(5)]
        parts = [every_round(p, q, num_draft, sure=True) for p in drafts]
        for p, law in zip(drafts, laws_given(verify, parts, draw), strict=True):
            assert_lossless(law, p, q, num_draft)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_a_draft_like_the_target_is_always_accepted(self, draw, dtype):
        q = draw.normal(40, 4, 30, dtype=dtype).softmax(dim=-1)
        draft = Draft(draw.integers(0, 30, 40, 3), torch.full((40,), 3), q[:, :3].clone())
        uniforms = draw.uniform(40, 4)
        uniforms[::2, :3] = HIGHEST
        given = verify(draft, q, uniforms)
        assert_rounds(given, draft, 30)
        assert_equal(given[:, :3], draft.tokens, axes="row place")


@pytest.mark.group("edges")
class TestRows:
    def test_unequal_drafts(self, draw):
        """Drafts of 0 to 3 tokens in one batch, its rows in random order."""
        p, q = tables(draw, (1, 2, 3), (3, 2, 1))
        parts = [every_round(p, q, count) for count in range(4)]
        for count, law in enumerate(laws_given(verify, parts, draw)):
            assert_lossless(law, p, q, count)

    def test_unequal_deterministic_drafts(self, draw):
        (q,), p = tables(draw, (1, 1, 2)), guesses(draw, 3)
        parts = [every_round(p, q, count, sure=True) for count in range(4)]
        for count, law in enumerate(laws_given(verify, parts, draw)):
            assert_lossless(law, p, q, count)

    @pytest.mark.parametrize("sampled", [True, False])
    def test_a_row_is_as_if_it_were_alone(self, draw, sampled):
        """And what stands behind its draft is not read: NaN, infinity, tokens that do not exist."""
        draft, target_probs, uniforms = draw_batch(draw, [3, 0, 5, 1, 4, 2, 5, 0, 3], 7, sampled)
        together = verify(draft, target_probs, uniforms)
        assert_rounds(together, draft, 7)
        for row, count in enumerate(draft.num_draft.tolist()):
            alone = verify(*one_row(draft, target_probs, uniforms, row))
            assert_equal(together[row, : count + 1], alone[0], axes="place", what=f"row {row}")

    @pytest.mark.parametrize("sampled", [True, False])
    def test_nothing_drafted_at_all(self, draw, sampled):
        q = constant(1, 0, 3, 2)
        (law,) = laws_given(verify, [every_round(q, q, 0, sure=not sampled)], draw)
        assert_law(law, text_law(q, 1), "G = 0")

    @pytest.mark.parametrize("sampled", [True, False])
    def test_arguments_are_not_changed(self, draw, sampled):
        draft, *others = draw_batch(draw, [2, 3, 0, 1], 5, sampled)
        _, changed = watch(verify, draft, *others)
        assert changed == [], "the draft (0), target_probs (1) or the uniforms (2) were changed"

    def test_float64(self, draw):
        p, q = tables(draw, (1, 2, 3), (0, 2, 4))
        rounds = every_round(p, q, 2).to(torch.float64)
        (law,) = laws_given(verify, [rounds], draw)
        assert_lossless(law, p, q, 2)


@pytest.mark.group("edges")
class TestVocabularies:
    @pytest.mark.parametrize("num_draft", [1, 2])
    @pytest.mark.parametrize(
        "p, q",
        [((1, 1, 1, 1, 4), (2, 2, 4)), ((1, 1), (2, 1, 0, 3)), ((1,), (1, 1)), ((2, 2, 4), (1,))],
    )
    def test_draft_is_wider_or_narrower(self, draw, p, q, num_draft):
        vocab_size = len(q)
        p, q = tables(draw, p, q)
        q = in_vocabulary(q, vocab_size)
        (law,) = laws_given(verify, [every_round(p, q, num_draft)], draw)
        assert_lossless(law, p, q, num_draft)

    @pytest.mark.parametrize("token", [4, 5, 10**9])
    def test_deterministic_guess_that_the_target_does_not_have(self, draw, token):
        """Nothing is taken off q: the recovered token has its law."""
        q, points = torch.tensor([1.0, 2.0, 0.0, 5.0]) / 8, grid(2, 2, 8)
        draft = Draft.of([[token, 1]] * len(points), 2)
        given = verify(draft, q.expand(len(points), 3, -1), points)
        assert_rounds(given, draft, 4)
        assert_law(tally(given), text_law(constant(1, 2, 0, 5), 1), f"guess {token} of 4 tokens")

    def test_drafted_tokens_that_the_draft_does_not_have(self, draw):
        """p is 0: rejected, however probable the target finds them."""
        p = torch.tensor([[[0.5, 0.5, 0.0]]]).expand(3, -1, -1)
        q = torch.tensor([0.0, 0.0, 0.25, 0.5, 0.25]).expand(3, 2, -1)
        draft = Draft(torch.tensor([[2], [3], [4]]), torch.ones(3, dtype=torch.int64), p)
        given = verify(draft, q, torch.zeros(3, 2))
        assert_rounds(given, draft, 5)
        assert_equal(given[:, 1].tolist(), [NO_TOKEN] * 3, what="after a rejected token")


@pytest.mark.group("edges")
class TestNumbers:
    @pytest.mark.parametrize("which", ["p", "q", "both"])
    def test_nan_counts_as_zero(self, draw, which):
        p, q = tables(draw, (0, 1, 2, 1), (1, 0, 0, 3))
        rounds = every_round(p, q, 2).with_nan_for_zero(which)
        (law,) = laws_given(verify, [rounds], draw)
        assert_lossless(law, p, q, 2)

    @pytest.mark.parametrize("value", [0.0, NAN])
    @pytest.mark.parametrize("wider", [0, 3])
    def test_row_of_the_target_without_probabilities(self, draw, wider, value):
        """Any token of the vocabulary takes the place; those before it stay."""
        q = draw.normal(4, 4, 6).softmax(dim=-1)
        p = torch.cat([q[:, :3], torch.zeros(4, 3, wider)], dim=-1)
        draft = Draft(draw.integers(0, 6, 4, 3), torch.full((4,), 3), p)
        q[torch.arange(4), torch.arange(4)] = value
        given = verify(draft, q, torch.tensor([0.0, 0.3, HIGHEST, 0.0])[:, None].expand(4, 4))
        assert_rounds(given, draft, 6)
        for row, tokens in enumerate(draft.tokens.tolist()):
            expected = [*tokens[:row], int(given[row, row]), *[NO_TOKEN] * (3 - row)]
            what = f"row {row}, draft {tokens}, q of place {row} all {value}"
            assert_equal(given[row].tolist(), expected, what=what)

    @pytest.mark.parametrize("value", [0.0, NAN])
    def test_row_of_the_draft_without_probabilities(self, draw, value):
        """The drafted token is rejected, and q has lost nothing to it."""
        q = (torch.tensor([1.0, 2.0, 0.0, 5.0]) / 8).expand(40, 3, -1)
        p, points = q[:, :2].clone(), grid(1, 5, 8)
        p[:, 1] = value
        draft = Draft(torch.tensor([[3, 1]] * 40), torch.full((40,), 2), p)
        given = verify(draft, q, points)
        assert_rounds(given, draft, 4)
        assert_equal(given[:, 0].tolist(), [3] * 40, what="the token before")
        assert_law(tally(given[:, 1:]), text_law(constant(1, 2, 0, 5), 1), "the token in its place")

    @pytest.mark.parametrize("token", [0, 1, 3])
    @pytest.mark.parametrize("factor", [1 + 2.0**-20, 2.0])
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
    def test_residual_of_zero(self, draw, token, factor, dtype):
        """p is above q everywhere, as rounding can leave it: q itself is drawn from."""
        q = (torch.tensor([1, 2, 0, 5], dtype=dtype) / 8).expand(8, 2, -1)
        draft = Draft(
            torch.full((8, 1), token), torch.ones(8, dtype=torch.int64), factor * q[:, 1:]
        )
        points = torch.cat([torch.full((8, 1), HIGHEST), grid(8)], dim=1)
        given = verify(draft, q, points)
        assert_rounds(given, draft, 4)
        assert_law(tally(given), text_law(constant(1, 2, 0, 5), 1), "the recovered token")

    def test_a_small_residual_is_one(self, draw):
        """p is a thousandth off q: what is recovered is the token that p says too seldom."""
        less, more = 0.5 - 2.0**-10, 0.5 + 2.0**-10
        q = torch.tensor([more, less]).expand(8, 2, -1)
        draft = Draft(torch.ones(8, 1).long(), torch.ones(8).long(), torch.full((8, 1, 2), 0.5))
        given = verify(draft, q, torch.cat([torch.full((8, 1), HIGHEST), grid(8)], dim=1))
        assert_equal(given.tolist(), [[0, NO_TOKEN]] * 8, what="the recovered token")

    def test_no_chance_is_no_chance(self, draw):
        """A uniform of 0 accepts no token that the target never says, nor one never drafted."""
        p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])[:, None]
        q = torch.tensor([[0.0, 1.0], [0.5, 0.5]])[:, None].expand(-1, 2, -1)
        draft = Draft(torch.zeros(2, 1, dtype=torch.int64), torch.tensor([1, 1]), p)
        given = verify(draft, q, torch.zeros(2, 2))
        assert_equal(given.tolist(), [[1, NO_TOKEN], [0, NO_TOKEN]])
        sure = verify(Draft.of([[0]], 1), q[:1], torch.zeros(1, 2))
        assert_equal(sure.tolist(), [[1, NO_TOKEN]], what="deterministic draft")

    @pytest.mark.parametrize("support", [3, 7, 1000, 5000, 19_990])
    @pytest.mark.parametrize("drafted", [0, 1])
    def test_the_ends_of_the_unit_interval(self, draw, support, drafted):
        """No uniform gives a bonus or recovered token of no probability, whatever rounding does."""
        q = torch.zeros(4, 2, support + 20)
        q[:, :, 10:-10] = (1 - 1e-6) / support  # so far off may rounding leave the sum
        p = torch.zeros(4, 1, support + 20)
        p[:, :, 2] = 1
        draft = Draft(torch.full((4, 1), 2), torch.full((4,), drafted), p)
        ends = torch.tensor([0.0, 2.0**-40, 1 - 2.0**-23, HIGHEST])
        drawn = verify(draft, q, ends[:, None].expand(4, 2))[:, 0]
        inside = (drawn >= 10) & (drawn < support + 10)
        assert inside.all(), f"expected tokens 10 to {support + 9}, got {drawn.tolist()}"


RATES = [0.0, 0.1, 0.5, 0.8, 0.97, 1.0]


@pytest.mark.group("rates")
class TestRates:
    def test_acceptance_by_hand(self):
        p = torch.tensor([[0.7, 0.3], [0.4, 0.6], [1.0, 0.0], [0.1, 0.9]])
        q = torch.tensor([[0.4, 0.6], [0.4, 0.6], [0.0, 1.0], [0.2, 0.8]])
        expected = torch.tensor([0.7, 1.0, 0.0, 0.9], dtype=torch.float64)
        assert_close(acceptance_rate(p, q), expected, naive=expected.float(), axes="row")

    @pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 11)])
    def test_acceptance_is_the_share_that_is_accepted(self, draw, shape):
        p, q = (draw.normal(*shape, scale=2.0).softmax(dim=-1) for _ in range(2))
        expected = oracles.share_accepted(p.double(), q.double())
        naive = oracles.share_accepted(p, q)
        got, changed = watch(acceptance_rate, p, q)
        assert_close(got, expected, naive=naive)
        assert changed == [], "draft_probs (0) or target_probs (1) was changed"

    @pytest.mark.parametrize("acceptance", RATES)
    @pytest.mark.parametrize("num_draft", [0, 1, 2, 4, 9])
    def test_expected_tokens(self, acceptance, num_draft):
        got = expected_tokens_per_round(acceptance, num_draft)
        assert got == about(oracles.mean_tokens(acceptance, num_draft))

    def test_worked_example(self):
        assert expected_tokens_per_round(0.8, 4) == about(3.3616)
        assert expected_speedup(0.8, 4, 0.05) == about(3.3616 / 1.2)

    @pytest.mark.parametrize("acceptance", RATES)
    @pytest.mark.parametrize("draft_cost", [0.0, 0.05, 0.5, 1.0, 3.0])
    def test_expected_speedup(self, acceptance, draft_cost):
        for num_draft in (0, 1, 3, 8):
            got = expected_speedup(acceptance, num_draft, draft_cost)
            expected = oracles.speedup(acceptance, num_draft, draft_cost)
            assert got == about(expected), f"num_draft {num_draft}"

    @pytest.mark.parametrize("most", [0, 1, 5, 30])
    def test_best_num_draft(self, draw, most):
        drawn = list(zip(draw.uniform(12).tolist(), draw.uniform(12).tolist(), strict=True))
        for acceptance, cost in [(0.8, 0.05), (0.9, 0.01), (0.6, 0.2), (0.5, 0.7), *drawn]:
            got = best_num_draft(acceptance, cost, most)
            best = oracles.best_num_drafts(acceptance, cost, most)
            assert got in best, f"α {acceptance}, cost {cost}: expected {best[0]}, got {got}"

    @pytest.mark.parametrize(
        "acceptance, draft_cost, most, expected",
        [
            (1.0, 1.0, 6, 0),  # all the same: a draft as slow as the target
            (0.0, 0.0, 6, 0),  # all the same: a draft that costs nothing and is of no use
            (0.5, 0.5, 6, 0),  # none and one are the same
            (0.25, 0.25, 6, 0),
            (0.0, 0.1, 6, 0),
            (0.9, 2.0, 6, 0),
            (1.0, 0.5, 6, 6),
            (0.5, 0.0, 6, 6),
            (1.0, 0.5, 0, 0),
        ],
    )
    def test_best_num_draft_at_the_ends(self, acceptance, draft_cost, most, expected):
        assert_equal(best_num_draft(acceptance, draft_cost, most), expected)

    def test_arguments_out_of_range(self):
        for acceptance, num_draft in [(-0.1, 2), (1.1, 2), (0.5, -1), (1.0, -1)]:
            what = f"acceptance {acceptance}, num_draft {num_draft}"
            assert_value_error(what, expected_tokens_per_round, acceptance, num_draft)
            assert_value_error(what, expected_speedup, acceptance, num_draft, 0.1)
        assert_value_error("draft_cost −0.1", expected_speedup, 0.5, 2, -0.1)
        assert_value_error("draft_cost −0.1", expected_speedup, 0.5, 0, -0.1)
        for arguments in [(1.1, 0.1, 3), (-0.1, 0.1, 3), (0.5, -0.1, 3), (0.5, 0.1, -1)]:
            assert_value_error(f"best_num_draft{arguments}", best_num_draft, *arguments)


def about(number):
    return pytest.approx(float(number), rel=1e-6)
