"""TableLM: exact fractions, sensitive to everything in the prefix, and its account of calls."""

from fractions import Fraction
from itertools import product

import pytest
import torch

from assignment.provided.models import TableLM

PREFIX = [3, 1, 4, 1, 5, 0, 2, 6, 5, 3]


def test_logits_are_logs_of_the_weights():
    model = TableLM(8, seed=1)
    assert model.denominator == 36
    logits = model(torch.tensor([PREFIX]))
    for t in range(len(PREFIX)):
        weights = model.weights(PREFIX[: t + 1])
        assert sorted(weights) == list(range(1, 9))
        expected = torch.tensor(weights) / 36
        torch.testing.assert_close(logits[0, t].softmax(-1), expected)


def test_the_law_of_three_tokens_sums_to_one():
    model = TableLM(4)
    total = Fraction(0)
    for tokens in product(range(4), repeat=3):
        share = Fraction(1)
        for i, token in enumerate(tokens):
            share *= Fraction(model.weights([2, *tokens[:i]])[token], model.denominator)
        total += share
    assert total == 1


def tables_differ(first, second, seeds=200):
    """For how many seeds the next weights after two prefixes differ."""
    return sum(
        TableLM(8, seed).weights(first) != TableLM(8, seed).weights(second) for seed in range(seeds)
    )


@pytest.mark.parametrize(
    ("mistake", "other"),
    [
        ("one token changed at the start", [4, *PREFIX[1:]]),
        ("one token changed at the end", [*PREFIX[:-1], 4]),
        ("one token dropped", PREFIX[:4] + PREFIX[5:]),
        ("one token fed twice", [*PREFIX[:4], *PREFIX[3:]]),
        ("two tokens swapped", [1, 3, *PREFIX[2:]]),
        ("padding in front", [0, *PREFIX]),
        ("padding behind", [*PREFIX, 0]),
        ("only the last token", PREFIX[-1:]),
        ("nothing", []),
    ],
)
def test_a_prefix_fed_wrongly_gives_other_probabilities(mistake, other):
    # Two of 8! orders are equal in one case of 40,320; two rows of the table in one of 4,093.
    assert tables_differ(PREFIX, other) >= 199, mistake


def test_the_empty_prefix_is_a_prefix():
    assert sum(TableLM(5).weights([])) == 15


def test_seeds_differ_and_repeat():
    assert TableLM(8, 1).weights(PREFIX) == TableLM(8, 1).weights(PREFIX)
    assert TableLM(8, 1).weights(PREFIX) != TableLM(8, 2).weights(PREFIX)


def test_the_global_random_state_is_left_alone():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    TableLM(8, 5)
    assert torch.equal(state, torch.get_rng_state())


def test_all_orders_of_the_weights_come_up():
    model = TableLM(3)
    seen = {tuple(model.weights(list(p))) for n in range(1, 5) for p in product(range(3), repeat=n)}
    assert len(seen) == 6


def test_given_weights_may_be_zero():
    model = TableLM(4, weights=[0, 1, 1, 6])
    assert model.denominator == 8
    logits = model(torch.tensor([[1, 2]]))
    assert logits.isneginf().sum(-1).tolist() == [[1, 1]]
    assert logits.softmax(-1)[0, 0].tolist() == pytest.approx([w / 8 for w in model.weights([1])])


def test_rows_of_a_batch_do_not_meet():
    model, tokens = TableLM(8), torch.randint(8, (5, 11))
    alone = torch.cat([model(row[None]) for row in tokens])
    assert torch.equal(model(tokens), alone)


@pytest.mark.parametrize("weights", [[1, 2], [1, 2, -1], [0, 0, 0]])
def test_impossible_weights_are_refused(weights):
    with pytest.raises(ValueError, match="weights"):
        TableLM(3, weights=weights)


@pytest.mark.parametrize("token", [-1, 8])
def test_tokens_outside_the_vocabulary_are_refused(token):
    with pytest.raises(ValueError, match=f"0 to 7.*{token}"):
        TableLM(8)(torch.tensor([[1, token]]))


def test_a_sequence_longer_than_the_model_is_refused():
    with pytest.raises(ValueError, match="max_length is 4"):
        TableLM(8, max_length=4)(torch.zeros(1, 5, dtype=torch.int64))


# Sessions


def test_a_session_counts_what_it_is_fed():
    model = TableLM(8)
    session = model.session(2)
    first = session(torch.tensor([PREFIX[:5], [7, 7, 0, 0, 0]]), torch.tensor([5, 2]))
    second = session(torch.tensor([[PREFIX[5]], [-1]]), torch.tensor([1, 0]))
    assert torch.equal(first[0], model(torch.tensor([PREFIX[:5]]))[0])
    assert torch.equal(second[0], model(torch.tensor([PREFIX[:6]]))[0, 5:])
    assert [(call.num_tokens, call.columns) for call in session.calls] == [((5, 2), 5), ((1, 0), 1)]
    assert (session.num_calls, session.tokens, session.padded_tokens) == (2, 8, 12)
    assert session.lengths.tolist() == [6, 2]


def test_going_back_is_not_taken_off_the_account():
    session = TableLM(8).session(1)
    session(torch.tensor([[1, 2, 3]]))
    session.truncate(torch.tensor([1]))
    again = session(torch.tensor([[2]]))
    assert torch.equal(again, TableLM(8)(torch.tensor([[1, 2]]))[:, 1:])
    assert (session.num_calls, session.tokens) == (2, 4)


@pytest.mark.parametrize(
    ("tokens", "counts", "message"),
    [
        ([[1, 1, 1], [1, 1, 1]], [1, 3], "row 1 holds 2 and was fed 3 more, its capacity is 4"),
        ([[1], [9]], [1, 1], "0 to 7"),
        ([[1], [1]], [1, 2], "num_tokens"),
        ([[1]], [1], "tokens: expected shape"),
    ],
)
def test_a_refused_call_feeds_and_counts_nothing(tokens, counts, message):
    session = TableLM(8).session(2, capacity=4)
    session(torch.tensor([[1, 2], [3, 4]]))
    with pytest.raises(ValueError, match=message):
        session(torch.tensor(tokens), torch.tensor(counts))
    assert session.lengths.tolist() == [2, 2]
    assert session.num_calls == 1
