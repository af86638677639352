"""Associative recall: what a lookup solves, nothing that ignores a key does, scored at the queries.

Statistical bounds are Hoeffding's over independent rows, P(|mean − expected| > ε) ≤ 2·exp(−2nε²),
chosen below 1e-6; the seeds are fixed besides.
"""

from collections import Counter, defaultdict

import pytest
import torch

from assignment.provided.data.recall import RecallBatch, recall_batch

SIZES = {  # num_sequences, num_pairs, length, vocab_size
    "smallest": (3, 1, 3, 4),
    "no filler, all keys": (7, 5, 15, 12),
    "odd vocabulary": (6, 3, 40, 33),
    "long": (2, 9, 200, 64),
}
sizes = pytest.mark.parametrize("size", SIZES.values(), ids=SIZES.keys())
MANY = (2000, 3, 12, 12)  # 5 keys, 6 values; ε = 0.08 is passed with probability 2e-11


def known_value(tokens):
    """The answers of a dictionary that reads the tokens from left to right and no targets."""
    rows = []
    for row in tokens.tolist():
        values, answers = {}, [0] * len(row)
        for place, token in enumerate(row):
            if token in values:
                answers[place] = values[token]
            elif place % 2 == 0 and token:
                values[token] = row[place + 1]
        rows.append(answers)
    return torch.tensor(rows)


def at_queries(batch, answers):
    """Ids with answers[b][i] at row b's i-th query, from the left, and 0 elsewhere."""
    ids = torch.zeros_like(batch.tokens)
    ids[batch.targets != -100] = torch.as_tensor(answers).flatten()
    return ids


# The definition


@sizes
@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_each_key_is_shown_once_and_asked_once_and_each_value_is_shown_once(size, seed):
    num_sequences, num_pairs, length, vocab_size = size
    batch = recall_batch(*size, seed)
    assert batch.tokens.shape == batch.targets.shape == (num_sequences, length)
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert (batch.vocab_size, batch.num_pairs) == (vocab_size, num_pairs)
    for row, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        pairs = dict(zip(row[0 : 2 * num_pairs : 2], row[1 : 2 * num_pairs : 2], strict=True))
        assert set(pairs) <= set(range(1, vocab_size // 2))
        assert set(pairs.values()) <= set(range(vocab_size // 2, vocab_size))
        counts = Counter(row)
        assert [counts[key] for key in pairs] == [2] * num_pairs  # so the keys are distinct, too
        assert [counts[value] for value in pairs.values()] == [1] * num_pairs
        assert counts[0] == length - 3 * num_pairs  # all else is filler
        for place, target in enumerate(targets):
            is_query = place >= 2 * num_pairs and row[place] != 0
            assert target == (pairs[row[place]] if is_query else -100)


@sizes
def test_a_lookup_solves_it(size):
    batch = recall_batch(*size, seed=3)
    assert batch.accuracy(known_value(batch.tokens)) == 1


def test_rows_and_seeds_differ_and_repeat():
    first, again = (recall_batch(40, 5, 30, 64, seed=8) for _ in range(2))
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.targets, again.targets)
    rows = torch.cat([first.tokens, recall_batch(40, 5, 30, 64, seed=9).tokens])
    assert len(rows.unique(dim=0)) == 80


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    recall_batch(2, 2, 8, 12, seed=1)
    assert torch.equal(state, torch.get_rng_state())


def test_all_keys_values_and_places_come_up_equally_often():
    # an off-by-one in a range leaves out the last; a power law favours the places near the pairs
    batch = recall_batch(*MANY, seed=4)
    pairs, rest = batch.tokens[:, :6], batch.tokens[:, 6:]
    for token in range(1, 12):
        expected = 3 / 5 if token < 6 else 3 / 6
        assert (pairs == token).any(dim=1).double().mean() == pytest.approx(expected, abs=0.08)
    for place in range(6):
        assert (rest[:, place] != 0).double().mean() == pytest.approx(3 / 6, abs=0.08)


# What does not solve it


def test_one_value_for_all_queries_is_right_exactly_by_chance():
    batch = recall_batch(11, 4, 20, 24, seed=5)
    assert batch.chance == 1 / 4
    for pair in range(4):
        value = batch.tokens[:, 2 * pair + 1 : 2 * pair + 2]
        assert batch.accuracy(value.expand_as(batch.tokens)) == batch.chance


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_the_order_of_queries_says_nothing(order):
    # the wrong idea: queries in the order of their pairs, answered by counting
    batch = recall_batch(*MANY, seed=6)
    values = batch.tokens[:, 1:6:2][:, order]
    assert batch.accuracy(at_queries(batch, values)) == pytest.approx(1 / 3, abs=0.08)


def test_a_key_cannot_be_learned_by_heart():
    # the wrong idea: one dictionary of keys and values for all sequences
    seen, batch = recall_batch(*MANY, seed=7), recall_batch(*MANY, seed=8)
    values = defaultdict(Counter)
    asked = seen.targets != -100
    for key, value in zip(seen.tokens[asked].tolist(), seen.targets[asked].tolist(), strict=True):
        values[key][value] += 1
    by_heart = torch.tensor([0] + [values[key].most_common(1)[0][0] for key in range(1, 6)])
    asked_keys = batch.tokens.where(batch.targets != -100, 0)
    assert batch.accuracy(by_heart[asked_keys]) == pytest.approx(1 / 6, abs=0.08)


# Accuracy


def test_accuracy_is_the_share_of_queries_that_are_right():
    batch = recall_batch(2, 5, 15, 20, seed=9)
    right = batch.targets[batch.targets != -100].view(2, 5)
    wrong_in = torch.tensor([[0, 1, 0, 0, 0], [1, 0, 1, 0, 0]])
    assert batch.accuracy(at_queries(batch, right - wrong_in)) == pytest.approx(0.7)


def test_only_queries_are_scored():
    batch = recall_batch(5, 3, 30, 20, seed=10)
    wrong = (batch.targets + 1) % 20
    assert batch.accuracy(wrong) == 0
    assert batch.accuracy(batch.targets.where(batch.targets != -100, 7)) == 1
    assert batch.accuracy(torch.full_like(batch.targets, -100)) == 0


def test_logits_count_by_their_largest():
    batch = recall_batch(5, 3, 30, 20, seed=11)
    answers = known_value(batch.tokens)
    logits = torch.randn(5, 30, 20, generator=torch.Generator().manual_seed(0))
    logits.scatter_(2, answers[..., None], 100.0)
    assert batch.accuracy(logits) == batch.accuracy(logits.bfloat16()) == 1
    assert batch.accuracy(-logits) == 0
    # all equal, or not a number: no answer is no luck
    assert batch.accuracy(torch.zeros(5, 30, 20)) == 0
    assert batch.accuracy(torch.full((5, 30, 20), torch.nan)) == 0


def test_targets_are_not_shifted():
    batch = recall_batch(5, 3, 30, 20, seed=12)
    for shift in (-1, 1):
        assert batch.accuracy(known_value(batch.tokens).roll(shift, dims=1)) < 0.5
    # what the docstring says of the loss: a sure lookup has none, and blank logits have log V
    logits = torch.zeros(5, 30, 20).scatter_(2, known_value(batch.tokens)[..., None], 1000.0)
    loss = torch.nn.functional.cross_entropy
    assert loss(logits.flatten(0, 1), batch.targets.flatten()) == 0
    blank = loss(torch.zeros(150, 20), batch.targets.flatten())
    assert blank.item() == pytest.approx(torch.tensor(20.0).log().item())


@pytest.mark.parametrize(
    "answers",
    [
        torch.zeros(5, 30, 19),
        torch.zeros(5, 29, 20),
        torch.zeros(5, 30),
        torch.zeros(4, 30, dtype=torch.int64),
        torch.zeros(150, dtype=torch.int64),
    ],
)
def test_answers_of_another_shape_are_refused(answers):
    with pytest.raises(ValueError, match=r"answers: expected logits \(5, 30, 20\) or integer ids"):
        recall_batch(5, 3, 30, 20, seed=0).accuracy(answers)


# To read


def test_the_picture_of_the_lecture():
    a, b, c, f, e = 1, 2, 3, 6, 5
    shown = [a, 14, b, 13, c, 16, f, 11, e, 12]
    tokens = torch.tensor([[0] * 15, [*shown, a, c, f, e, b]])
    targets = torch.full((2, 15), -100)
    targets[:, 10:] = torch.tensor([14, 16, 11, 12, 13])
    batch = RecallBatch(tokens, targets, vocab_size=20)
    assert batch.text(1) == "A4B3C6F1E2 → A?C?F?E?B?"
    assert (known_value(tokens)[1, 10:] - 10).tolist() == [4, 6, 1, 2, 3]


def test_a_text_shows_filler_and_large_names():
    tokens = torch.tensor([[26, 100, 27, 199, 0, 27, 0, 0, 26, 0]])
    targets = torch.full((1, 10), -100)
    targets[0, 5], targets[0, 8] = 199, 100
    assert RecallBatch(tokens, targets, vocab_size=200).text() == "Z0AA99 → .AA?..Z?."


def test_a_text_says_all_there_is():
    batch = recall_batch(200, 2, 7, 8, seed=13)
    texts = {batch.text(row) for row in range(200)}
    assert len(texts) == len(batch.tokens.unique(dim=0))


# Errors


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_sequences": 0}, "num_sequences: expected an integer ≥ 1, got 0"),
        ({"num_pairs": 0}, "num_pairs: expected an integer ≥ 1, got 0"),
        ({"num_pairs": 2.0}, "num_pairs: expected an integer ≥ 1, got 2.0"),
        ({"length": 14}, "length: expected an integer ≥ 15 = 3 · num_pairs, got 14"),
        ({"vocab_size": 11}, "vocab_size: expected an integer ≥ 12 = 2 · num_pairs .*, got 11"),
        ({"seed": -1}, "seed: expected an integer ≥ 0, got -1"),
        ({"seed": 2**63}, "seed: expected an integer below"),
        ({"seed": None}, "seed: expected an integer ≥ 0, got None"),
    ],
)
def test_impossible_arguments_are_refused(change, message):
    fits = {"num_sequences": 1, "num_pairs": 5, "length": 15, "vocab_size": 12, "seed": 0}
    recall_batch(**fits)
    with pytest.raises(ValueError, match=message):
        recall_batch(**fits | change)
