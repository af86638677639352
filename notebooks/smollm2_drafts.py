"""SmolLM2 with a draft and without, timed, for smollm2_speculative.py. All is greedy."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import torch

from assignment.provided.models import CachedSession, Llama
from submission.attention.generate import generate
from submission.attention.grouped_query import grouped_query_attention
from submission.attention.kv_cache import KVCache
from submission.speculative.decoding import ModelDraft, speculative_generate


@dataclass
class Run:
    """An answer. calls: of the target; drafts: tokens drafted, and the answer's length then."""

    seconds: float
    answer: list[int]
    calls: int
    drafts: list[tuple[int, list[int]]] = field(default_factory=list)

    @property
    def verdicts(self) -> list[bool]:
        """Of each drafted token that was looked at, whether it was accepted.

        None behind a rejected one was looked at, and none behind the end of the answer.
        """
        found = []
        for length, drafted in self.drafts:
            pairs = list(zip(drafted, self.answer[length:], strict=False))
            accepted = next((i for i, (x, y) in enumerate(pairs) if x != y), len(pairs))
            found += [True] * accepted + [False] * (accepted < len(pairs))
        return found


@dataclass(frozen=True)
class Request:
    """One prompt, and when its answer ends."""

    prompt: list[int]
    max_new_tokens: int
    stop_tokens: Collection[int]


def without_draft(model: Llama, request: Request) -> Run:
    """Through `attention.generate`."""
    target = _Counted(model, request)
    started = time.perf_counter()
    (answer,) = generate(
        target, [request.prompt], request.max_new_tokens, stop_tokens=request.stop_tokens
    )
    return Run(time.perf_counter() - started, answer, target.calls)


def with_draft(model: Llama, request: Request, propose: Callable, num_draft: int) -> Run:
    """Through `speculative_generate`, with a fresh drafter."""
    target, drafts = _Counted(model, request), []

    def noted(sequences, most, uniforms):
        draft = propose(sequences, most, uniforms)
        drafted = draft.tokens[0, : int(draft.num_draft[0])].tolist()
        drafts.append((len(sequences[0]) - len(request.prompt), drafted))
        return draft

    started = time.perf_counter()
    (answer,) = speculative_generate(
        target,
        noted,
        [request.prompt],
        request.max_new_tokens,
        num_draft,
        stop_tokens=request.stop_tokens,
    )
    return Run(time.perf_counter() - started, answer, target.calls, drafts)


def first_layers(model: Llama, count: int) -> Llama:
    """The model's first layers under its own norm and head. No weight is copied."""
    early = Llama(replace(model.config, num_layers=count), seed=None)
    weights = {
        name: value for name, value in model.state_dict().items() if name in early.state_dict()
    }
    early.load_state_dict(weights, assign=True)
    return early.requires_grad_(False)


def model_draft(model: Llama, request: Request) -> ModelDraft:
    return ModelDraft(_session(model, request))


@torch.no_grad()
def agreement(model: Llama, request: Request, answer: list[int]) -> list[bool]:
    """For each token of a greedy answer: would this model, after all before it, say the same?"""
    text = torch.tensor([request.prompt + answer])
    hidden = model.hidden(text[:, :-1])[:, len(request.prompt) - 1 :]
    said = model.logits(hidden)[0].argmax(dim=-1)
    return (said == torch.tensor(answer)).tolist()


def _session(model: Llama, request: Request) -> CachedSession:
    sizes = model.config
    room = len(request.prompt) + request.max_new_tokens
    shape = (1, room, sizes.num_kv_heads, sizes.head_dim)
    caches = [KVCache(*shape) for _ in range(sizes.num_layers)]
    return CachedSession(model, caches, grouped_query_attention)


class _Counted:
    """A session that counts its calls."""

    def __init__(self, model: Llama, request: Request):
        self._session, self.calls = _session(model, request), 0

    @property
    def lengths(self) -> torch.Tensor:
        return self._session.lengths

    def __call__(self, tokens: torch.Tensor, num_tokens: torch.Tensor | None = None):
        self.calls += 1
        return self._session(tokens, num_tokens)

    def truncate(self, lengths: torch.Tensor) -> None:
        self._session.truncate(lengths)
