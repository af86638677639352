"""speculative.decoding: the target's own tokens, or their law, in fewer calls of the target.

TableLM is target and draft: its probabilities are known fractions that depend on every token before
them, so a cache that is one token off shows at once. The sessions are the grader's and count.
"""

from __future__ import annotations

import itertools

import pytest
import torch

from assignment.provided.models import TableLM
from submission.attention.generate import sample
from submission.speculative.decoding import ModelDraft, speculative_generate
from tests.attention import oracles
from tests.grading.boundary import call_then_spoil, watch
from tests.grading.closeness import assert_equal
from tests.grading.refusal import assert_value_error
from tests.speculative.decoding_asked import Drafting
from tests.speculative.decoding_drafts import Asked, Planned, sure_drafts
from tests.speculative.decoding_law import every_case, opposites, ranked_law
from tests.speculative.decoding_models import Watched
from tests.speculative.decoding_pair import Measured, Pair
from tests.speculative.decoding_rounds import draft_tokens, greedy_rounds, target_tokens
from tests.speculative.law import assert_law, tally, text_law
from tests.speculative.texts import assert_texts

VOCAB = 13
GREEDY = (0.0, None, 1.0)


def drafting_of(draw, batch_size, filters=GREEDY, **options):
    return Drafting(ModelDraft, sample, draw, batch_size, filters, **options)


def pair_of(draw, filters=GREEDY, **options):
    return Pair(speculative_generate, ModelDraft, draw, filters, **options)


def draw_prompts(draw, lengths, vocab=VOCAB):
    return [draw.integers(0, vocab, n).tolist() for n in lengths]


def draw_uniforms(draw, batch_size, rounds, num_draft):
    return draw.uniform(batch_size, rounds, 2 * num_draft + 1)


def until(tokens, stop_tokens):
    """The tokens up to the first stop token, that one included."""
    ends = [i + 1 for i, token in enumerate(tokens) if token in stop_tokens]
    return tokens[: min(ends, default=len(tokens))]


def ask_some(drafting, sequences, most):
    """The drafted tokens. Rows that may draft none are fed none."""
    before = drafting.session.row_totals
    rows = drafting.ask(sequences, most)
    for row, (now, then) in enumerate(zip(drafting.session.row_totals, before, strict=True)):
        if most[row] == 0:
            assert_equal(now - then, 0, what=f"tokens fed to row {row} of most = {most}")
    return rows


@pytest.mark.group("drafts")
class TestDrafts:
    """As a loop asks: each text is the one before, as far as it was accepted, and goes on."""

    @pytest.mark.parametrize(
        "filters",
        [GREEDY, (1.0, None, 1.0), (0.7, None, 1.0), (1.0, 5, 1.0), (1.3, 9, 0.6)],
        ids=str,
    )
    def test_each_sequence_as_many_as_it_may(self, draw, filters):
        for most, width in (([3, 0, 5, 1], 6), ([2, 2, 2, 2], 2)):
            drafting = drafting_of(draw, 4, filters)
            drafting.ask(draw_prompts(draw, [4, 2, 7, 1]), most, width=width)

    def test_accepted_as_drafted(self, draw):
        """The draft model has not been fed the last drafted token, nor the one after it."""
        drafting = drafting_of(draw, 3, (1.0, None, 1.0))
        sequences = draw_prompts(draw, [3, 1, 6])
        for most in ([4, 4, 4], [1, 1, 1], [3, 2, 1], [1, 4, 2], [2, 2, 2]):
            rows = drafting.ask(sequences, most)
            ends = draw_prompts(draw, [1, 1, 1])
            sequences = [s + new + end for s, new, end in zip(sequences, rows, ends, strict=True)]

    def test_rejected_from_somewhere_on(self, draw):
        drafting = drafting_of(draw, 4, (1.0, None, 1.0))
        sequences = draw_prompts(draw, [3, 1, 6, 2])
        for kept in ([0, 1, 2, 3], [3, 2, 1, 0], [0, 0, 3, 1], [2, 3, 0, 0]):
            rows = drafting.ask(sequences, [3, 3, 3, 3])
            sequences = [
                sequence + new[:count] + [(new[count] + 1) % VOCAB if count < 3 else 5]
                for sequence, new, count in zip(sequences, rows, kept, strict=True)
            ]

    def test_who_has_ended_is_left_alone(self, draw):
        drafting = drafting_of(draw, 3, (1.0, None, 1.0))
        sequences = draw_prompts(draw, [2, 4, 3])
        for most in ([2, 1, 3], [0, 3, 2], [0, 2, 0], [0, 3, 0]):
            rows = ask_some(drafting, sequences, most)
            ends = draw_prompts(draw, [int(count > 0) for count in most])
            sequences = [s + new + end for s, new, end in zip(sequences, rows, ends, strict=True)]

    def test_the_last_one_is_not_fed(self, draw):
        """The cache has no room for it."""
        drafting = drafting_of(draw, 3, capacity=8)
        drafting.ask(draw_prompts(draw, [5, 8, 6]), [4, 1, 3])

    def test_nothing_to_draft(self, draw):
        drafting = drafting_of(draw, 2)
        for width in (0, 3):
            drafting.ask(draw_prompts(draw, [3, 2]), [0, 0], width=width)
        assert_equal(drafting.session.num_calls, 0, what="calls of the draft model")


@pytest.mark.group("rounds")
class TestRounds:
    @pytest.mark.parametrize("num_draft", [0, 1, 2, 3, 4])
    def test_greedy_is_greedy(self, draw, num_draft):
        pair, prompts = pair_of(draw), draw_prompts(draw, [1, 6, 3, 9])
        assert_texts(pair.run(prompts, 12, num_draft), pair.greedy(prompts, 12))

    def test_greedy_with_a_draft_that_is_not(self, draw):
        pair, prompts = pair_of(draw, (0.8, None, 1.0)), draw_prompts(draw, [4, 1, 2])
        uniforms = draw_uniforms(draw, 3, 12, 3)
        assert_texts(pair.run(prompts, 12, 3, uniforms=uniforms), pair.greedy(prompts, 12))
        assert_texts(pair.run(prompts, 12, 3), pair.greedy(prompts, 12))

    @pytest.mark.parametrize("num_draft", [1, 2, 3, 4])
    @pytest.mark.parametrize("filters", [GREEDY, (1.0, None, 1.0), (0.7, 8, 0.9)], ids=str)
    def test_a_draft_that_is_the_target_is_always_right(self, draw, num_draft, filters):
        """Round after round gives num_draft + 1 tokens."""
        model, prompts = TableLM(VOCAB, draw.seed()), draw_prompts(draw, [2, 5, 3])
        count = 6 * (num_draft + 1)
        target, draft = Watched(model, 3), Watched(model, 3)
        asked = Asked(ModelDraft(draft.parts, *filters), target)
        temperature, top_k, top_p = filters
        got = speculative_generate(
            target.parts,
            asked.propose,
            prompts,
            count,
            num_draft,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            uniforms=draw_uniforms(draw, 3, count, num_draft),
        )
        lengths = [[len(s) for s in question.sequences] for question in asked.questions]
        begun = [[len(p) + r * (num_draft + 1) for p in prompts] for r in range(6)]
        assert_equal(lengths, begun, what="lengths of the sequences in each round")
        assert_equal([len(new) for new in got], [count] * 3, what="lengths of the answers")
        ends = [s[len(p) :] for s, p in zip(asked.questions[-1].sequences, prompts, strict=True)]
        assert_texts([new[: len(end)] for new, end in zip(got, ends, strict=True)], ends)

    @pytest.mark.parametrize("num_draft", [1, 3, 5])
    def test_any_number_drafted_and_accepted(self, draw, num_draft):
        """Each row and each round another. `propose` is asked about all that is there by then, for
        no more than can come."""
        model, count = TableLM(VOCAB, draw.seed()), 17
        prompts = draw_prompts(draw, [3, 1, 8, 5])
        plan = [list(itertools.product(range(num_draft + 1), repeat=2)) for _ in prompts]
        plan = [[row[i] for i in draw.permutation(len(row))] for row in plan]
        planned, target = Planned(model, plan), Watched(model, 4)
        asked, uniforms = Asked(planned.propose, target), draw_uniforms(draw, 4, count, num_draft)
        got = speculative_generate(
            target.parts, asked.propose, prompts, count, num_draft, uniforms=uniforms
        )
        assert_texts(got, [oracles.greedy(model, prompt, count) for prompt in prompts])

        expected = [
            greedy_rounds(model, planned.row(b), prompt, count, num_draft)
            for b, prompt in enumerate(prompts)
        ]
        number = max(sum(round_.most > 0 for round_ in rounds) for rounds in expected)
        assert_equal(len(asked.questions), number, what="rounds in which a token may be drafted")
        for r, question in enumerate(asked.questions):
            for b, rounds in enumerate(expected):
                what = f"round {r}, row {b}: "
                most = rounds[r].most if r < len(rounds) else 0
                assert_equal(question.most[b], most, what=f"{what}most")
                if most:
                    assert_equal(question.sequences[b], rounds[r].sequence, what=f"{what}sequence")
                    given = uniforms[b, r, :num_draft]
                    assert_equal(question.uniforms[b], given, what=f"{what}uniforms")

    def test_nothing_is_ever_drafted(self, draw):
        model, prompts = TableLM(VOCAB, draw.seed()), draw_prompts(draw, [3, 1, 4])
        target = Watched(model, 3)
        asked = Asked(Planned(model, [[(0, 0)]] * 3).propose, target)
        got = speculative_generate(target.parts, asked.propose, prompts, 7, 4)
        assert_texts(got, [oracles.greedy(model, prompt, 7) for prompt in prompts])
        assert_equal(len(asked.questions), 6, what="rounds in which a token may be drafted")
        for r, question in enumerate(asked.questions):
            what = f"uniforms of round {r}, none given"
            assert_equal(question.uniforms, torch.zeros(3, 4), axes="row place", what=what)

    def test_rows_equal_solo_runs(self, draw):
        pair, prompts = pair_of(draw, (0.8, None, 1.0)), draw_prompts(draw, [1, 6, 3, 9, 2])
        uniforms = draw_uniforms(draw, 5, 9, 3)
        options = {"temperature": 1.1, "top_k": 9, "top_p": 0.93}
        got = pair.run(prompts, 9, 3, uniforms=uniforms, **options)
        solo = [
            pair.run([prompt], 9, 3, uniforms=uniforms[row : row + 1], **options)[0]
            for row, prompt in enumerate(prompts)
        ]
        assert_texts(got, solo)


@pytest.mark.group("law")
class TestLaw:
    """At every combination of uniforms: each text has exactly the probability it should have."""

    @pytest.mark.parametrize(
        "draft, p, target, q",
        [
            ({"temperature": 1.0}, (1, 2, 3), {"temperature": 1.0}, (1, 2, 3)),
            ({"temperature": 0.5}, (1, 4, 9), {"temperature": 1.0}, (1, 2, 3)),
            ({"temperature": 1.0, "top_k": 2}, (0, 2, 3), {"temperature": 0.5}, (1, 4, 9)),
            ({"temperature": 1.0}, (1, 2, 3), {"temperature": 0.5, "top_p": 0.8}, (0, 4, 9)),
            ({}, (0, 0, 1), {"temperature": 1.0, "top_k": 2}, (0, 2, 3)),
            ({"temperature": 1.0}, (1, 2, 3), {}, (0, 0, 1)),
        ],
        ids=[
            "alike",
            "a sharper draft",
            "a draft of the top two",
            "a target of the top two",
            "a greedy draft",
            "a greedy target",
        ],
    )
    def test_of_two_tokens(self, draw, draft, p, target, q):
        self._assert_law(draw, draft, p, target, q, num_draft=1, count=2)

    @pytest.mark.parametrize("num_draft", [0, 2])
    def test_of_two_tokens_by_any_number_of_drafts(self, draw, num_draft):
        filters, shares = {"temperature": 1.0}, (1, 2, 3)
        self._assert_law(draw, filters, shares, filters, shares, num_draft, count=2)

    def test_of_two_tokens_of_three(self, draw):
        filters, shares = {"temperature": 1.0}, (1, 2)
        self._assert_law(draw, filters, shares, filters, shares, num_draft=2, count=3, of=2)

    @pytest.mark.parametrize("num_draft, count", [(1, 2), (2, 3)])
    def test_of_deterministic_drafts(self, draw, num_draft, count):
        p, q = {2: ((0, 0, 1), (1, 2, 3)), 3: ((0, 1), (1, 2))}[count]
        self._assert_law(draw, None, p, {"temperature": 1.0}, q, num_draft, count, of=count)

    def _assert_law(self, draw, draft, p, target, q, num_draft, count, of=2):
        """Of the first `of` tokens. draft: the filters of a `ModelDraft` that leave it the shares
        p; None for a draft without probabilities."""
        guesses, model, prompt = opposites(draw, len(q))
        cases, got = every_case(p, q, num_draft, count, of), []
        for uniforms in cases.uniforms.split(100):
            rows = len(uniforms)
            if draft is None:
                propose = sure_drafts(guesses)
            else:
                propose = ModelDraft(Watched(guesses, rows).parts, **draft)
            got += speculative_generate(
                Watched(model, rows).parts,
                propose,
                [prompt] * rows,
                count,
                num_draft,
                uniforms=uniforms,
                **target,
            )
        lengths = {len(new) for new in got}
        assert_equal(lengths, {count}, what="lengths of the answers")
        law = tally(torch.tensor([new[:of] for new in got]), cases.masses)
        expected = text_law(ranked_law(model, prompt, q), of)
        assert_law(law, expected, f"the first {of} of {count} tokens after {prompt}")


@pytest.mark.group("ends")
class TestEnds:
    # Drafts of three: all right; the second wrong; the first; all right, but only one drafted.
    PLAN = ([(3, 3)], [(3, 1)], [(3, 0)], [(1, 1)])

    @pytest.mark.parametrize("place", range(8))
    def test_stop_tokens(self, draw, place):
        """Anywhere in a draft, in the place of a rejected token, behind a draft."""
        for row in range(4):
            model, prompts, plain = self._texts(draw, [4, 2, 6, 3], 10)
            stop_tokens = [plain[row][place]]
            got = self._run(model, prompts, 10, stop_tokens=stop_tokens)
            assert_texts(got, [until(new, stop_tokens) for new in plain])

    def test_several_stop_tokens_and_token_zero(self, draw):
        model, prompts, plain = self._texts(draw, [4, 2, 3, 5], 40)
        assert any(0 in new for new in plain), "draw longer texts: none of these has a token 0"
        for stop_tokens in ([0], {plain[1][6], 0, plain[2][5]}):
            got = self._run(model, prompts, 40, stop_tokens=stop_tokens)
            assert_texts(got, [until(new, stop_tokens) for new in plain])

    def test_a_stop_token_that_is_rejected(self, draw):
        model, prompts, plain = self._texts(draw, [4, 2, 6, 3], 5, vocab=29)
        stop = next(token for token in range(29) if all(token not in new for new in plain))
        got = self._run(model, prompts, 5, wrong=lambda token: stop, stop_tokens=[stop])
        assert_texts(got, plain)

    def test_a_stop_token_in_the_prompt_does_nothing(self, draw):
        model, prompts, _ = self._texts(draw, [4, 2, 6, 3], 5, vocab=29)
        plain = [oracles.greedy(model, [7, *prompt, 7], 5) for prompt in prompts]
        got = self._run(model, [[7, *prompt, 7] for prompt in prompts], 5, stop_tokens=[7])
        assert_texts(got, [until(new, [7]) for new in plain])

    @pytest.mark.parametrize("num_draft", [1, 2, 4])
    def test_max_length_counts_the_prompt(self, draw, num_draft):
        """Neither cache has room for more."""
        pair, prompts = pair_of(draw, capacity=11), draw_prompts(draw, [2, 9, 10, 11, 7])
        plain = pair.greedy(prompts, 6)
        expected = [new[:n] for new, n in zip(plain, [6, 2, 1, 0, 4], strict=True)]
        assert_texts(pair.run(prompts, 6, num_draft, max_length=11), expected)
        assert_equal(pair.on_target.row_totals[3], 0, what="tokens fed to a row that is full")

    def test_who_has_ended_is_fed_nothing(self, draw):
        """And drafts nothing."""
        model, prompts, plain = self._texts(draw, [9, 2, 6, 3], 14)
        stop_tokens = [plain[1][2]]
        expected = [
            until(new[: 17 - len(prompt)], stop_tokens)
            for prompt, new in zip(prompts, plain, strict=True)
        ]
        planned, target = Planned(model, self.PLAN), Watched(model, 4)
        asked = Asked(planned.propose, target)
        options = {"stop_tokens": stop_tokens, "max_length": 17}
        got = speculative_generate(target.parts, asked.propose, prompts, 14, 3, **options)
        assert_texts(got, expected)
        for b, prompt in enumerate(prompts):
            rounds = greedy_rounds(model, planned.row(b), prompt, len(expected[b]), 3)
            for r, question in enumerate(asked.questions[len(rounds) :], len(rounds)):
                what = f"row {b} from round {r} on, after its end"
                assert_equal(question.most[b], 0, what=f"{what}: most")
                fed = target.row_totals[b] - question.fed[b]
                assert_equal(fed, 0, what=f"{what}: tokens fed")

    def test_sampled_answers_end_the_same(self, draw):
        pair, prompts = pair_of(draw, (0.8, None, 1.0)), draw_prompts(draw, [1, 6, 3, 9, 2])
        options = {"temperature": 1.1, "uniforms": draw_uniforms(draw, 5, 9, 3)}
        free = pair.run(prompts, 9, 3, **options)
        stop_tokens = [free[0][4], free[1][2]]
        got = pair.run(prompts, 9, 3, stop_tokens=stop_tokens, **options)
        assert_texts(got, [until(new, stop_tokens) for new in free])

    def test_no_new_tokens_wanted(self, draw):
        pair, prompts = pair_of(draw), draw_prompts(draw, [3, 2, 3])
        for options in ({"max_new_tokens": 0}, {"max_new_tokens": 5, "max_length": 3}):
            given = [prompts[0], prompts[2]]
            assert_texts(pair.run(given, num_draft=2, **options), [[], []])
            calls = pair.on_target.num_calls + pair.on_draft.num_calls
            assert_equal(calls, 0, what="calls of the models")

    @pytest.mark.parametrize("num_draft", [0, 3])
    def test_one_new_token_wanted(self, draw, num_draft):
        pair, prompts = pair_of(draw), draw_prompts(draw, [3, 2, 5])
        assert_texts(pair.run(prompts, 1, num_draft), pair.greedy(prompts, 1))
        assert_equal(pair.on_draft.num_calls, 0, what="calls of the draft model")

    def test_plain_lists_of_integers(self, draw):
        new = pair_of(draw).run(draw_prompts(draw, [3, 2]), 5, 2)
        assert all(type(token) is int for row in new for token in row)

    def test_prompts_and_uniforms_are_not_changed(self, draw):
        model, prompts = TableLM(VOCAB, draw.seed()), draw_prompts(draw, [3, 2])
        planned = Planned(model, [[(2, 1)]] * 2)
        uniforms = draw_uniforms(draw, 2, 6, 2)
        arguments = [Watched(model, 2).parts, planned.propose, prompts, 6, 2]
        options = {"temperature": 1.0, "uniforms": uniforms}
        _, changed = watch(speculative_generate, *arguments, **options)
        assert changed == [], "the prompts (2) or the uniforms were changed"

    def test_requests_that_make_no_sense(self):
        right = torch.zeros(2, 4, 5)
        for prompts, options in [
            ([], {}),
            ([[1, 2], []], {}),
            ([[1, 2], [1, 2, 3]], {"max_length": 2}),
            ([[1, 2], [3]], {"max_new_tokens": -1}),
            ([[1, 2], [3]], {"num_draft": -1}),
            ([[1, 2], [3]], {"temperature": 1.0}),
            ([[1, 2], [3]], {"temperature": 1.0, "uniforms": torch.zeros(2, 4, 3)}),
            ([[1, 2], [3]], {"temperature": 1.0, "uniforms": torch.zeros(2, 3, 5)}),
            ([[1, 2], [3]], {"uniforms": torch.zeros(1, 4, 5)}),
            ([[1, 2], [3]], {"temperature": -1.0, "uniforms": right}),
            ([[1, 2], [3]], {"temperature": 1.0, "uniforms": right, "top_k": 0}),
            ([[1, 2], [3]], {"temperature": 1.0, "uniforms": right, "top_p": 1.5}),
        ]:
            model = TableLM(VOCAB)
            target = Watched(model, 2)
            asked = Asked(Planned(model, [[(2, 1)]] * 2).propose, target)

            def request(prompts=prompts, options=options, target=target, asked=asked):
                options = {"max_new_tokens": 4, "num_draft": 2} | options
                speculative_generate(target.parts, asked.propose, prompts, **options)

            shown = {name: getattr(value, "shape", value) for name, value in options.items()}
            assert_value_error(f"prompts {prompts}, {shown}", request)
            what = "calls of the target and of propose for a request that is refused"
            assert_equal([target.num_calls, len(asked.questions)], [0, 0], what=what)

    def test_filters_of_a_draft_that_make_no_sense(self, draw):
        parts = Watched(TableLM(VOCAB), 2).parts
        for filters in [(-1.0, None, 1.0), (1.0, 0, 1.0), (1.0, None, 0.0), (1.0, None, 1.1)]:
            assert_value_error(f"filters {filters}", ModelDraft, parts, *filters)

    def _texts(self, draw, lengths, max_new_tokens, vocab=VOCAB):
        model = TableLM(vocab, draw.seed())
        prompts = draw_prompts(draw, lengths, vocab)
        return model, prompts, [oracles.greedy(model, p, max_new_tokens) for p in prompts]

    def _run(self, model, prompts, max_new_tokens, wrong=None, **options):
        propose = Planned(model, self.PLAN, wrong).propose
        target = Watched(model, len(prompts)).parts
        return speculative_generate(target, propose, prompts, max_new_tokens, 3, **options)


@pytest.mark.group("memory")
class TestMemory:
    """As no loop asks: what the cache holds may be of another text."""

    def test_whatever_was_asked_before(self, draw):
        drafting = drafting_of(draw, 3, (1.0, None, 1.0))
        first, second, third = draw_prompts(draw, [8, 5, 6])
        for sequences in (
            [first, second, third],
            [first, second, third],  # again
            [first[:3], second[:1], third[:5]],  # shorter
            [third, first, second],  # of other rows
            [first, second, third],
            [[(first[0] + 1) % VOCAB, *first[1:]], second, third],  # but for one token
            [first + second, third, second[:4] + third],
        ):
            drafting.ask(sequences, [3, 1, 2])

    def test_some_are_left_out_for_a_while(self, draw):
        drafting = drafting_of(draw, 3, (1.0, None, 1.0))
        sequences = draw_prompts(draw, [2, 4, 3])
        for most in ([2, 0, 3], [0, 0, 2], [3, 2, 0], [0, 1, 1], [2, 2, 2]):
            ask_some(drafting, sequences, most)
            new = draw_prompts(draw, [2, 1, 3])
            sequences = [sequence + more for sequence, more in zip(sequences, new, strict=True)]

    def test_the_callers_lists_stay_the_callers(self, draw):
        drafting = drafting_of(draw, 2)
        first, second = draw_prompts(draw, [3, 5])
        arguments = [[first, second], [2, 3], draw.uniform(2, 3)]
        _, changed = watch(drafting.drafter, *arguments)
        assert changed == [], "the sequences (0), most (1) or uniforms (2) were changed"
        call_then_spoil(drafting.drafter, [[*first], [*second]], [2, 3], draw.uniform(2, 3))
        drafting.ask([[*first, 1], [*second, 2]], [2, 3])


@pytest.mark.cost("target_calls")
def test_one_call_of_the_target_a_round(draw, budget):
    measured = Measured(pair_of(draw), draw)
    beside = {"without a draft": measured.longest}
    budget(measured.target_calls, measured.num_rounds, unit="calls", beside=beside)


@pytest.mark.cost("draft_calls")
def test_one_call_of_the_draft_a_token(draw, budget):
    """As many in a round as the longest draft has tokens."""
    measured = Measured(pair_of(draw), draw)
    budget(measured.draft_calls, measured.longest_drafts, unit="calls")


@pytest.mark.cost("tokens")
def test_tokens_of_the_target(draw, budget):
    """Each token once, and those that were rejected."""
    measured = Measured(pair_of(draw), draw)
    ideal = sum(map(target_tokens, measured.rounds))
    beside = {"all anew": measured.tokens_of_all_sequences}
    budget(measured.target_tokens, ideal, unit="tokens", beside=beside)


@pytest.mark.cost("tokens")
def test_tokens_of_the_draft(draw, budget):
    """Each token once, and those that were rejected, but for the last of each draft."""
    measured = Measured(pair_of(draw), draw)
    ideal = sum(map(draft_tokens, measured.rounds))
    budget(measured.draft_tokens, ideal, unit="tokens")
