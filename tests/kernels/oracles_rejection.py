"""What a round must give, by the definition: token by token, in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from assignment.provided.speculative import Draft
from tests.grading.closeness import assert_equal
from tests.speculative.law import Law, NextLaw, assert_law, completed, text_law
from tests.speculative.verification_oracles import round_law
from tests.speculative.verification_rounds import assert_rounds

__tracebackhide__ = True


def num_accepted(draft: Draft, target_probs: Tensor, uniforms: Tensor, row: int) -> int:
    """How many drafted tokens stay. Products of two float32 are exact in float64."""
    count = int(draft.num_draft[row])
    for place in range(count):
        token = int(draft.tokens[row, place])
        p_x = 1.0 if draft.probs is None else _of(draft.probs[row, place], token)
        q_x = _of(target_probs[row, place], token)
        if not (p_x > 0 and float(uniforms[row, place]) * p_x < q_x):
            return place
    return count


def may_end(draft: Draft, target_probs: Tensor, row: int, end: int) -> Tensor:
    """Bool [V]: the tokens that may end a round of so many accepted ones."""
    q = target_probs[row, end].double().nan_to_num(nan=0.0)
    left = q.clone()
    if end < int(draft.num_draft[row]):
        if draft.probs is None:
            token = int(draft.tokens[row, end])
            p = torch.zeros_like(q)
            if 0 <= token < len(q):
                p[token] = 1
            left -= p
        else:
            p = draft.probs[row, end, : len(q)].double().nan_to_num(nan=0.0)
            left[: len(p)] -= p
    for weights in (left, q):
        if (weights > 0).any():
            return weights > 0
    return torch.ones_like(q, dtype=torch.bool)


def _of(probs: Tensor, token: int) -> float:
    """0 for a token that is not there. NaN is neither above nor below anything."""
    return float(probs[token]) if 0 <= token < len(probs) else 0.0


def assert_round_of_each(
    given: Tensor, draft: Draft, target_probs: Tensor, uniforms: Tensor
) -> None:
    """The accepted tokens of each row, one more that may end it, and NO_TOKEN behind."""
    assert_rounds(given, draft, target_probs.shape[-1])
    lengths = (given >= 0).sum(dim=1).tolist()
    for row, length in enumerate(lengths):
        end = num_accepted(draft, target_probs, uniforms, row)
        what = f"row {row}, {int(draft.num_draft[row])} drafted tokens"
        assert_equal(length, end + 1, what=f"{what}, number of tokens")
        accepted = draft.tokens[row, :end].tolist()
        assert_equal(given[row, :end].tolist(), accepted, what=f"{what}, accepted ones")
        last = int(given[row, end])
        possible = may_end(draft, target_probs, row, end)
        assert possible[last], (
            f"{what}: ends with token {last}, which has no probability there (the row of place "
            f"{end}, {int(possible.sum())} tokens have some)"
        )


def assert_lossless(law: Law, p: NextLaw, q: NextLaw, num_draft: int) -> None:
    """A round's law, gone on with by the target, is the target's; and no token is lost in vain."""
    what, length = f"num_draft {num_draft}", num_draft + 1
    assert_law(completed(law, q, length), text_law(q, length), f"{what}, then the target", p=p, q=q)
    assert_law(law, round_law(p, q, num_draft), f"{what}, one round", p=p, q=q)
