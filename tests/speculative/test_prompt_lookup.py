"""speculative.prompt_lookup: what followed the last tokens where they stood before."""

from __future__ import annotations

import pytest
import torch

from assignment.provided.speculative import Draft
from submission.speculative.prompt_lookup import PromptLookup, lookup
from tests.grading.boundary import call_then_spoil, count_lines, watch
from tests.grading.closeness import assert_equal
from tests.grading.refusal import assert_value_error

BAD_SIZES = [(0, 0), (3, 0), (2, 3), (1, -1)]  # max_ngram, min_ngram


BASES = [10, 100, 256, 1000, 10_000, 32_000, 49_152, 50_257]


def looked_up(sequence, num_draft, max_ngram=3, min_ngram=1):
    """The rule, by looking at all places: how many tokens before each are those of the end?"""
    places = []
    for place in range(1, len(sequence)):
        alike = 0
        while alike < min(place, max_ngram) and (
            sequence[place - 1 - alike] == sequence[len(sequence) - 1 - alike]
        ):
            alike += 1
        if alike >= min_ngram:
            places.append((alike, place))
    if not places:
        return []
    _, place = max(places)  # of the longest, the last
    text = list(sequence)
    for i in range(num_draft):
        text.append(text[place + i])
    return text[len(sequence) :]


def assert_drafted(got, sequences, most, width, *, what="", sizes=(3, 1)):
    """`got` is a deterministic draft of this width that says what the rule says for each row."""
    assert isinstance(got, Draft), f"{what}expected a Draft, got {got!r}"
    assert_equal(list(got.tokens.shape), [len(sequences), width], what=f"{what}shape of tokens")
    assert got.tokens.dtype == torch.int64, f"{what}tokens: expected int64, got {got.tokens.dtype}"
    assert got.probs is None, f"{what}probs: expected None, as nothing is drawn"
    rows = zip(got.tokens.tolist(), got.num_draft.tolist(), sequences, most, strict=True)
    for row, (tokens, count, sequence, num_draft) in enumerate(rows):
        expected = looked_up(sequence, num_draft, *sizes)
        assert_equal(tokens[:count], expected, what=f"{what}row {row}, draft after {sequence}")


@pytest.fixture
def text(draw):
    """text(vocab, n): n tokens out of `vocab` different ids, which stay the same in a test."""
    ids = draw.permutation(60_000)
    return lambda vocab, n: ids[draw.integers(0, vocab, n)].tolist()


@pytest.mark.group("rule")
class TestLookup:
    @pytest.mark.parametrize("vocab", [1, 2, 3, 6])
    def test_random_sequences(self, text, vocab):
        for length in [*range(10), *range(10, 40, 3)]:
            sequence = text(vocab, length)
            for options in [(), (1, 1), (2, 2), (4, 2), (5, 5), (9, 1)]:
                got = lookup(sequence, 7, *options)
                what = f"lookup({sequence}, {', '.join(map(str, (7, *options)))})"
                assert_equal(got, looked_up(sequence, 7, *options), what=what)

    @pytest.mark.parametrize(
        "sequence, options, expected",
        [
            ([5, 6, 7, 8, 5, 6], {}, [7, 8, 5, 6, 7]),
            ([1, 2, 1, 2, 1], {}, [2, 1, 2, 1, 2]),
            ([4, 4, 4, 4], {}, [4, 4, 4, 4, 4]),
            ([9, 3, 3], {}, [3, 3, 3, 3, 3]),
            ([1, 2, 3, 7, 9, 3, 8, 1, 2, 3], {}, [7, 9, 3, 8, 1]),
            ([1, 2, 3, 7, 9, 3, 8, 1, 2, 3], {"max_ngram": 1}, [8, 1, 2, 3, 8]),
            ([1, 2, 5, 1, 2, 6, 1, 2], {}, [6, 1, 2, 6, 1]),
            ([1, 2, 3, 4, 2, 3, 5, 1, 3], {"min_ngram": 2}, []),
            ([1, 2, 1], {"max_ngram": 30}, [2, 1, 2, 1, 2]),
            ([1, 2, 1], {"max_ngram": 30, "min_ngram": 3}, []),
            ([1, 1, 2], {}, []),
            ([1, 2, 3, 4], {}, []),
            ([11, 2, 9, 4, 1, 12], {}, []),
            ([1, 12, 9, 8, 11, 2], {"min_ngram": 2}, []),
            ([7], {}, []),
            ([], {}, []),
        ],
        ids=[
            "what followed, then itself",
            "overlaps the end",
            "all alike",
            "the token before the last",
            "three rather than the one that is nearer",
            "one, if more are not asked for",
            "the last of two places",
            "shorter ones are not asked for",
            "longer than the sequence",
            "none is short enough",
            "stands at the end only",
            "nothing twice",
            "ids are not digits",
            "ids are not digits, of two",
            "a single token",
            "no token",
        ],
    )
    def test_by_hand(self, sequence, options, expected):
        assert_equal(lookup(sequence, 5, **options), expected, what="draft")

    @pytest.mark.parametrize("base", BASES)
    def test_two_tokens_are_no_number(self, base):
        """a · base + b is that of other tokens, too, and so is a + b · base."""
        for pair in ([1, base + 2], [base + 2, 1]):
            sequence = [*pair, 7, 8, 2, 2]
            assert_equal(lookup(sequence, 3, 2, 2), [], what=f"draft after {sequence}")

    def test_as_many_as_are_asked_for(self, text):
        sequence = text(2, 20)
        for num_draft in range(45):
            expected = looked_up(sequence, num_draft)
            assert_equal(lookup(sequence, num_draft), expected, what=f"num_draft = {num_draft}")

    def test_the_sequence_is_not_changed(self, text):
        for num_draft in (3, 30):
            _, changed = watch(lookup, text(3, 20), num_draft)
            assert changed == [], "lookup changed the sequence"

    def test_plain_integers(self, text):
        got = lookup(text(2, 20), 6)
        assert len(got) == 6 and all(type(token) is int for token in got), f"got {got!r}"

    def test_refusals(self):
        assert_value_error("num_draft = -1", lookup, [1, 2, 1], -1)
        for sizes in BAD_SIZES:
            assert_value_error(f"max_ngram, min_ngram = {sizes}", lookup, [1, 2, 1], 4, *sizes)


@pytest.mark.group("batches")
class TestPromptLookup:
    @pytest.mark.parametrize("sizes", [(), (1, 1), (2, 2), (4, 2), (9, 1)], ids=str)
    @pytest.mark.parametrize("vocab", [2, 4])
    def test_sequences_that_grow(self, draw, text, vocab, sizes):
        """Some rows get one token, some several, some none: and each its own draft."""
        drafter, sequences = PromptLookup(*sizes), [text(vocab, n) for n in (1, 12, 3, 7)]
        for step in range(12):
            width = int(draw.integers(0, 9, 1))
            most = draw.integers(0, width + 1, 4).tolist()
            got = drafter([list(sequence) for sequence in sequences], most, draw.uniform(4, width))
            what = f"call {step}, "
            assert_drafted(got, sequences, most, width, what=what, sizes=sizes or (3, 1))
            for sequence, count in zip(sequences, draw.integers(0, 5, 4).tolist(), strict=True):
                sequence += text(vocab, count)

    def test_many_tokens_at_once(self, draw, text):
        """The last place of what comes twice among the new tokens, and what lies across."""
        drafter, sequence = PromptLookup(), text(3, 4)
        for step in range(6):
            got = drafter([list(sequence)], [6], draw.uniform(1, 6))
            assert_drafted(got, [sequence], [6], 6, what=f"call {step}, ")
            sequence += text(3, 9 * step)

    def test_what_was_drafted_did_not_come(self, draw):
        """The draft is no part of the sequence; neither is it a place to look for it."""
        drafter, sequence = PromptLookup(), [1, 2, 3, 1, 2]
        for token in (4, 1, 2, 3, 1, 2):
            got = drafter([list(sequence)], [4], draw.uniform(1, 4))
            assert_drafted(got, [sequence], [4], 4)
            sequence.append(token)

    def test_wider_than_what_is_drafted(self, draw, text):
        sequences, most = [text(2, 15), text(2, 9), [5, 6]], [2, 0, 7]
        got = PromptLookup()(sequences, most, draw.uniform(3, 11))
        assert_drafted(got, sequences, most, 11)

    def test_rows_that_get_no_draft_are_read(self, draw, text):
        drafter, sequence = PromptLookup(), text(3, 8)
        for most in (0, 0, 5, 0, 5):
            got = drafter([list(sequence), [1]], [most, 0], draw.uniform(2, 5))
            assert_drafted(got, [sequence, [1]], [most, 0], 5)
            sequence += text(3, 4)

    def test_rows_do_not_know_each_other(self, draw):
        sequences = [[1, 2, 3, 9], [7, 1, 2], [3, 9, 3, 9], [5, 3, 9]]
        got = PromptLookup()(sequences, [4] * 4, draw.uniform(4, 4))
        assert_drafted(got, sequences, [4] * 4, 4)

    @pytest.mark.parametrize("base", BASES)
    def test_two_tokens_are_no_number(self, draw, base):
        """a · base + b is that of other tokens, too, and so is a + b · base."""
        sequences = [[*pair, 7, 8, 2, 2] for pair in ([1, base + 2], [base + 2, 1])]
        got = PromptLookup(2, 2)(sequences, [3, 3], draw.uniform(2, 3))
        assert_drafted(got, sequences, [3, 3], 3, sizes=(2, 2))

    def test_drafters_do_not_know_each_other(self, draw):
        first, second = PromptLookup(), PromptLookup()
        for drafter, sequence in [
            (first, [1, 2, 3, 1]),
            (second, [7, 1]),
            (first, [1, 2, 3, 1, 2]),
        ]:
            got = drafter([sequence], [3], draw.uniform(1, 3))
            assert_drafted(got, [sequence], [3], 3)

    def test_arguments_are_not_changed(self, draw, text):
        sequences = [text(2, 9), text(2, 14)]
        _, changed = watch(PromptLookup(), sequences, [5, 3], draw.uniform(2, 5))
        assert changed == [], "sequences (0), most (1) or uniforms (2) were changed"

    def test_arguments_are_not_needed_again(self, draw, text):
        drafter, sequences = PromptLookup(), [text(2, 9), text(2, 14)]
        for step in range(3):
            copies = [list(sequence) for sequence in sequences]
            got = call_then_spoil(drafter, copies, [5, 3], draw.uniform(2, 5))
            assert_drafted(got, sequences, [5, 3], 5, what=f"call {step}, ")
            sequences = [sequence + text(2, 3) for sequence in sequences]

    def test_refusals(self):
        for sizes in BAD_SIZES:
            assert_value_error(f"max_ngram, min_ngram = {sizes}", PromptLookup, *sizes)


@pytest.mark.cost("work")
def test_a_token_more_costs_the_same_at_any_length(draw, budget):
    """16 calls after a token more in each of two rows: lines of Python that execute.

    A row is 0 1 2 … 19, then 19 18 … 0 over and over, then 0 1 2 … once more, but with other ids:
    the new tokens stand everywhere, two of them in this order at the very start only. The ideal:
    behind 4000 tokens as many lines as behind 60, give or take two a call.
    """
    ids = draw.permutation(60_000)[:40].view(2, 20)
    lines = {}
    for turns in (2, 200):
        columns = [*range(20), *list(range(20))[::-1] * turns]
        sequences, drafter = ids[:, columns].tolist(), PromptLookup()
        drafter([list(sequence) for sequence in sequences], [5, 5], draw.uniform(2, 5))
        lines[turns] = 0
        for new in ids[:, :16].T.tolist():
            sequences = [[*row, token] for row, token in zip(sequences, new, strict=True)]
            call = count_lines(drafter, sequences, [5, 5], draw.uniform(2, 5))
            assert_drafted(call.value, sequences, [5, 5], 5)
            lines[turns] += call.count
        assert lines[turns] >= 2 * 16, "lines were executed that the counter has not seen"
    ideal = lines[2] + 2 * 16
    beside = {"behind 60 tokens": lines[2]}
    budget(max(lines[200], ideal), ideal, unit="lines", beside=beside)
