"""An object a sequence on each side; what a session holds is asked of the session."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import torch
from jaxtyping import Float, Int
from torch import Tensor

from assignment.provided.models import Session
from assignment.provided.speculative import Draft

from ..attention.generate import next_token_probs, sample
from .verification import verify

Propose = Callable[[list[list[int]], list[int], Tensor], Draft]


@dataclass
class Memory:
    """The tokens that one row of a session has been fed."""

    tokens: list[int] = field(default_factory=list)

    def forget(self, sequence: list[int], num_logits: int) -> None:
        """Go back until what is left begins `sequence`, and its last tokens are yet to come."""
        self.tokens = self.tokens[: len(sequence) - num_logits]
        while self.tokens != sequence[: len(self.tokens)]:
            self.tokens.pop()

    def learn(self, sequence: list[int]) -> list[int]:
        new = sequence[len(self.tokens) :]
        self.tokens = self.tokens + new
        return new


class Rows:
    """The memories of a session's rows."""

    def __init__(self, session: Session):
        self.session = session
        self.memories: list[Memory] = []

    def logits(self, wanted: dict[int, tuple[list[int], int]]) -> Iterator[tuple[int, Tensor]]:
        """wanted: row -> (sequence, of how many last tokens the logits). (row, [number, V])."""
        held = self.session.lengths.tolist()
        self.memories = self.memories or [Memory() for _ in held]
        for row, (sequence, number) in wanted.items():
            self.memories[row].forget(sequence, number)
        lengths = [len(memory.tokens) for memory in self.memories]
        if lengths != held:
            self.session.truncate(torch.tensor(lengths))
        new: list[list[int]] = [[] for _ in held]
        for row, (sequence, _) in wanted.items():
            new[row] = self.memories[row].learn(sequence)
        counts = torch.tensor([len(tokens) for tokens in new])
        padded = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(tokens, dtype=torch.long) for tokens in new], batch_first=True
        )
        logits = self.session(padded, counts)
        for row, (_, number) in wanted.items():
            yield row, logits[row, : counts[row]][-number:]


class ModelDraft:
    def __init__(
        self,
        session: Session,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float = 1.0,
    ):
        self.rows = Rows(session)
        self.law = lambda logits: next_token_probs(logits, temperature, top_k, top_p)
        self.law(torch.zeros(1, 3))

    def __call__(
        self, sequences: list[list[int]], most: list[int], uniforms: Float[Tensor, "B G"]
    ) -> Draft:
        tokens: Int[Tensor, "B G"] = torch.zeros(uniforms.shape, dtype=torch.long)
        longer = {b: list(sequence) for b, sequence in enumerate(sequences) if most[b]}
        probs: dict[tuple[int, int], Tensor] = {}
        for i in range(max(most)):
            wanted = {b: (tokens_, 1) for b, tokens_ in longer.items() if i < most[b]}
            for b, logits in self.rows.logits(wanted):
                probs[b, i] = self.law(logits)
                token = sample(probs[b, i], uniforms[b : b + 1, i])
                tokens[b, i] = token[0]
                longer[b] = longer[b] + token.tolist()
        vocabulary = next((law.shape[1] for law in probs.values()), 0)
        laws = torch.full((*tokens.shape, vocabulary), torch.nan)  # where nothing is drafted
        for place, law in probs.items():
            laws[place] = law[0]
        return Draft(tokens, torch.tensor(most), laws)


@dataclass
class Answer:
    prompt: list[int]
    limit: int
    stop_tokens: Collection[int]
    new: list[int] = field(default_factory=list)

    @property
    def left(self) -> int:
        stopped = bool(self.new) and self.new[-1] in self.stop_tokens
        return 0 if stopped else self.limit - len(self.new)

    @property
    def sequence(self) -> list[int]:
        return [*self.prompt, *self.new]

    def add(self, tokens: list[int]) -> None:
        for token in tokens:
            if token >= 0 and self.left > 0:
                self.new.append(token)


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
    next_token_probs(torch.zeros(1, 3), temperature, top_k, top_p)
    if uniforms is None:
        uniforms = torch.zeros(len(prompts), max_new_tokens, 2 * num_draft + 1)
    room = [(max_length or 2**40) - len(prompt) for prompt in prompts]
    answers = [
        Answer(prompt, min(max_new_tokens, most), stop_tokens)
        for prompt, most in zip(prompts, room, strict=True)
    ]
    rows, r = Rows(target), 0
    while any(answer.left for answer in answers):
        most = [min(num_draft, max(answer.left - 1, 0)) for answer in answers]
        for_draft, for_verify = uniforms[:, r].tensor_split([num_draft], dim=1)
        draft = propose([answer.sequence for answer in answers], most, for_draft)
        wanted = {}
        for b, answer in enumerate(answers):
            if answer.left:
                n = int(draft.num_draft[b])
                wanted[b] = ([*answer.sequence, *draft.tokens[b, :n].tolist()], n + 1)
        q = None
        for b, logits in rows.logits(wanted):
            if q is None:
                q = torch.full((len(prompts), num_draft + 1, logits.shape[1]), torch.nan)
            q[b, : len(logits)] = next_token_probs(logits, temperature, top_k, top_p)
        for answer, tokens in zip(answers, verify(draft, q, for_verify).tolist(), strict=True):
            answer.add(tokens)
        r += 1
    return [answer.new for answer in answers]


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
