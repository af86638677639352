"""What a training is given: batches of documents, and the loss of the next token."""

import random

import pytest
import torch

from assignment.provided.models.training import Batches, next_token_loss, padded

DRAW = random.Random(4)
DOCUMENTS = [
    [1, *(DRAW.randrange(3, 23) for _ in range(DRAW.randrange(1, 20))), 2] for _ in range(300)
]


# Batches


def drawn_by(batches, steps):
    """The documents of each step, without their padding."""
    drawn = []
    for step in steps:
        tokens, real = batches(step)
        drawn.append([row[mask].tolist() for row, mask in zip(tokens, real, strict=True)])
    return drawn


def test_padding_by_hand():
    tokens, real = padded([[1, 5, 6, 2], [1, 2], [1, 7, 2]])
    assert tokens.tolist() == [[1, 5, 6, 2], [1, 2, 0, 0], [1, 7, 2, 0]]
    assert real.tolist() == [[True] * 4, [True] * 2 + [False] * 2, [True] * 3 + [False]]


def test_every_epoch_has_every_document_once_in_an_order_of_its_own():
    batches = Batches(DOCUMENTS, 4, seed=3)  # 300 documents: two chunks that are sorted
    epochs = [drawn_by(batches, range(75 * i, 75 * (i + 1))) for i in range(3)]
    for epoch in epochs:
        assert sorted(document for batch in epoch for document in batch) == sorted(DOCUMENTS)
    assert epochs[0] != epochs[1] != epochs[2]
    firsts = {tuple(map(tuple, epoch[0])) for epoch in epochs}
    assert len(firsts) == 3


def test_documents_that_fill_no_batch_wait_for_another_epoch():
    batches = Batches(DOCUMENTS[:10], 4, seed=0)
    seen = [{tuple(d) for b in drawn_by(batches, (2 * e, 2 * e + 1)) for d in b} for e in range(9)]
    assert all(len(epoch) == 8 for epoch in seen)
    assert len(set.union(*seen)) == 10  # not always the same ones


def test_documents_of_a_batch_are_about_equally_long():
    batches = Batches(DOCUMENTS, 4, seed=1)
    real = torch.cat([batches(step)[1].flatten() for step in range(75)])
    assert real.float().mean() > 0.95
    # and yet the lengths come in no order
    widths = [batches(step)[0].shape[1] for step in range(75)]
    assert widths != sorted(widths) and max(widths[:20]) > 15 and min(widths[:20]) < 8


def test_a_batch_depends_on_step_and_seed_alone():
    steps = [0, 1, 74, 75, 76, 150]
    forward = drawn_by(Batches(DOCUMENTS, 4, seed=1), steps)
    state = torch.get_rng_state(), random.getstate()
    backward = drawn_by(Batches(DOCUMENTS, 4, seed=1), steps[::-1])
    assert torch.equal(torch.get_rng_state(), state[0]) and random.getstate() == state[1]
    assert forward == backward[::-1]
    assert forward != drawn_by(Batches(DOCUMENTS, 4, seed=2), steps)


@pytest.mark.parametrize("batch_size", [0, 301])
def test_a_batch_size_that_no_batch_can_have_is_refused(batch_size):
    with pytest.raises(ValueError, match=f"batch_size.* 300, got {batch_size}"):
        Batches(DOCUMENTS, batch_size, seed=0)


# The loss of the next token


def test_the_loss_is_that_of_the_next_token():
    tokens = torch.tensor([[3, 1, 4, 1], [5, 2, 2, 0]])
    logits = torch.randn(2, 4, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    p = logits.softmax(-1)
    terms = [-p[b, t, tokens[b, t + 1]].log() for b in range(2) for t in range(3)]
    torch.testing.assert_close(next_token_loss(logits, tokens), sum(terms) / 6)


def test_padding_counts_neither_in_the_sum_nor_in_the_number():
    tokens = torch.tensor([[3, 1, 4, 1, 5], [5, 2, 0, 0, 0]])
    real = torch.tensor([[True] * 5, [True, True, False, False, False]])
    logits = torch.randn(2, 5, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    sums = next_token_loss(logits[:1], tokens[:1]) * 4 + next_token_loss(
        logits[1:, :2], tokens[1:, :2]
    )
    torch.testing.assert_close(next_token_loss(logits, tokens, real), sums / 5)

    # Whatever stands there, an id that the model does not know too.
    torch.testing.assert_close(
        next_token_loss(logits, tokens.masked_fill(~real, -100), real), sums / 5
    )


def test_padding_gets_no_gradient():
    tokens = torch.tensor([[5, 2, 3, 0, 0]])
    logits = torch.zeros(1, 5, 7, requires_grad=True)
    next_token_loss(logits, tokens, tokens > 0).backward()
    assert logits.grad.abs().sum(-1)[0].bool().tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("logits", "tokens", "real", "message"),
    [
        ((2, 4, 7), (2, 5), None, r"logits.*\[2, 5\].*\[2, 4, 7\]"),
        ((2, 7), (2, 7), None, "logits"),
        ((2, 1, 7), (2, 1), None, "tokens: no token to predict"),
        ((2, 4, 7), (2, 4), (2, 4), "tokens: no token to predict"),
    ],
)
def test_a_loss_of_nothing_is_refused(logits, tokens, real, message):
    real = real and torch.zeros(real, dtype=torch.bool)
    with pytest.raises(ValueError, match=message):
        next_token_loss(torch.zeros(logits), torch.zeros(tokens, dtype=torch.int64), real)
