"""Sequences as rows of one padded tensor; what is held and what is new are compared all at once."""

from collections.abc import Callable, Collection

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from assignment.provided.models import Session
from assignment.provided.speculative import NO_TOKEN, Draft

from ..attention.generate import next_token_probs, sample
from .verification import verify

Propose = Callable[[list[list[int]], list[int], Tensor], Draft]


def _as_tensor(rows: list[list[int]]) -> tuple[Int[Tensor, "B S"], Int[Tensor, "B"]]:
    lengths = torch.tensor([len(row) for row in rows])
    tokens = torch.full((len(rows), int(lengths.max())), NO_TOKEN)
    for b, row in enumerate(rows):
        tokens[b, : len(row)] = torch.tensor(row, dtype=torch.long)
    return tokens, lengths


def _put(
    tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"], new: Int[Tensor, "B T"], counts: Tensor
) -> Int[Tensor, "B S2"]:
    """new[b, : counts[b]] behind the first lengths[b] tokens of each row; NO_TOKEN elsewhere."""
    width = int((lengths + counts).max())
    result = pad(tokens, (0, max(width - tokens.shape[1], 0)), value=NO_TOKEN)
    places = torch.arange(result.shape[1]) - lengths[:, None]
    result = result.masked_fill(places >= 0, NO_TOKEN)
    if new.shape[1] == 0:
        return result
    inside = (places >= 0) & (places < counts[:, None])
    return new.gather(1, places.clamp(0, new.shape[1] - 1)).where(inside, result)


class Cached:
    def __init__(self, session: Session):
        self.session = session
        self.tokens: Int[Tensor, "B S"] | None = None

    def feed(
        self, tokens: Int[Tensor, "B S"], lengths: Int[Tensor, "B"], chosen: Bool[Tensor, "B"], last
    ) -> tuple[Float[Tensor, "B T V"], Int[Tensor, "B"]]:
        """Logits of the tokens that the chosen rows lacked, and in which column they end."""
        if self.tokens is None:
            self.tokens = torch.zeros(len(tokens), 0, dtype=torch.long)
            self.lengths = torch.zeros(len(tokens), dtype=torch.long)
        width = max(tokens.shape[1], self.tokens.shape[1])
        held = pad(self.tokens, (0, width - self.tokens.shape[1]), value=NO_TOKEN)
        asked = pad(tokens, (0, width - tokens.shape[1]), value=NO_TOKEN)
        equal = (held == asked) & (held != NO_TOKEN)
        common = torch.minimum(equal.long().cumprod(dim=1).sum(dim=1), lengths - last)
        kept = common.where(chosen, self.lengths)
        self.session.truncate(kept)
        counts = (lengths - kept) * chosen
        columns = kept[:, None] + torch.arange(int(counts.max()))
        new = asked.gather(1, columns.clamp(max=width - 1)).clamp(min=0)
        logits = self.session(new, counts)
        self.tokens = asked.where(chosen[:, None], held)
        self.lengths = lengths.where(chosen, self.lengths)
        return logits, counts


class ModelDraft:
    def __init__(
        self,
        session: Session,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
    ):
        next_token_probs(torch.zeros(2, 2), temperature, top_k, top_p)
        self._cached, self._filters = Cached(session), (temperature, top_k, top_p)

    def __call__(
        self, sequences: list[list[int]], most: list[int], uniforms: Float[Tensor, "B G"]
    ) -> Draft:
        tokens, lengths = _as_tensor(sequences)
        limits = torch.tensor(most)
        rows = torch.arange(len(most))
        drafted = torch.full(uniforms.shape, NO_TOKEN)
        probs = None
        for i in range(int(limits.max())):
            active = limits > i
            logits, counts = self._cached.feed(tokens, lengths, active, 1)
            law = next_token_probs(logits[rows, counts - 1], *self._filters)
            chosen = sample(law, uniforms[:, i])
            if probs is None:
                probs = torch.zeros(*uniforms.shape, law.shape[-1])
            probs[:, i] = law
            drafted[:, i] = chosen.where(active, NO_TOKEN)
            tokens = _put(tokens, lengths, chosen[:, None], active.long())
            lengths = lengths + active
        return Draft(drafted, limits, probs)


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
    next_token_probs(torch.zeros(2, 2), temperature, top_k, top_p)
    if uniforms is None:
        uniforms = torch.zeros(len(prompts), max_new_tokens, 2 * num_draft + 1)
    tokens, lengths = _as_tensor(prompts)
    starts = lengths
    ends = lengths + max_new_tokens
    if max_length is not None:
        ends = ends.clamp(max=max_length)
    stops = torch.tensor(sorted(stop_tokens), dtype=torch.long)
    cached, places = Cached(target), torch.arange(num_draft + 1)
    for r in range(max_new_tokens):
        active = lengths < ends
        if not active.any():
            break
        most = (ends - lengths - 1).clamp(0, num_draft)
        rows = [row[:n] for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        draft = propose(rows, most.tolist(), uniforms[:, r, :num_draft].clone())

        longer = _put(tokens, lengths, draft.tokens, draft.num_draft)
        last = draft.num_draft + 1
        logits, counts = cached.feed(longer, lengths + draft.num_draft, active, last)
        columns = ((counts - last)[:, None] + places).clamp(0, logits.shape[1] - 1)
        chosen = logits.gather(1, columns[:, :, None].expand(-1, -1, logits.shape[2]))
        flat = next_token_probs(chosen.reshape(-1, logits.shape[2]), temperature, top_k, top_p)
        given = verify(draft, flat.reshape(chosen.shape), uniforms[:, r, num_draft:])

        stopped = torch.isin(given, stops)
        before = stopped.long().cumsum(dim=1) - stopped.long()  # stop tokens in front of each
        counts = ((given != NO_TOKEN) & (before == 0)).sum(dim=1) * active
        tokens = _put(tokens, lengths, given, counts)
        lengths = lengths + counts
        ends = torch.where(active & stopped.any(dim=1), lengths, ends)
    pairs = zip(tokens.tolist(), starts.tolist(), lengths.tolist(), strict=True)
    return [row[start:end] for row, start, end in pairs]


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
