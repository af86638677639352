"""Were the drafts of each round what a new drafter makes of the true features?"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from assignment.provided.speculative import NO_TOKEN, Draft
from tests.grading.closeness import Mismatch, assert_equal
from tests.speculative.eagle_model import FeatureModel
from tests.speculative.texts import assert_text

__tracebackhide__ = True

TIE = 1e-3  # logits this near may change their order by rounding
Choice = tuple[int, ...]


def assert_ranks(
    logits: Tensor, tokens: Sequence[int], ranks: Sequence[int], what: str = "drafted tokens"
) -> None:
    """That tokens[i] has rank ranks[i] in logits[i], or one so near that rounding decides."""
    for i, (row, token, rank) in enumerate(zip(logits, tokens, ranks, strict=True)):
        order = row.argsort(descending=True).tolist()
        if not (0 <= token < len(row) and abs(row[token] - row[order[rank]]) < TIE):
            where = f"place {i}" if len(ranks) > 1 else ""
            line = f"expected token {order[rank]}, of rank {rank}, got {token}"
            line, right, got = f"{where}: {line}" if where else line, str(order[rank]), str(token)
            raise Mismatch(line, expected=right, got=got, what=what, where=where)


def assert_trees(
    model: FeatureModel, prompt: list[int], new: list[int], choices: Sequence[Choice]
) -> None:
    """The rounds of a generation by trees: one target call each, fed the newest token and the tree
    that a new drafter draws from the true features of all tokens before, its nodes in any order."""
    text = prompt + new
    _assert_prompt_call(model, prompt)
    length = len(prompt) + 1
    for call in range(1, len(model.feeds)):
        feed = model.feeds[call]
        usable = [choice for choice in choices if len(choice) < len(text) - length]
        sequence = text[:length]
        _assert_call(feed, call, sequence, 1 + len(usable))
        of: dict[Choice, int] = {}
        for parent in sorted({choice[:-1] for choice in usable}, key=len):
            path = [of[parent[: depth + 1]] for depth in range(len(parent))]
            features = _drafting(model, sequence, path)[-1:]
            what = f"behind the drafted {path}:" if path else "of the newest token:"
            model.assert_asked(call, features, what)
            ranks = [choice[-1] for choice in usable if choice[:-1] == parent]
            below = _children(feed, (*sequence, *path))
            tokens = _of_ranks(model.head(features)[0], ranks, below, call, parent)
            of |= {(*parent, rank): token for rank, token in zip(ranks, tokens, strict=True)}
        length += 1 + _accepted(of, text[length:])
    assert_equal(length, len(text), what="tokens that the target calls account for")


def assert_chains(
    model: FeatureModel,
    prompt: list[int],
    new: list[int],
    num_draft: int,
    uniforms: Tensor,
    draw_tokens: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
    verify: Callable[[Draft, Tensor, Tensor], Tensor],
) -> None:
    """The rounds of a generation by sampled chains, and the tokens that come of them."""
    total, text = len(prompt) + len(new), list(prompt)
    _assert_prompt_call(model, prompt)
    text += draw_tokens(model.head(model.state(tuple(prompt)))[None], uniforms[0, -1:])[1].tolist()
    call = 0
    while len(text) < total:
        call += 1
        if call >= len(model.feeds):
            raise Mismatch(
                f"expected more than {call} target calls, got {len(model.feeds)}",
                expected=f"a target call {call}",
                got="none",
            )
        feed, count = model.feeds[call], min(num_draft, total - len(text) - 1)
        _assert_call(feed, call, text, 1 + count)
        drafted = list(feed.tokens[1:])
        features = _drafting(model, text, drafted)
        p, tokens = draw_tokens(model.head(features[:count]), uniforms[call, :count])
        if count:
            model.assert_asked(call, features[:count], "behind so many drafted tokens:")
            assert_equal(drafted, tokens.tolist(), what=f"tokens drafted before call {call}")
        states = model.states(text + drafted)[len(text) - 1 :]
        q, _ = draw_tokens(model.head(states), torch.zeros(len(states)))
        checks = uniforms[call, num_draft : num_draft + count]
        checks = torch.cat([checks, uniforms[call, -1:]])[None]
        draft = Draft(torch.tensor([drafted]).long(), torch.tensor([count]), p[None])
        got = verify(draft, q[None], checks)[0].tolist()
        text += [token for token in got if token != NO_TOKEN]
    assert_text(new, text[len(prompt) :], hint=model.first_fault)
    assert_equal(len(model.feeds), call + 1, what="target calls")


def _assert_prompt_call(model: FeatureModel, prompt: list[int]) -> None:
    first = model.feeds[0] if model.feeds else None
    assert_equal(first and list(first.tokens), list(prompt), what="fed in the first target call")
    assert_equal(list(first.positions), list(range(len(prompt))), what="their positions")


def _assert_call(feed, call: int, sequence: list[int], count: int) -> None:
    held = len(feed.held)
    assert_equal(held, len(sequence) - 1, what=f"tokens held before target call {call}")
    assert_equal(len(feed.tokens), count, what=f"tokens fed in target call {call}")
    assert_equal(feed.tokens[0], sequence[-1], what=f"first token of target call {call}")
    if feed.fault:
        line = f"target call {call}: {feed.fault}"
        raise Mismatch(line, expected="rows that each see one branch", got=feed.fault)


def _children(feed, path: tuple[int, ...]) -> list[int]:
    """The tokens of the rows that saw this path and themselves."""
    return [prefix[-1] for prefix in feed.prefixes if prefix[:-1] == path]


def _of_ranks(
    logits: Tensor, ranks: Sequence[int], fed: Sequence[int], call: int, parent: Choice
) -> list[int]:
    """The token of each rank among those that were fed below a node."""
    order, left, found = logits.argsort(descending=True).tolist(), list(fed), []
    for rank in ranks:
        right = order[rank]
        near = [token for token in left if abs(float(logits[token] - logits[right])) < TIE]
        if not near:
            what = f"target call {call}, below choice {parent}"
            line = f"expected token {right}, of rank {rank}, got {list(fed)}"
            raise Mismatch(line, expected=str(right), got=str(list(fed)), what=what)
        found.append(right if right in near else near[0])
        left.remove(found[-1])
    return found


def _drafting(model: FeatureModel, sequence: list[int], drafted: Sequence[int]) -> Tensor:
    return model.drafter.drafting(model.states(sequence[:-1]), sequence, drafted)


def _accepted(of: dict[Choice, int], text: list[int]) -> int:
    """How many tokens of `text`, from its start, are a path of the tree."""
    path: Choice = ()
    for token in text:
        below = [c for c in of if c[:-1] == path and len(c) == len(path) + 1 and of[c] == token]
        if not below:
            break
        path = below[0]
    return len(path)
