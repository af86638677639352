"""What the demo's conversations share: an answer through the course's cache, heard as it comes, and
the same answer without a cache. In a full checkout the reference does the work, in a student's copy
the student's own files.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from rich.text import Text

import tests.grading.notebook  # noqa: F401  (makes `submission` importable)
from assignment.provided.models import CachedSession, Llama
from submission.attention.generate import generate, next_token_probs, sample
from submission.attention.grouped_query import grouped_query_attention
from submission.attention.kv_cache import KVCache


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; the random numbers are an argument, so an answer can be repeated."""

    temperature: float
    uniforms: torch.Tensor  # [1, most tokens of an answer]


@dataclass(frozen=True)
class Answer:
    """An answer, and when each of its tokens was chosen, in seconds from the question."""

    prompt: list[int]
    sampling: Sampling
    tokens: list[int]
    times: list[float]

    @property
    def first(self) -> float:
        """TTFT: seconds to the first token."""
        return self.times[0]

    @property
    def each(self) -> float:
        """Seconds for each later token."""
        return (self.times[-1] - self.times[0]) / max(1, len(self.times) - 1)


class TooLong(Exception):
    """A prompt has more tokens than the cache has room for."""


class Conversation(ABC):
    """A person's prompts and a model's answers, on one cache."""

    name: str  # the model's, shown while it is loaded
    capacity: int  # tokens that the cache has room for
    prompt: str  # unless there is another
    temperature: float  # unless there is another
    invitation: str  # what a person at the terminal is asked for

    def __init__(self, model: Llama, tokenizer):
        self.model, self.tokenizer = model, tokenizer
        config = model.config
        shape = (1, self.capacity, config.num_kv_heads, config.head_dim)
        caches = [KVCache(*shape) for _ in range(config.num_layers)]
        self.session = CachedSession(model, caches, grouped_query_attention)

    @abstractmethod
    def opening(self, text: str, typed: bool) -> Text:
        """What is shown before the answer to `text`, which the screen already shows if typed."""

    @abstractmethod
    def ask(self, text: str, sampling: Sampling, show: Callable[[str], None]) -> Answer:
        """The answer; `show` gets its text piece by piece as it comes."""

    def remark(self, answer: Answer) -> str:
        """A line about what the answer says, if there is one."""
        return ""

    def forget(self) -> None:
        """Begin anew, in the same memory."""
        self.session.truncate(torch.tensor([0]))

    def answer(self, prompt: list[int], sampling: Sampling, show: Callable[[str], None]) -> Answer:
        """The answer to a prompt's tokens, which follow what the cache holds."""
        if len(prompt) >= self.capacity:
            raise TooLong(f"a prompt of {len(prompt)} tokens, and the cache holds {self.capacity}")
        listener = Listener(self.session, self.tokenizer, show)
        (tokens,) = generate(
            listener,
            [prompt],
            sampling.uniforms.shape[1],
            temperature=sampling.temperature,
            uniforms=sampling.uniforms,
            stop_tokens=self.tokenizer.stop_tokens,
            max_length=self.capacity - int(self.session.lengths),
        )
        listener.hear(tokens[-1])
        return Answer(prompt, sampling, tokens, listener.times)


class Listener:
    """The session as `generate` sees it, overheard: a token is known when it is fed back."""

    def __init__(self, session: CachedSession, tokenizer, show: Callable[[str], None]):
        self.session, self.tokenizer, self.show = session, tokenizer, show
        self.times: list[float] = []
        self._tokens: list[int] = []
        self._shown = ""
        self._start: float | None = None

    def __call__(self, tokens: torch.Tensor, num_tokens: torch.Tensor) -> torch.Tensor:
        if self._start is None:
            self._start = time.perf_counter()
        else:
            self.hear(int(tokens[0, 0]))
        return self.session(tokens, num_tokens)

    def hear(self, token: int) -> None:
        self.times.append(time.perf_counter() - self._start)
        self._tokens.append(token)
        text = self.tokenizer.decode(self._tokens)
        text = text.rstrip("\N{REPLACEMENT CHARACTER}")  # a character whose bytes are still coming
        self.show(text[len(self._shown) :])
        self._shown = text


@torch.no_grad()
def without_cache(model: Llama, answer: Answer, samples: int) -> tuple[Answer, int]:
    """The same answer with the whole sequence recomputed for every token.

    Measured at `samples` later steps spread evenly over the answer, as all would take minutes, and
    with logits of the last position only. Returns the measured steps as an answer whose times add
    up, and at how many of them the token is the cached answer's.
    """
    later = torch.linspace(1, len(answer.tokens) - 1, min(samples, len(answer.tokens) - 1))
    steps = [0, *later.round().int().tolist()]
    tokens, times = [], [0.0]
    for step in steps:
        sequence = torch.tensor([answer.prompt + answer.tokens[:step]])
        start = time.perf_counter()
        logits = model.logits(model.hidden(sequence)[:, -1:])
        probs = next_token_probs(logits[:, -1], answer.sampling.temperature)
        tokens.append(int(sample(probs, answer.sampling.uniforms[:, step])))
        times.append(times[-1] + time.perf_counter() - start)
    same = sum(token == answer.tokens[step] for token, step in zip(tokens, steps, strict=True))
    return replace(answer, tokens=tokens, times=times[1:]), same
