"""The target goes back at once, by the accepted count: it is known by length alone what it holds.

A greedy draft calls itself deterministic, and nobody is asked for a draft that may have no token.
"""

from collections.abc import Callable, Collection
from itertools import takewhile

import torch
from jaxtyping import Float
from torch import Tensor

from assignment.provided.models import Session
from assignment.provided.speculative import NO_TOKEN, Draft

from ..attention.generate import next_token_probs, sample
from .verification import verify

Propose = Callable[[list[list[int]], list[int], Tensor], Draft]


class ModelDraft:
    def __init__(
        self,
        session: Session,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
    ):
        next_token_probs(torch.ones(1, 2), temperature, top_k, top_p)
        self.session = session
        self.filters = (temperature, top_k, top_p)
        self.fed = None

    def __call__(
        self, sequences: list[list[int]], most: list[int], uniforms: Float[Tensor, "B G"]
    ) -> Draft:
        batch, width = uniforms.shape
        if self.fed is None:
            self.fed = [()] * batch
        drafted, laws = [[] for _ in range(batch)], []
        if any(most):
            # All rows go back first, and are as far as all but the newest token of their sequence.
            for b in range(batch):
                if most[b]:
                    pairs = zip(self.fed[b], sequences[b][:-1], strict=False)
                    equal = takewhile(lambda pair: pair[0] == pair[1], pairs)
                    self.fed[b] = tuple(token for token, _ in equal)
            self.session.truncate(torch.tensor([len(fed) for fed in self.fed]))
        for step in range(max(most, default=0)):
            rows = [[] for _ in range(batch)]
            for b in range(batch):
                if step < most[b]:
                    whole = (*sequences[b], *drafted[b])
                    rows[b] = whole[len(self.fed[b]) :]
                    self.fed[b] = whole
            counts = torch.tensor([len(row) for row in rows])
            tokens = torch.zeros(batch, int(counts.max()), dtype=torch.long)
            for b, row in enumerate(rows):
                tokens[b, : len(row)] = torch.tensor(row, dtype=torch.long)
            logits = self.session(tokens, counts)
            newest = torch.stack([logits[b, max(len(row) - 1, 0)] for b, row in enumerate(rows)])
            law = next_token_probs(newest, *self.filters)
            laws.append(law)
            for b, token in enumerate(sample(law, uniforms[:, step]).tolist()):
                if step < most[b]:
                    drafted[b].append(token)
        draft = Draft.of(drafted, width)
        if self.filters[0] == 0 or not laws:
            return draft
        probs = torch.zeros(batch, width, laws[0].shape[1])
        for step, law in enumerate(laws):
            probs[:, step] = law
        return Draft(draft.tokens, draft.num_draft, probs)


def speculative_generate(
    target: Session,
    propose: Propose,
    prompts: list[list[int]],
    max_new_tokens: int,
    num_draft: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    top_p: float = 1.0,
    uniforms: Float[Tensor, "B rounds width"] | None = None,
    stop_tokens: Collection[int] = (),
    max_length: int | None = None,
) -> list[list[int]]:
    _check_request(prompts, max_new_tokens, num_draft, temperature, uniforms, max_length)
    next_token_probs(torch.ones(1, 2), temperature, top_k, top_p)
    batch = len(prompts)
    if uniforms is None:
        uniforms = torch.zeros(batch, max_new_tokens, 2 * num_draft + 1)
    limits = [max_new_tokens] * batch
    if max_length is not None:
        limits = [min(max_new_tokens, max_length - len(prompt)) for prompt in prompts]
    answers = [[] for _ in prompts]
    lengths = torch.zeros(batch, dtype=torch.long)  # what the target holds, and it is right
    active = [b for b in range(batch) if limits[b] > 0]
    r = 0
    while active:
        most = [0] * batch
        for b in active:
            most[b] = min(num_draft, limits[b] - len(answers[b]) - 1)
        if any(most):
            sequences = [prompt + answer for prompt, answer in zip(prompts, answers, strict=True)]
            draft = propose(sequences, most, uniforms[:, r, :num_draft])
        else:
            draft = Draft.of([[] for _ in prompts], num_draft)
        counts = torch.zeros(batch, dtype=torch.long)
        new = [[] for _ in prompts]
        for b in active:
            known = prompts[b] + answers[b]
            n = int(draft.num_draft[b])
            new[b] = known[int(lengths[b]) :] + draft.tokens[b, :n].tolist()
            counts[b] = len(new[b])
        tokens = torch.tensor([row + [0] * (int(counts.max()) - len(row)) for row in new])
        logits = target(tokens, counts)
        lengths += counts

        probs = torch.zeros(batch, num_draft + 1, logits.shape[-1])
        for b in active:
            n = int(draft.num_draft[b])
            rows = logits[b, int(counts[b]) - n - 1 : int(counts[b])]
            probs[b, : n + 1] = next_token_probs(rows, temperature, top_k, top_p)
        verified = verify(draft, probs, uniforms[:, r, num_draft:])
        still = []
        for b in active:
            given = verified[b][verified[b] != NO_TOKEN].tolist()
            lengths[b] = len(prompts[b]) + len(answers[b]) + len(given) - 1
            for token in given:
                answers[b].append(token)
                if token in stop_tokens or len(answers[b]) == limits[b]:
                    break
            else:
                still.append(b)
        active = still
        target.truncate(lengths)
        r += 1
    return answers


def _check_request(prompts, max_new_tokens, num_draft, temperature, uniforms, max_length):
    if not prompts or not all(prompts):
        raise ValueError("prompts: expected at least one, of at least one token each")
    if max_length is not None and max(map(len, prompts)) > max_length:
        raise ValueError(f"prompts: one is longer than max_length = {max_length}")
    if max_new_tokens < 0 or num_draft < 0:
        raise ValueError("max_new_tokens and num_draft: expected 0 or more")
    if temperature > 0 and uniforms is None:
        raise ValueError("uniforms: needed at a temperature above 0")
    if uniforms is not None:
        expected = (len(prompts), max_new_tokens, 2 * num_draft + 1)
        if tuple(uniforms.shape) != expected:
            raise ValueError(f"uniforms: expected {expected}, got {tuple(uniforms.shape)}")
