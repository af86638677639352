"""kernels.rejection_sampling: the law of speculative.verification, and one row a sequence."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch

from assignment.provided.speculative import NO_TOKEN
from submission.kernels.rejection_sampling import rejection_sampling
from tests.grading.closeness import assert_equal
from tests.kernels import rejection_edges as edges
from tests.kernels import rejection_inputs as inputs
from tests.kernels import rejection_watched as watched
from tests.kernels.kernel_costs import (
    assert_asks_nothing,
    assert_fits,
    by_one_program,
    charge_bytes,
    charge_code,
    charge_time,
)
from tests.kernels.oracles_rejection import assert_lossless
from tests.speculative.law import assert_law, grid, tally, text_law
from tests.speculative.verification_rounds import (
    NAN,
    constant,
    draw_batch,
    guesses,
    in_vocabulary,
    one_row,
    tables,
)

__tracebackhide__ = True

check = partial(watched.check, rejection_sampling)
given = partial(watched.given, rejection_sampling)
num_given = partial(watched.num_given, rejection_sampling)
laws = partial(watched.laws, rejection_sampling)
check_law = partial(watched.check_law, rejection_sampling)


@pytest.mark.group("law")
class TestLaw:
    @pytest.mark.parametrize(
        "p, q",
        [
            ((1, 6, 3), (5, 3, 2)),
            ((1, 2, 3, 4), (4, 3, 2, 1)),
            ((1, 1, 2), (0, 3, 1)),
            ((0, 0, 4), (4, 0, 0)),
            ((2, 3, 1), (2, 3, 1)),
        ],
    )
    def test_one_token(self, draw, p, q):
        """Where several tokens can be recovered, one number for acceptance and recovery shows."""
        check_law(draw, constant(*p), constant(*q), [1])

    @pytest.mark.parametrize("num_draft, p, q", [(2, (1, 1, 2), (0, 1, 3)), (3, (1, 2), (2, 1))])
    def test_several_tokens(self, draw, num_draft, p, q):
        """Each drafted token has its own p and q, after all before it."""
        check_law(draw, *tables(draw, p, q), [num_draft])

    @pytest.mark.parametrize("num_draft, weights", [(1, (1, 2, 3)), (2, (1, 1, 2)), (3, (2, 1))])
    def test_deterministic_draft(self, draw, num_draft, weights):
        """Lossless for each drafted text, not only on average over them."""
        (q,) = tables(draw, weights)
        drafts = [guesses(draw, len(weights)) for _ in range(3)]
        parts = [inputs.every_outcome(draw, p, q, num_draft, sure=True) for p in drafts]
        for p, law in zip(drafts, laws(draw, *parts), strict=True):
            assert_lossless(law, p, q, num_draft)

    @pytest.mark.parametrize("kind", ["bonus", "recovered", "guess"])
    def test_the_last_token_lies_anywhere(self, draw, kind):
        """Few of 5,000 tokens can be drawn; how often each is does not depend on where it is."""
        for vocab_size, weights, places in (
            (5000, (3, 7, 1, 2, 2, 1), ()),
            (5000, (1, 4, 2, 1), (0, 4999, 2, 4998)),
            (140_000, (1, 1), (0, 139_999)),
        ):
            rounds, expected = inputs.draw_last(draw, weights, vocab_size, kind, places)
            got = given(draw, rounds.draft, rounds.target_probs, rounds.uniforms)
            assert_law(tally(got[:, :1]), expected, f"the {kind} token of {vocab_size:,}")

    def test_a_draft_like_the_target_is_always_accepted(self, draw):
        draft, *others = edges.like_the_target(draw)
        assert_equal(given(draw, draft, *others)[:, :3], draft.tokens, axes="row place")

    def test_small_differences_count(self, draw):
        """Numbers of 16 bits do not know which of two tokens is more probable."""
        batch, expected = edges.narrow_leads()
        assert_equal(given(draw, *batch)[:, 0].tolist(), expected, axes="row")

    def test_the_kernel_does_the_work(self, draw):
        seen = check(draw, *inputs.draw_rounds(draw, [1] * 4, [0] * 4, 3000))
        watched.assert_work_of_the_kernel(seen, 4, 3000)


@pytest.mark.group("ragged")
class TestRagged:
    @pytest.mark.parametrize("sure", [False, True])
    def test_unequal_drafts(self, draw, sure):
        """Drafts of 0, 1 and 3 tokens in one batch, its rows in random order."""
        (q,) = tables(draw, (1, 3))
        p = guesses(draw, 2) if sure else tables(draw, (1, 1))[0]
        check_law(draw, p, q, [0, 1, 3], sure)

    @pytest.mark.parametrize("sampled", [True, False])
    def test_a_row_is_as_if_it_were_alone(self, draw, sampled):
        """And what stands behind its draft is not read: NaN, infinity, tokens that do not exist."""
        draft, *others = draw_batch(draw, [3, 0, 5, 1, 4, 2, 5, 0, 3], 7, sampled)
        together = given(draw, draft, *others)
        for row, count in enumerate(draft.num_draft.tolist()):
            alone = given(draw, *one_row(draft, *others, row))
            assert_equal(together[row, : count + 1], alone[0], axes="place", what=f"row {row}")

    def test_behind_the_draft_all_would_be_accepted(self, draw):
        """What is not drafted is no token, however probable it is made."""
        counts = [0, 1, 2, 3, 1, 0]
        batch = edges.all_acceptable(draw, counts, 5)
        assert_equal(num_given(draw, *batch), [count + 1 for count in counts], axes="row")

    @pytest.mark.parametrize("sampled", [True, False])
    def test_many_drafted_tokens(self, draw, sampled):
        """Up to 19 of them, all accepted or rejected at any place."""
        counts, ends = [19, 19, 16, 19, 17, 0, 19], [19, 0, 16, 11, 3, 0, 18]
        batch = inputs.draw_rounds(draw, counts, ends, 40, sampled=sampled)
        assert_equal(num_given(draw, *batch), [end + 1 for end in ends], axes="row")

    @pytest.mark.parametrize("sampled", [True, False])
    def test_nothing_drafted_at_all(self, draw, sampled):
        q = constant(1, 0, 3, 2)
        (law,) = laws(draw, inputs.every_outcome(draw, q, q, 0, sure=not sampled))
        assert_law(law, text_law(q, 1), "G = 0")

    def test_counts_of_int32(self, draw):
        draft, *others = inputs.draw_rounds(draw, [2, 0, 3, 3], [2, 0, 1, 3], 12)
        check(draw, replace(draft, num_draft=draft.num_draft.int()), *others)

    @pytest.mark.parametrize("sampled", [True, False])
    def test_offsets_beyond_what_int32_reaches(self, draw, sampled):
        """The lab's int32 has 16 bits here: 50,000 probabilities are as 3 · 10⁹."""
        counts, ends = [3, 2, 3, 0] * 7, [3, 0, 1, 0] * 7
        batch = inputs.draw_rounds(draw, counts, ends, 450, sampled=sampled)
        check(draw, *batch, integer_bits=16)


EIGHTHS = torch.tensor([1.0, 2.0, 0.0, 5.0]) / 8
LAW_OF_EIGHTHS = text_law(constant(1, 2, 0, 5), 1)


@pytest.mark.group("padded")
class TestVocabularies:
    @pytest.mark.parametrize(
        "p, q", [((1, 1, 2), (2, 2)), ((1, 1), (2, 1, 0, 1)), ((1,), (1, 1)), ((2, 2, 4), (1,))]
    )
    def test_draft_is_wider_or_narrower(self, draw, p, q):
        drafts, targets = tables(draw, p, q)
        check_law(draw, drafts, in_vocabulary(targets, len(q)), [1, 2])

    @pytest.mark.parametrize("wider", [-900, 900])
    def test_large_vocabularies(self, draw, wider):
        options = {"draft_vocab": 2100 + wider}
        draft, *others = inputs.draw_rounds(draw, [2, 2, 2, 1], [2, 0, 1, 0], 2100, **options)
        draft.probs[:, :, 2100:] = NAN  # what the target does not have may hold anything
        check(draw, draft, *others)

    @pytest.mark.parametrize("token", [4, 5, 2**32 + 3, -1, -(10**9)])
    def test_deterministic_guess_that_the_target_does_not_have(self, draw, token):
        """Nothing is taken off q: the recovered token has its law."""
        got = given(draw, edges.all_of(8, [token, 1]), EIGHTHS.expand(8, 3, -1), grid(1, 1, 8))
        assert_law(tally(got), LAW_OF_EIGHTHS, f"guess {token} of 4 tokens")

    @pytest.mark.parametrize("width", [2, 3, 7])
    def test_drafted_tokens_that_the_draft_does_not_have(self, draw, width):
        """p is 0: rejected, however probable the target finds them."""
        assert_equal(num_given(draw, *edges.not_the_drafts(width)), [1] * 5, axes="row")


@pytest.mark.group("padded")
class TestNumbers:
    @pytest.mark.parametrize("which", ["p", "q", "both", "q of a deterministic draft"])
    def test_nan_counts_as_zero(self, draw, which):
        p, q = tables(draw, (0, 1, 1), (1, 0, 3))
        if sure := "draft" in which:
            p = guesses(draw, 3)
        rounds = inputs.every_outcome(draw, p, q, 2, sure)
        (law,) = laws(draw, inputs.nan_for_zero(rounds, which))
        assert_lossless(law, p, q, 2)

    @pytest.mark.parametrize("value", [0.0, NAN])
    @pytest.mark.parametrize("vocab_size", [6, 1030])
    def test_row_of_the_target_without_probabilities(self, draw, vocab_size, value):
        """Any token of the vocabulary takes the place; those before it stay."""
        batch = edges.without_target(draw, vocab_size, value)
        assert_equal(num_given(draw, *batch), [1, 2, 3, 4], axes="row")

    @pytest.mark.parametrize("value", [0.0, NAN])
    def test_row_of_the_draft_without_probabilities(self, draw, value):
        """The drafted token is rejected, and q has lost nothing to it."""
        p = EIGHTHS.repeat(2, 1)
        p[1] = value
        got = given(draw, edges.all_of(8, [3, 1], p), EIGHTHS.expand(8, 3, -1), grid(1, 1, 8))
        assert_equal(got[:, 0].tolist(), [3] * 8, what="the token before")
        assert_law(tally(got[:, 1:]), LAW_OF_EIGHTHS, "the token in its place")

    @pytest.mark.parametrize("token, factor", [(0, 1 + 2.0**-20), (1, 2.0), (3, 1 + 2.0**-20)])
    def test_residual_of_zero(self, draw, token, factor):
        """p is above q everywhere, as rounding can leave it: q itself is drawn from."""
        draft = edges.all_of(8, [token], factor * EIGHTHS)
        got = given(draw, draft, EIGHTHS.expand(8, 2, -1), edges.last_of(8))
        assert_law(tally(got), LAW_OF_EIGHTHS, "the recovered token")

    def test_a_sure_guess_that_is_right(self, draw):
        """q is there alone, by rounding a bit below 1: so is the residual, which is 0."""
        got = given(draw, *edges.right_guesses())
        assert_equal(got[:, 0].tolist(), [1200] * 3, axes="row")

    def test_no_chance_is_no_chance(self, draw):
        """A uniform of 0 accepts no token that the target never says, nor one never drafted."""
        draft, q, uniforms = edges.no_chance()
        got = given(draw, draft, q, uniforms)
        assert_equal(got.tolist(), [[1, NO_TOKEN], [0, NO_TOKEN]])
        sure = given(draw, edges.all_of(1, [0]), q[:1], uniforms[:1])
        assert_equal(sure.tolist(), [[1, NO_TOKEN]], what="deterministic draft")

    @pytest.mark.parametrize("support", [3, 5000, 32_100])
    @pytest.mark.parametrize("drafted", [0, 1])
    def test_the_ends_of_the_unit_interval(self, draw, support, drafted):
        """No uniform gives a bonus or recovered token of no probability, whatever rounding does."""
        check(draw, *edges.at_the_ends(support, drafted))

    @pytest.mark.parametrize("vocab", [30, 1000, 2000])
    def test_sums_that_rounding_leaves_short(self, draw, vocab):
        """Of any weights: the number may lie behind the last one's end, and behind it are zeros."""
        got = given(draw, *edges.short_sums(draw, vocab))[:, 0]
        assert_equal(got < vocab, torch.ones(60).bool(), axes="row", what="tokens that q has")

    def test_small_residuals(self, draw):
        """All that is left of q is 1e-5, for one token."""
        got = given(draw, *edges.small_residuals())
        assert_equal(got[:, 0].tolist(), [2900] * 3, axes="row")

    @pytest.mark.parametrize("drafted", [0, 1])
    def test_numbers_between_two_tiles(self, draw, drafted):
        """And none that falls just where a tile ends, as these do: all sums are exact."""
        check(draw, *edges.between_tiles(drafted))


@pytest.mark.group("compiled")
@pytest.mark.parametrize(
    "architecture, sampled", [("sm_80", True), ("sm_90", True), ("sm_90", False)]
)
def test_every_launch_fits(draw, architecture, sampled):
    seen = check(draw, *inputs.draw_rounds(draw, [4, 3], [2, 3], 2048, sampled=sampled))
    assert_fits(seen, architecture)
    assert_asks_nothing(seen)


@pytest.mark.cost("bytes")
@pytest.mark.parametrize("sampled", [True, False])
def test_rows_that_are_drawn_from(draw, budget, sampled):
    """51,000 tokens; drafts of 0 to 4, most of them rejected somewhere.

    The ideal: what is looked at of the drafted tokens, and each row that is drawn from once.
    """
    counts, ends = [4, 2, 0, 4, 3, 1], [1, 2, 0, 0, 2, 0]
    options = {"draft_vocab": 51_300, "sampled": sampled}
    draft, *others = inputs.draw_rounds(draw, counts, ends, 51_000, **options)
    seen = check(draw, draft, *others)
    least = inputs.least_bytes(draft, others[0], ends)
    rows = sum(count + 1 for count in counts) + sampled * sum(counts)
    beside = {"two full passes": 2 * least, "every row of p and q": 4 * 51_000 * rows}
    charge_bytes(budget, seen, least, beside)


@pytest.mark.cost("time")
def test_predicted_time_on_an_h100(draw, budget):
    """A step in which nothing was drafted: 60 tokens of the vocabulary of SmolLM2, beside which
    tiles of 4,096 are small.

    The ideal: the least bytes at full bandwidth.
    """
    vocab_size, nothing = 49_152, [0] * 60
    draft, *others = inputs.draw_rounds(draw, nothing, nothing, vocab_size)
    seen = check(draw, draft, *others)
    least = inputs.least_bytes(draft, others[0], nothing)
    beside = {"one program for all": by_one_program(least)}
    flops = len(nothing) * vocab_size  # a sum of all
    charge_time(budget, seen, least, flops=flops, dtype="fp32", beside=beside)


@pytest.mark.cost("code")
def test_what_the_compiler_makes_of_it(draw, budget):
    """Registers that spill, as a row in one tile does. Loads are not counted: most run but once."""
    seen = check(draw, *inputs.draw_rounds(draw, [1, 2], [0, 2], 64_000))
    charge_code(budget, [seen])
