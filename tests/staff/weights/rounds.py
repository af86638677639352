"""Speculative decoding of test stories by the toy target: how many tokens a round gives.

A story's beginning is the prompt; the target goes on, and what guesses for it is measured. Shared
by `medusa` and `eagle`, and beside them the draft model.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from assignment.provided.data.corpus import story_texts
from assignment.provided.data.tokenizer import load_tokenizer
from assignment.provided.models import CachedSession, Llama
from assignment.provided.speculative import LlamaPast, TreePast
from solutions.attention.generate import generate
from solutions.attention.grouped_query import grouped_query_attention
from solutions.attention.kv_cache import KVCache
from solutions.speculative.decoding import ModelDraft, speculative_generate

from .measure import Figure, ratio

PROMPT = 40  # tokens of a story that are given
NEW = 80  # tokens, at most, that the target adds
NUM_DRAFT = 4  # γ of the draft model
SEED = 11

Guessing = Callable[[TreePast, list[int], float, Tensor], list[int]]
"""(past, prompt, temperature, uniforms [NEW]) -> new tokens, by trees or chains."""


def prompts_of(split: str, count: int) -> list[list[int]]:
    tokenizer = load_tokenizer()
    return [tokenizer.document(text)[:PROMPT] for text in story_texts(split, count)]


def uniforms_of(count: int, *width: int) -> Tensor:
    return torch.rand(count, NEW, *width, generator=torch.Generator().manual_seed(SEED))


def session_of(model: Llama, batch_size: int) -> CachedSession:
    sizes = model.config
    shape = (batch_size, PROMPT + NEW + NUM_DRAFT, sizes.num_kv_heads, sizes.head_dim)
    caches = [KVCache(*shape) for _ in range(sizes.num_layers)]
    return CachedSession(model, caches, grouped_query_attention)


def told(target: Llama, prompts: Sequence[list[int]], temperature: float) -> list[list[int]]:
    """The prompts with what the target adds."""
    answers = generate(
        session_of(target, len(prompts)),
        list(prompts),
        NEW,
        temperature=temperature,
        uniforms=uniforms_of(len(prompts)),
        stop_tokens=load_tokenizer().stop_tokens,
    )
    return [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]


def by_guesses(
    target: Llama, guess: Guessing, prompts: Sequence[list[int]], temperature: float
) -> Figure:
    """New tokens a call of the target, that of the prompt and its token left out."""
    tokens, calls = [], []
    for prompt, uniforms in zip(prompts, uniforms_of(len(prompts)), strict=True):
        past = _Counted(LlamaPast(target))
        tokens.append(len(guess(past, prompt, temperature, uniforms)) - 1)
        calls.append(past.calls - 1)
    return ratio(tokens, calls)


def by_the_draft(
    target: Llama, draft: Llama, prompts: Sequence[list[int]], temperature: float
) -> Figure:
    """New tokens a call of the target when the draft model guesses NUM_DRAFT tokens."""
    fed: list[Tensor] = []
    session = session_of(target, len(prompts))

    class Counted:
        truncate = session.truncate

        def __call__(self, tokens: Tensor, num_tokens: Tensor) -> Tensor:
            fed.append(num_tokens > 0)
            return session(tokens, num_tokens)

    answers = speculative_generate(
        Counted(),
        ModelDraft(session_of(draft, len(prompts)), temperature),
        list(prompts),
        NEW,
        NUM_DRAFT,
        temperature=temperature,
        uniforms=uniforms_of(len(prompts), 2 * NUM_DRAFT + 1),
        stop_tokens=load_tokenizer().stop_tokens,
    )
    rounds = torch.stack(fed).sum(dim=0).tolist()
    return ratio([len(answer) for answer in answers], rounds)


class _Counted:
    """A past that counts its calls."""

    def __init__(self, past: TreePast):
        self._past, self.calls = past, 0
        self.logits, self.keep = past.logits, past.keep

    @property
    def length(self) -> int:
        return self._past.length

    def feed(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        self.calls += 1
        return self._past.feed(tokens, positions, mask)
