"""What a request asks of a server, and what comes back."""

import hashlib
import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Sampling:
    """How a request's tokens are chosen. A field that is not as said here raises a ValueError.

    max_new_tokens: at least 1.
    temperature, top_k, top_p: as `attention.generate.next_token_probs` has them; 0 is greedy.
    seed: decides the uniforms, and with them all tokens, whatever else the server has to do.
    n: how many independent answers, at least 1.
    stop_tokens: an answer ends with the first of these, which stays in it.
    logprobs: whether to note the log-probability of each token.
    """

    max_new_tokens: int = 16
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float = 1.0
    seed: int = 0
    n: int = 1
    stop_tokens: tuple[int, ...] = ()
    logprobs: bool = False

    def __post_init__(self) -> None:
        for name in ("max_new_tokens", "n"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1, got {getattr(self, name)}")
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature: expected a number ≥ 0, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k: expected None or at least 1, got {self.top_k}")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p: expected more than 0 and at most 1, got {self.top_p}")

    def uniform(self, sample: int, index: int) -> float:
        """The number in [0, 1), a multiple of 2⁻²⁴, that draws token `index` of answer `sample`."""
        text = f"{self.seed} {sample} {index}".encode()
        return (int.from_bytes(hashlib.sha256(text).digest()[:3], "big")) / 2**24


@dataclass(frozen=True)
class Completion:
    """One answer, so far.

    tokens: the new ones, without the prompt.
    finish_reason: "stop" (a stop token), "length" (max_new_tokens) or "abort"; None while it runs.
    logprobs: for each token the natural logarithm of its probability in the model's own law:
        softmax of the logits, before temperature and filters. Empty if not asked for.
    """

    tokens: tuple[int, ...] = ()
    finish_reason: str | None = None
    logprobs: tuple[float, ...] = ()
