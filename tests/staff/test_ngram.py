"""The n-gram baseline: equal to Kneser–Ney's definition, a law over the vocabulary, and good."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from tests.staff.weights.ngram import fit

BEGIN, END, VOCAB = 1, 2, 9  # tokens 3 … 6 are drawn, 0, 7 and 8 are never seen


def drawn(count, seed, tokens=(3, 3, 3, 3, 4, 4, 5, 6), longest=9):
    draw = random.Random(seed)
    return [[BEGIN, *draw.choices(tokens, k=draw.randrange(longest)), END] for _ in range(count)]


def law(model, context):
    """p(· | context), by asking for every token."""
    return np.exp([model.log_probabilities([*context, w])[-1] for w in range(model.vocab_size)])


class Slow:
    """Kneser–Ney from its definition: tuples, sets and one token at a time."""

    def __init__(self, documents, order, vocab_size):
        self.vocab_size = vocab_size
        self.counts = [self._counts(documents, n, n == order) for n in range(1, order + 1)]
        self.discounts = [self._discounts(Counter(c.values())) for c in self.counts]

    @staticmethod
    def _counts(documents, n, longest):
        often, seen_behind = Counter(), {}
        for document in documents:
            for end in range(max(n, 2), len(document) + 1):
                gram = tuple(document[end - n : end])
                if longest or end == n:
                    often[gram] += 1
                else:
                    seen_behind.setdefault(gram, set()).add(document[end - n - 1])
        return often + Counter({gram: len(tokens) for gram, tokens in seen_behind.items()})

    @staticmethod
    def _discounts(times):
        if not all(times[count] for count in (1, 2, 3, 4)):
            return (0.5, 1.0, 1.5)
        y = times[1] / (times[1] + 2 * times[2])
        two = 2 - 3 * y * times[3] / times[2]
        more = 3 - 4 * y * times[4] / times[3]
        return (1 - 2 * y * times[2] / times[1], max(two, y), max(more, y))

    def p(self, token, context):
        if context is None:
            return 1 / self.vocab_size
        behind = {g[-1]: c for g, c in self.counts[len(context)].items() if g[:-1] == context}
        shorter = self.p(token, context[1:] if context else None)
        if not behind:
            return shorter
        discounts = self.discounts[len(context)]
        freed = sum(discounts[min(count, 3) - 1] for count in behind.values())
        count = behind.get(token, 0)
        own = count - discounts[min(count, 3) - 1] if count else 0
        return (own + freed * shorter) / sum(behind.values())

    def log_probabilities(self, document):
        order = len(self.counts)
        return [
            math.log(self.p(document[t], tuple(document[max(0, t - order + 1) : t])))
            for t in range(1, len(document))
        ]


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_probabilities_are_those_of_the_definition(order, seed):
    documents = drawn(60, seed)
    fast, slow = fit(documents, order, VOCAB), Slow(documents, order, VOCAB)
    for document in [*drawn(20, seed + 100), [BEGIN, 7, 3, 3, 3, 8, 3, END], [3, END, BEGIN, 3]]:
        expected = slow.log_probabilities(document)
        np.testing.assert_allclose(fast.log_probabilities(document), expected, rtol=1e-12)


def test_documents_may_be_shorter_than_the_ngrams():
    documents, asked = [[BEGIN, 3, END], [BEGIN, END], [BEGIN]], [BEGIN, 3, 3, 4, END, 3]
    expected = Slow(documents, 5, VOCAB).log_probabilities(asked)
    np.testing.assert_allclose(fit(documents, 5, VOCAB).log_probabilities(asked), expected)
    assert law(fit([[BEGIN]], 3, VOCAB), [BEGIN]) == pytest.approx(1 / VOCAB)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "context",
    [
        pytest.param([BEGIN], id="start of a document"),
        pytest.param([BEGIN, 3, 3], id="seen from the start"),
        pytest.param([BEGIN, 3, 4, 3, 3, 3, 4, 3], id="longer than any n-gram"),
        pytest.param([BEGIN, 6, 6, 6, 6, 6, 6], id="rare"),
        pytest.param([BEGIN, 3, 7, 8, 3], id="with unseen tokens"),
        pytest.param([BEGIN, 7], id="unseen token"),
        pytest.param([BEGIN, 3, END], id="after the end"),
    ],
)
def test_probabilities_sum_to_one_and_none_is_zero(order, context):
    p = law(fit(drawn(60, 0), order, VOCAB), context)
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert p.min() > 0


def test_no_probability_is_zero_when_rare_counts_are_rarer_than_frequent_ones():
    # Leaving one out then suggests negative discounts, which would leave nothing for the unseen.
    counts = [1, 2, *[3] * 3, *[4] * 30]
    documents = [[0] + [token] * count for token, count in enumerate(counts, start=1)]
    p = law(fit(documents, 1, 40), [0])
    assert p.min() > 0 and p.sum() == pytest.approx(1, abs=1e-12)


def test_the_first_token_is_given_and_the_end_is_predicted():
    model = fit([[BEGIN, 3, 4, END], [BEGIN, 3, 5, END]] * 50, 3, VOCAB)
    p = np.exp(model.log_probabilities([BEGIN, 3, 4, END]))
    assert len(p) == 3
    assert p[0] > 0.9 and p[1] == pytest.approx(0.5, abs=0.05) and p[2] > 0.9
    assert law(model, [BEGIN, 3])[BEGIN] < 0.01  # a given token takes nothing from the others
    assert len(model.log_probabilities([BEGIN])) == 0


def test_no_ngram_reaches_from_one_document_into_the_next():
    first, second = [BEGIN, 3, 4, END], [BEGIN, 5, 6, 6, END]
    there, back = fit([first, second] * 9, 3, VOCAB), fit([second, first] * 9, 3, VOCAB)
    apart = fit([first] * 9 + [second] * 9, 3, VOCAB)
    for context in ([BEGIN], [BEGIN, 3], [4, END], [END, BEGIN], [6, END, BEGIN]):
        np.testing.assert_array_equal(law(there, context), law(back, context))
        np.testing.assert_array_equal(law(there, context), law(apart, context))


def test_a_token_that_only_follows_one_other_is_not_expected_elsewhere():
    # "Francisco" is more frequent than any other word, but only behind "San".
    san, francisco = 3, 4
    documents = [[BEGIN, san, francisco, END]] * 50 + [[BEGIN, w, 5, END] for w in (6, 7, 8)] * 4
    p = law(fit(documents, 2, 12), [BEGIN, 11])
    assert p[5] > 1.3 * p[francisco]


def mean_loss(documents, held_out, order, vocab_size=VOCAB):
    model = fit(documents, order, vocab_size)
    return -np.concatenate([model.log_probabilities(d) for d in held_out]).mean()


def test_longer_ngrams_win_where_the_text_has_such_structure():
    draw = random.Random(7)

    def document():
        tokens = [draw.randrange(2, 9) for _ in range(3)]
        while len(tokens) < 40:  # decided by the token three before, nine times in ten
            tokens.append(
                2 + (3 * tokens[-3] + 1) % 7 if draw.random() < 0.9 else draw.randrange(2, 9)
            )
        return [BEGIN, *tokens]

    documents, held_out = [document() for _ in range(400)], [document() for _ in range(100)]
    losses = [mean_loss(documents, held_out, order) for order in (1, 2, 3, 4, 5)]
    hit = 0.9 + 0.1 / 7
    entropy = -hit * math.log(hit) - 6 * (0.1 / 7) * math.log(0.1 / 7)
    floor = (37 * entropy + 3 * math.log(7)) / 40
    assert losses[2] > 1.8  # two tokens of context do not see the rule
    assert floor < losses[3] < floor + 0.1
    assert losses[4] < losses[3] + 0.1


def test_longer_ngrams_lose_little_where_the_text_has_none():
    documents, held_out = drawn(2000, 1), drawn(300, 2)
    losses = [mean_loss(documents, held_out, order) for order in (1, 3, 5)]
    assert losses[1] < losses[0] + 0.01 and losses[2] < losses[0] + 0.05


@pytest.mark.parametrize(
    ("documents", "order", "message"),
    [
        ([[1, 2]], 0, "order.* 0"),
        ([], 2, "documents"),
        ([[1, 2], []], 2, "documents"),
        ([[1, 9]], 2, "documents.* 9 .*vocab_size 9"),
        ([[-1, 2]], 2, "documents.* -1 "),
    ],
)
def test_what_cannot_be_counted_is_refused(documents, order, message):
    with pytest.raises(ValueError, match=message):
        fit(documents, order, VOCAB)


@pytest.mark.parametrize("document", [[], [1, 9], [1, -1]])
def test_what_cannot_be_asked_is_refused(document):
    with pytest.raises(ValueError, match="document"):
        fit([[1, 2]], 2, VOCAB).log_probabilities(document)
