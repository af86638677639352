"""kernels.rejection_sampling: the law of speculative.verification, and one row a sequence."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from assignment.provided.speculative import NO_TOKEN, Draft
from submission.kernels.rejection_sampling import rejection_sampling
from tests.grading.closeness import assert_equal
from tests.grading.kernels.boundary import Seen, in_lab
from tests.kernels import rejection_inputs as inputs
from tests.kernels.kernel_costs import (
    assert_fits,
    by_one_program,
    charge_bytes,
    charge_time,
)
from tests.kernels.oracles_rejection import assert_lossless, assert_round_of_each
from tests.speculative.law import Law, assert_law, grid, tally, text_law
from tests.speculative.verification_rounds import (
    Rounds,
    constant,
    draw_batch,
    guesses,
    in_vocabulary,
    laws_given,
    one_row,
    tables,
)

__tracebackhide__ = True

NAN = float("nan")


def check(draw, draft: Draft, q: Tensor, uniforms: Tensor, integer_bits: int = 32) -> Seen:
    """One launch, programs in an order of chance; what may come out does; arguments stay."""
    arguments = [draft.tokens, draft.num_draft, draft.probs, q.contiguous(), uniforms.contiguous()]
    before = inputs.copied(arguments)
    seen = in_lab(rejection_sampling, *arguments, seed=draw.seed(), integer_bits=integer_bits)
    launches = [launch.kernel for launch in seen.launches]
    assert len(launches) == 1, f"expected one launch, got {len(launches)}: {launches}"
    assert_round_of_each(seen.value, draft, q, uniforms)
    inputs.assert_unchanged(seen.arguments, before)
    return seen


def given(draw, draft: Draft, q: Tensor, uniforms: Tensor) -> Tensor:
    return check(draw, draft, q, uniforms).value


def num_given(draw, draft: Draft, q: Tensor, uniforms: Tensor) -> list[int]:
    return (given(draw, draft, q, uniforms) >= 0).sum(dim=1).tolist()


def laws(draw, *parts: Rounds) -> list[Law]:
    return laws_given(lambda *batch: given(draw, *batch), list(parts), draw)


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
        p, q = constant(*p), constant(*q)
        (law,) = laws(draw, inputs.every_outcome(draw, p, q, 1))
        assert_lossless(law, p, q, 1)

    @pytest.mark.parametrize("num_draft, p, q", [(2, (1, 1, 2), (0, 1, 3)), (3, (1, 2), (2, 1))])
    def test_several_tokens(self, draw, num_draft, p, q):
        """Each drafted token has its own p and q, after all before it."""
        p, q = tables(draw, p, q)
        (law,) = laws(draw, inputs.every_outcome(draw, p, q, num_draft))
        assert_lossless(law, p, q, num_draft)

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
        for weights, places in [((3, 7, 1, 2, 2, 1), ()), ((1, 4, 2, 1), (0, 4999, 2, 4998))]:
            rounds, expected = inputs.draw_last(draw, weights, 5000, kind, places)
            got = given(draw, rounds.draft, rounds.target_probs, rounds.uniforms)
            assert_law(tally(got[:, :1]), expected, f"the {kind} token")
        rounds, expected = inputs.draw_last(draw, (1, 1), 140_000, kind, (0, 139_999))
        got = given(draw, rounds.draft, rounds.target_probs, rounds.uniforms)
        assert_law(tally(got[:, :1]), expected, f"the {kind} token of a large vocabulary")

    def test_a_draft_like_the_target_is_always_accepted(self, draw):
        q = draw.normal(20, 4, 30).softmax(dim=-1)
        draft = Draft(draw.integers(0, 30, 20, 3), torch.full((20,), 3), q[:, :3].clone())
        uniforms = draw.uniform(20, 4)
        uniforms[::2, :3] = inputs.HIGHEST
        assert_equal(given(draw, draft, q, uniforms)[:, :3], draft.tokens, axes="row place")

    def test_small_differences_count(self, draw):
        """Numbers of 16 bits do not know which of two tokens is more probable."""
        batch, expected = inputs.narrow_leads()
        assert_equal(given(draw, *batch)[:, 0].tolist(), expected, axes="row")

    def test_the_kernel_does_the_work(self, draw):
        batch = inputs.draw_rounds(draw, [1] * 4, [0] * 4, 3000)
        seen = check(draw, *batch)
        (launch,) = seen.launches
        for what, got, least in (
            ("bytes loaded", launch.bytes_loaded, 2 * 4 * 4 * 3000),
            ("bytes stored", launch.bytes_stored, 8 * seen.value.numel()),
            ("FLOPs", launch.vector_flops, 2 * 4 * 3000),
        ):
            assert got >= least, f"{what} by the kernel: expected {least:,} or more, got {got:,}"
        most = 3.5 * 4 * 3000  # once over all there is would be 3 for each token
        assert seen.cost.flops < most, f"torch did {seen.cost.flops:,} FLOPs in the launcher"


@pytest.mark.group("ragged")
class TestRagged:
    @pytest.mark.parametrize("sure", [False, True])
    def test_unequal_drafts(self, draw, sure):
        """Drafts of 0, 1 and 3 tokens in one batch, its rows in random order."""
        (q,) = tables(draw, (1, 3))
        p = guesses(draw, 2) if sure else tables(draw, (1, 1))[0]
        parts = [inputs.every_outcome(draw, p, q, count, sure) for count in (0, 1, 3)]
        for count, law in zip((0, 1, 3), laws(draw, *parts), strict=True):
            assert_lossless(law, p, q, count)

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
        batch = inputs.all_acceptable(draw, counts, 5)
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
        vocab_size = len(q)
        p, q = tables(draw, p, q)
        q = in_vocabulary(q, vocab_size)
        parts = [inputs.every_outcome(draw, p, q, count) for count in (1, 2)]
        for count, law in zip((1, 2), laws(draw, *parts), strict=True):
            assert_lossless(law, p, q, count)

    @pytest.mark.parametrize("wider", [-900, 900])
    def test_large_vocabularies(self, draw, wider):
        options = {"draft_vocab": 2100 + wider}
        draft, *others = inputs.draw_rounds(draw, [2, 2, 2, 1], [2, 0, 1, 0], 2100, **options)
        draft.probs[:, :, 2100:] = NAN  # what the target does not have may hold anything
        check(draw, draft, *others)

    @pytest.mark.parametrize("token", [4, 5, 2**32 + 3, -1, -(10**9)])
    def test_deterministic_guess_that_the_target_does_not_have(self, draw, token):
        """Nothing is taken off q: the recovered token has its law."""
        got = given(draw, inputs.all_of(8, [token, 1]), EIGHTHS.expand(8, 3, -1), grid(1, 1, 8))
        assert_law(tally(got), LAW_OF_EIGHTHS, f"guess {token} of 4 tokens")

    @pytest.mark.parametrize("width", [2, 3, 7])
    def test_drafted_tokens_that_the_draft_does_not_have(self, draw, width):
        """p is 0: rejected, however probable the target finds them."""
        p = torch.zeros(5, 2, width)
        p[:, :, :2] = 0.5
        q = torch.tensor([0.0, 0.0, 0.25, 0.5, 0.25]).expand(5, 3, -1)
        tokens = torch.tensor([[2, 0], [3, 1], [4, 4], [-1, 3], [2**32 + 1, 2]])
        draft = Draft(tokens, torch.full((5,), 2), p)
        assert_equal(num_given(draw, draft, q, torch.zeros(5, 3)), [1] * 5, axes="row")


@pytest.mark.group("padded")
class TestNumbers:
    @pytest.mark.parametrize("which", ["p", "q", "both", "q of a deterministic draft"])
    def test_nan_counts_as_zero(self, draw, which):
        p, q = tables(draw, (0, 1, 1), (1, 0, 3))
        if sure := which not in ("p", "q", "both"):
            p = guesses(draw, 3)
        rounds = inputs.every_outcome(draw, p, q, 2, sure)
        (law,) = laws(
            draw, inputs.nan_for_zero(rounds) if sure else rounds.with_nan_for_zero(which)
        )
        assert_lossless(law, p, q, 2)

    @pytest.mark.parametrize("value", [0.0, NAN])
    @pytest.mark.parametrize("vocab_size", [6, 1030])
    def test_row_of_the_target_without_probabilities(self, draw, vocab_size, value):
        """Any token of the vocabulary takes the place; those before it stay."""
        batch = inputs.without_target(draw, vocab_size, value)
        assert_equal(num_given(draw, *batch), [1, 2, 3, 4], axes="row")

    @pytest.mark.parametrize("value", [0.0, NAN])
    def test_row_of_the_draft_without_probabilities(self, draw, value):
        """The drafted token is rejected, and q has lost nothing to it."""
        p = EIGHTHS.repeat(2, 1)
        p[1] = value
        got = given(draw, inputs.all_of(8, [3, 1], p), EIGHTHS.expand(8, 3, -1), grid(1, 1, 8))
        assert_equal(got[:, 0].tolist(), [3] * 8, what="the token before")
        assert_law(tally(got[:, 1:]), LAW_OF_EIGHTHS, "the token in its place")

    @pytest.mark.parametrize("token, factor", [(0, 1 + 2.0**-20), (1, 2.0), (3, 1 + 2.0**-20)])
    def test_residual_of_zero(self, draw, token, factor):
        """p is above q everywhere, as rounding can leave it: q itself is drawn from."""
        draft = inputs.all_of(8, [token], factor * EIGHTHS)
        got = given(draw, draft, EIGHTHS.expand(8, 2, -1), inputs.last_of(8))
        assert_law(tally(got), LAW_OF_EIGHTHS, "the recovered token")

    def test_a_sure_guess_that_is_right(self, draw):
        """q is there alone, by rounding a bit below 1: so is the residual, which is 0."""
        q = torch.zeros(3, 2, 1500)
        q[:, :, 1200] = torch.tensor([1.0, inputs.HIGHEST, 0.75])[:, None]
        got = given(draw, inputs.all_of(3, [1200]), q, torch.tensor([[inputs.HIGHEST, 0.5]] * 3))
        assert_equal(got[:, 0].tolist(), [1200] * 3, axes="row")

    def test_no_chance_is_no_chance(self, draw):
        """A uniform of 0 accepts no token that the target never says, nor one never drafted."""
        p = torch.tensor([[1.0, 0.0], [0.0, 1.0]])[:, None]
        q = torch.tensor([[0.0, 1.0], [0.5, 0.5]])[:, None].expand(-1, 2, -1)
        draft = Draft(torch.zeros(2, 1).long(), torch.tensor([1, 1]), p)
        got = given(draw, draft, q, torch.zeros(2, 2))
        assert_equal(got.tolist(), [[1, NO_TOKEN], [0, NO_TOKEN]])
        sure = given(draw, inputs.all_of(1, [0]), q[:1], torch.zeros(1, 2))
        assert_equal(sure.tolist(), [[1, NO_TOKEN]], what="deterministic draft")

    @pytest.mark.parametrize("support", [3, 5000, 32_100])
    @pytest.mark.parametrize("drafted", [0, 1])
    def test_the_ends_of_the_unit_interval(self, draw, support, drafted):
        """No uniform gives a bonus or recovered token of no probability, whatever rounding does."""
        check(draw, *inputs.at_the_ends(support, drafted))

    @pytest.mark.parametrize("vocab", [30, 1000, 2000])
    def test_sums_that_rounding_leaves_short(self, draw, vocab):
        """Of any weights: the number may lie behind the last one's end, and behind it are zeros."""
        q = torch.zeros(60, 1, vocab + 10)
        q[:, 0, :vocab] = (2 * draw.normal(60, vocab)).softmax(dim=-1)
        draft = Draft(torch.zeros(60, 0).long(), torch.zeros(60).long(), torch.zeros(60, 0, vocab))
        got = given(draw, draft, q, torch.full((60, 1), inputs.HIGHEST))[:, 0]
        assert_equal(got < vocab, torch.ones(60).bool(), axes="row", what="tokens that q has")

    def test_small_residuals(self, draw):
        """All that is left of q is 1e-5, for one token."""
        q = torch.full((3, 2, 3000), 1 / 4096)
        p = q[:, :1].clone()
        p[:, 0, 5], q[:, :, 2900] = 1e-5 + 1 / 4096, 1e-5 + 1 / 4096
        draft = Draft(torch.full((3, 1), 5), torch.ones(3).long(), p)
        uniforms = torch.tensor([[inputs.HIGHEST, u] for u in (0, 0.5, inputs.HIGHEST)])
        assert_equal(given(draw, draft, q, uniforms)[:, 0].tolist(), [2900] * 3, axes="row")

    @pytest.mark.parametrize("drafted", [0, 1])
    def test_numbers_between_two_tiles(self, draw, drafted):
        """And none that falls just where a tile ends, as these do: all sums are exact."""
        check(draw, *inputs.between_tiles(drafted))


@pytest.mark.group("compiled")
@pytest.mark.parametrize(
    "architecture, sampled", [("sm_80", True), ("sm_90", True), ("sm_90", False)]
)
def test_every_launch_fits(draw, architecture, sampled):
    assert_fits(
        check(draw, *inputs.draw_rounds(draw, [4, 3], [2, 3], 2048, sampled=sampled)), architecture
    )


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
    """64 sequences, 12,000 tokens. The ideal: the least bytes at full bandwidth."""
    ends = [0, 1] * 32
    draft, *others = inputs.draw_rounds(draw, [2] * 64, ends, 12_000)
    seen = check(draw, draft, *others)
    least = inputs.least_bytes(draft, others[0], ends)
    beside = {"one program for all": by_one_program(least)}
    flops = 2 * 64 * 12_000  # a difference and a sum for each token
    charge_time(budget, seen, least, flops=flops, dtype="fp32", beside=beside)
